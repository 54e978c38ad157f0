# SPDX-License-Identifier: Apache-2.0
"""push_pull of rows, for the bindings: the result as buffers."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from ._basics import Average, Sum, start
from ._coding import asks_for_momentum
from ._native import bps as _bps

if TYPE_CHECKING:
    from typing import Any


def start_rows(
    indices: Any, values: Any, rows: int, name: str | None, op: int, priority: int, prescale: float, postscale: float
) -> Any:
    """Start it, under the name in the job. Returns (the extension's handle, the rows), for result_buffers() later."""
    return start(_bps.push_pull_rows, indices, values, rows, name, op, priority, prescale, postscale)


def check_reduction(op: int, coding: str | None) -> None:
    """Raise ValueError if a reduction does not work on rows: with zeros for the rows that a worker lacks it does."""
    if op not in (Average, Sum):
        raise ValueError("the rows of a sparse tensor support sum and average only; make it dense")
    if asks_for_momentum(coding):
        raise ValueError(
            "compression: momentum is not supported for rows of a sparse tensor; make it dense"
        )


def _buffer(owner: Any, address: int, size: int) -> ctypes.Array[ctypes.c_ubyte]:
    if size == 0:
        return (ctypes.c_ubyte * 0)()
    buffer: Any = (ctypes.c_ubyte * size).from_address(address)
    buffer.owner = owner
    return buffer


def result_buffers(result: Any, row_bytes: int) -> tuple[ctypes.Array[ctypes.c_ubyte], ctypes.Array[ctypes.c_ubyte]]:
    """Return what may be written: the indices, 64 bits each, and the elements of the result."""
    count, index, values = result.result()
    return _buffer(result, index, 8 * count), _buffer(result, values, row_bytes * count)
