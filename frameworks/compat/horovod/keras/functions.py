# SPDX-License-Identifier: Apache-2.0
"""Horovod's operations on values, alike on all backends of Keras: they go through NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras
import numpy as np

from byteps import numpy as arrays
from byteps._basics import Average

from .._arguments import choose, named, root_of, shares
from ..process_sets import global_process_set, group_of

if TYPE_CHECKING:
    from typing import Any

    from byteps._basics import ReduceOp
    from byteps._types import Coding

    from ..process_sets import ProcessSet

__all__ = ["allgather", "allreduce", "broadcast", "reducescatter"]


def _array(value):
    return np.asarray(keras.ops.convert_to_numpy(value))


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: ReduceOp | None = None,
    compression: type | Coding | None = None,
    process_set: ProcessSet = global_process_set,
) -> np.ndarray | float:
    """Return the reduction of a value over all workers; it is sent as it is, whatever the compression."""
    del compression
    group, op = group_of(process_set), choose(average, op)
    how = {"op": op, "prescale_factor": prescale_factor, "postscale_factor": postscale_factor, "group": group}
    return arrays.push_pull(_array(value), None, named("allreduce", name, group), **how)[()]


def broadcast(
    value: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> np.ndarray:
    """Return the value of worker root_rank on every worker."""
    group = group_of(process_set)
    root = root_of(root_rank, group)
    return arrays.broadcast(_array(value), root, named("broadcast", name, group), group=group)[()]


def allgather(value: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> np.ndarray:
    """Return the values of all workers one after the other along the first dimension, which may differ between them.

    `name` is accepted; calls meet in their order.
    """
    del name
    return arrays.all_gather(_array(value), group=group_of(process_set))


def reducescatter(
    value: Any,
    name: str | None = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> np.ndarray:
    """Return this worker's rows of the reduction of a value over all workers.

    Where the first dimension cannot be divided by size(), the first workers get one more row. `name` is accepted; calls
    meet in their order.
    """
    del name
    group, array = group_of(process_set), _array(value)
    scales = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
    return arrays.reduce_scatter(array, shares(len(array), group), op=choose(None, op), group=group, **scales)
