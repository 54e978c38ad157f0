# SPDX-License-Identifier: Apache-2.0
"""BytePS: push_pull of tensors through summation servers.

Use it through the part for your framework::

    import byteps.torch as bps      # PyTorch
    import byteps.numpy as bps      # NumPy and anything with __dlpack__

This module has what they share: the version and the exceptions.
"""

from ._errors import (
    BusyError,
    ConfigurationError,
    Error,
    InvalidError,
    LostError,
    MismatchError,
    NotInitializedError,
    TimeoutError,
)
from ._native import bps as _bps

__version__ = _bps.version()

__all__ = [
    "BusyError",
    "ConfigurationError",
    "Error",
    "InvalidError",
    "LostError",
    "MismatchError",
    "NotInitializedError",
    "TimeoutError",
    "__version__",
]
