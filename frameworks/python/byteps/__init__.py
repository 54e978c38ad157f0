# SPDX-License-Identifier: Apache-2.0
"""BytePS: push_pull of tensors through summation servers.

Use it through the part for your framework::

    import byteps.torch as bps      # PyTorch
    import byteps.numpy as bps      # NumPy and anything with __dlpack__

This module has what they share: the version, the exceptions, the other parts of a job,
and run(), which starts a whole job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._basics import metrics
from ._errors import (
    BusyError,
    ConfigurationError,
    Error,
    InvalidError,
    LostError,
    MembershipError,
    MismatchError,
    NotInitializedError,
    TimeoutError,
    WorkerError,
)
from ._native import bps as _bps
from ._parts import Scheduler, serve

if TYPE_CHECKING:
    from ._run import run
else:

    def __getattr__(name):
        """Return run(), whose modules most programs do not need."""
        if name == "run":
            from ._run import run

            return run
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__version__: str = _bps.version()


def coded_bytes() -> tuple[int, int]:
    """Return (plain, coded): how many bytes this worker has sent coded by a compressor, before and after coding.

    Both count from the start of the process, over all its jobs. What workers of one host sum among themselves is
    not coded, and does not count; nor do the results that come back.
    """
    return _bps.coded_bytes()


__all__ = [
    "BusyError",
    "ConfigurationError",
    "Error",
    "InvalidError",
    "LostError",
    "MembershipError",
    "MismatchError",
    "NotInitializedError",
    "Scheduler",
    "TimeoutError",
    "WorkerError",
    "__version__",
    "coded_bytes",
    "metrics",
    "run",
    "serve",
]
