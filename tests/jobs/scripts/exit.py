# SPDX-License-Identifier: Apache-2.0
"""The ways in which a worker, RANK, ends: `exit.py HOW RANK`. The other workers tell what they hear of it."""

import os
import signal
import sys
import threading
import time

import numpy as np

import byteps
import byteps.numpy as bps


def tell(text):
    print(text, flush=True)


def await_file():
    """Return when the test or the other worker lets the job go on."""
    while not os.path.exists(os.environ["FILE"]):
        time.sleep(0.01)


def announce_wait(handle):
    """Tell, from another thread, that the main thread has entered handle.wait()."""
    main = threading.main_thread().ident

    def look():
        while sys._current_frames()[main].f_code is not type(handle).wait.__code__:
            time.sleep(0.01)
        tell("waiting")

    threading.Thread(target=look).start()


def interrupted(handle):
    """Wait for an operation that the other worker has not joined, until SIGINT comes; then let that one join."""
    announce_wait(handle)
    try:
        handle.wait()
    except KeyboardInterrupt:
        with open(os.environ["FILE"], "w", encoding="ascii"):
            tell("interrupted")


def train():
    for step in range(5):
        assert bps.push_pull(np.full(1000, float(step)), name="x")[-1] == step


def interrupt(mine, drop):
    """SIGINT is caught, and the training goes on."""
    if mine:
        handle = bps.push_pull_async(np.ones(1000), name="x", op=bps.Sum)
        interrupted(handle)
        if not drop:
            assert handle.wait()[-1] == 2
        del handle
    else:
        await_file()
        assert bps.push_pull(np.ones(1000), name="x", op=bps.Sum)[-1] == 2
    train()
    tell("trained")


def end_by_interrupt(mine):
    """SIGINT ends the process, while each worker waits for the other."""
    handle = bps.push_pull_async(np.ones(1000), name="mine" if mine else "theirs")
    if mine:
        announce_wait(handle)
    try:
        handle.wait()
    except byteps.LostError as error:
        tell(error)
        sys.exit(9)


signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started the tests with it ignored
bps.init()
how, rank = sys.argv[1], int(sys.argv[2])
mine = bps.rank() == rank
if how in ("wait again", "drop"):
    interrupt(mine, how == "drop")
else:
    end_by_interrupt(mine)
