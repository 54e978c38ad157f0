# SPDX-License-Identifier: Apache-2.0
"""Trains in an elastic job, and reforms when a worker is lost, until the file $END is there; says who it is each time.

With KILL=RANK that worker dies in the first attempt, of which torchrun may make several.
"""

import os
import signal
import time

import byteps
import byteps.numpy as bps
import numpy as np


def say(what):
    os.write(1, f"{what} as {bps.rank()} of {bps.size()}\n".encode())  # in one piece, as workers may share a pipe


bps.init()
dies = os.environ.get("KILL") == str(bps.rank()) and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
say("joins")
step, over = 0, False
while not over:
    try:
        over = bps.push_pull(np.array([float(os.path.exists(os.environ["END"]))]), op=bps.Max, name="over")[0] > 0
        step += 1
        if step == 5:
            say("trains")
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.01)
    except byteps.MembershipError:
        bps.reform()
        say("reforms")
say("ends")
bps.shutdown()
