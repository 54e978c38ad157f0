# SPDX-License-Identifier: Apache-2.0
"""The ways in which a worker, RANK, ends: `exit.py HOW RANK`. The other worker tells what it hears of it."""

import atexit
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


def write_file():
    with open(os.environ["FILE"], "w", encoding="ascii"):
        pass


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
        write_file()
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


def succeed(mine):
    """The program ends before the other worker joins its operation."""
    if mine:
        atexit.register(write_file)
        bps.push_pull_async(np.ones(1 << 20), name="x", op=bps.Sum)
    else:
        await_file()
        assert bps.push_pull(np.ones(1 << 20), name="x", op=bps.Sum)[-1] == 2


def fail(mine, how):
    """The program ends while each worker waits for the other."""
    if mine and how == "sys.exit, nothing in flight":
        sys.exit(3)
    handle = bps.push_pull_async(np.ones(1000), name="mine" if mine else "theirs")
    if mine and how == "sys.exit":
        sys.exit(3)
    if mine and how == "os._exit":
        os._exit(3)
    if mine and how == "exception":
        raise ValueError("planted")
    if mine:
        announce_wait(handle)
    try:
        handle.wait()
    except byteps.LostError as error:
        tell(error)
        sys.exit(9)


signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started the tests with it ignored
try:
    bps.init()
except byteps.LostError as error:  # the other one was sooner in the job, and out of it
    tell(error)
    sys.exit(9)
how, rank = sys.argv[1], int(sys.argv[2])
mine = bps.rank() == rank
if how in ("wait again", "drop"):
    interrupt(mine, how == "drop")
elif how == "success":
    succeed(mine)
else:
    fail(mine, how)
