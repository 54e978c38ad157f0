# SPDX-License-Identifier: Apache-2.0
"""Functions that byteps.run() calls in the workers of test_py_run.py."""

import os
import signal
import sys
import threading
import time

import numpy

import byteps
import byteps.numpy as bps


def sums(value, more=0):
    """What each worker knows of itself, and the sum over all."""
    bps.init()
    print(f"rank {bps.rank()} says {os.environ['GREETING']}")
    print("some error", file=sys.stderr)
    total = bps.push_pull(numpy.full(3, value + bps.rank()), name="x", op=bps.Sum)
    return bps.rank(), bps.size(), total.tolist(), more


def ends(how):
    """Worker 1 ends in some way while worker 0 waits for it."""
    bps.init()
    if bps.rank() == 1:
        if how == "exception":
            raise KeyError("no such thing")
        if how == "killed":
            print("last words", file=sys.stderr)
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "left":
            sys.exit(0)
        if how == "unpicklable":
            return threading.Lock()
        if how == "again":
            byteps.run(ends, ("again",))
    if how in ("exception", "killed"):
        bps.barrier()
    return how


def sleeps():
    bps.init()
    print("sleeps", flush=True)
    time.sleep(600)
