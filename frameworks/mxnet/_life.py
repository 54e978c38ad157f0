# SPDX-License-Identifier: Apache-2.0
"""The end of a job, and of the process: the engine may still have operations for it in its queues."""

from __future__ import annotations

import atexit
import contextlib
import time

from byteps import _basics
from byteps._errors import Error
from byteps._native import bps as _bps

from .ops import pending

_LIMIT = 5.0  # seconds, as the library itself waits for operations that nobody joins


def settle(in_queue):
    """Wait until all operations have begun, or have ended; return whether they have."""
    deadline = time.monotonic() + _LIMIT
    while pending(in_queue) and time.monotonic() < deadline:
        time.sleep(0.001)
    return not pending(in_queue)


def shutdown() -> None:
    """Finish the operations in flight and leave the job; see byteps.numpy.shutdown()."""
    settle(in_queue=True)
    _basics.shutdown()


def suspend() -> None:
    """Leave the job like shutdown(), but remember the declared tensors for resume()."""
    settle(in_queue=True)
    _basics.suspend()


@atexit.register
def _leave_before_mxnet():
    """Leave the job if something is in flight that nobody joins: MXNet's own handler would wait for it for ever."""
    if not settle(in_queue=False) and _bps.is_initialized():
        with contextlib.suppress(Error):  # whose operations they are hears of it
            _bps.shutdown()
