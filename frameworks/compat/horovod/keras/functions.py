# SPDX-License-Identifier: Apache-2.0
"""Horovod's operations on values, alike on all backends of Keras: they go through NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras
import numpy as np

from byteps import keras as bps
from byteps import numpy as arrays
from byteps._basics import Average
from byteps._horovod import refuse_process_set

from .._arguments import choose, named, shares
from ..process_sets import global_process_set

if TYPE_CHECKING:
    from typing import Any

    from byteps._basics import ReduceOp
    from byteps._types import Coding

    from ..process_sets import ProcessSet

__all__ = ["allgather", "allreduce", "broadcast", "reducescatter"]


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
    refuse_process_set(process_set)
    scales, op = (prescale_factor, postscale_factor), choose(average, op)
    return bps.allreduce(value, named("allreduce", name), None, *scales, op, compression)


def broadcast(
    value: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> np.ndarray:
    """Return the value of worker root_rank on every worker."""
    refuse_process_set(process_set)
    return bps.broadcast(value, root_rank, named("broadcast", name))


def allgather(value: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> np.ndarray:
    """Return the values of all workers one after the other along the first dimension, which may differ between them.

    `name` is accepted; calls meet in their order.
    """
    del name
    refuse_process_set(process_set)
    return arrays.all_gather(np.asarray(keras.ops.convert_to_numpy(value)))


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
    refuse_process_set(process_set)
    array = np.asarray(keras.ops.convert_to_numpy(value))
    scales = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
    return arrays.reduce_scatter(array, shares(len(array)), op=choose(None, op), **scales)
