# SPDX-License-Identifier: Apache-2.0
"""Operations on arrays of the host: outside of compiled functions, and for devices by way of a callback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jax.errors import JaxRuntimeError

from byteps._basics import Handle, run_push_pull, wait_all
from byteps._coded_names import declare_coded
from byteps._errors import Error
from byteps._native import bps as _bps

if TYPE_CHECKING:
    from typing import Any, Iterable

    from ._primitive import Request

_CODES = {  # as framework_jax.so has them for compiled functions
    -1: "INVALID_ARGUMENT",
    -9: "INVALID_ARGUMENT",
    -2: "FAILED_PRECONDITION",
    -3: "FAILED_PRECONDITION",
    -8: "FAILED_PRECONDITION",
    -10: "FAILED_PRECONDITION",
    -4: "RESOURCE_EXHAUSTED",
    -6: "DEADLINE_EXCEEDED",
    -7: "UNAVAILABLE",
    -11: "UNIMPLEMENTED",
}


def _memory(array):
    """Return what the extension takes for an array in one piece."""
    return array.ctypes.data, array.shape, _bps.dtypes[array.dtype.name], array


def _operation(request, index, array):
    """Return what the extension takes for the operation on an array, and the array that receives the result."""
    source = np.ascontiguousarray(array).reshape(np.shape(array))
    result = np.empty(source.shape, source.dtype)
    return (_memory(source), _memory(result), request.full_name(index), *request.kind()), result


def _start(request, index, array):
    arguments, result = _operation(request, index, array)
    return Handle((_bps.push_pull if request.root < 0 else _bps.broadcast)(*arguments), result)


def _run(request, array):
    arguments, result = _operation(request, 0, array)
    run_push_pull(*arguments)
    return result


def exchange(request: Request, arrays: Iterable[Any]) -> list[np.ndarray[Any, Any]]:
    """Return the results of all arrays, as arrays of NumPy; all are in flight at once.

    Raises:
        JaxRuntimeError: an operation has failed; its cause is the exception of this package.
    """
    arrays = [np.asarray(array) for array in arrays]
    try:
        declare_coded(request.names, request.coding)
        if len(arrays) == 1 and request.root < 0:
            return [_run(request, arrays[0])]
        return wait_all([_start(request, index, array) for index, array in enumerate(arrays)])
    except Error as error:
        raise JaxRuntimeError(f"{_CODES.get(error.status, 'INTERNAL')}: {error}") from error
