# SPDX-License-Identifier: Apache-2.0
"""push_pull of some rows of a table, such as the gradient of an embedding: nothing else travels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from byteps._basics import Handle, choose_op, full_name
from byteps._sparse import result_buffers, start_rows

if TYPE_CHECKING:
    from typing import Any

    from byteps._basics import ReduceOp
    from numpy.typing import ArrayLike, NDArray


def push_pull_sparse_async(
    indices: ArrayLike,
    values: NDArray[Any],
    rows: int,
    name: str,
    average: bool | None = None,
    priority: int = 0,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[tuple[NDArray[np.int64], NDArray[Any]]]:
    """Start a push_pull of rows and return its Handle at once. Arguments as for push_pull_sparse()."""
    indices = np.ascontiguousarray(indices, np.int64)
    values = np.ascontiguousarray(values)
    native, result = start_rows(
        indices, values, rows, full_name(name), choose_op(average, op), priority, prescale_factor, postscale_factor
    )

    def finish(output):
        del output
        row = values.dtype.itemsize * int(np.prod(values.shape[1:], dtype=np.int64))
        index, data = result_buffers(result, row)
        return np.frombuffer(index, np.int64), np.frombuffer(data, values.dtype).reshape(-1, *values.shape[1:])

    return Handle(native, (indices, values), finish)


def push_pull_sparse(
    indices: ArrayLike,
    values: NDArray[Any],
    rows: int,
    name: str,
    average: bool | None = None,
    priority: int = 0,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return the sums, or averages, of the rows of a table that any worker brings.

    Of a table in mode async what this worker brings is added, and what comes is what these rows are then: those that it
    has brought, and no others. Rows of zeros only read.

    Args:
        indices: which row of the table each of the values is, in any order. Rows given twice are summed; it may
            be empty.
        values: an array whose first dimension counts the rows that this worker brings. All others, and the type,
            are the same on all workers.
        rows: of the whole table.
        name: of the table, the same on all workers.
        average: True (the default): sums divided by the number of workers, whoever has brought a row.
        priority: larger is more urgent.
        op: Average or Sum, instead of `average`.
        prescale_factor, postscale_factor: multiply each contribution and the result.

    Returns:
        (indices, values): the rows that any worker has brought, ascending; the same on all workers.

    Raises:
        TypeError, ValueError: the rows cannot be sent.
        Error: a row is not one of the table's, or the operation has none for rows.
        BusyError: this name is in flight already.
        MismatchError: the workers disagree about the table. All of them get it.
        LostError, TimeoutError: a member of the job was lost, or does not answer.
    """
    return push_pull_sparse_async(
        indices, values, rows, name, average, priority, op, prescale_factor, postscale_factor
    ).wait()
