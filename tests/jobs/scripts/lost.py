# SPDX-License-Identifier: Apache-2.0
"""Worker 1 leaves the job in some way while worker 0 waits for its tensor; worker 0 prints the exception."""

import os
import signal
import sys
import time

import numpy as np

import byteps
import byteps.numpy as bps

bps.init()
how = sys.argv[1]
bps.push_pull(np.ones(1000), name="warm")
if bps.rank() == 1:
    if how == "raise":
        handle = bps.push_pull_async(np.ones(1000), name="other")
        raise ValueError("planted")
    if how == "return":
        sys.exit(0)
    if how == "kill late":
        time.sleep(0.5)  # the other one has sent what its credit allows
    if how.startswith("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    name = "theirs"
else:
    name = "mine"
try:
    if how == "barrier" and bps.rank() == 0:
        bps.barrier()
    elif how == "barrier":
        bps.push_pull(np.ones(3))
    bps.push_pull(np.ones(8 << 20 if how == "kill late" else 1000), name=name)
    print("no exception", flush=True)
except byteps.Error as error:
    print(f"{type(error).__name__}: {error}", flush=True)
    sys.exit(9)
