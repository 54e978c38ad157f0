# SPDX-License-Identifier: Apache-2.0
"""Horovod's operations on arrays, made of those of byteps.mxnet.

allreduce and broadcast meet by their names, each in names of its own; without a name, and all others, by the order in
which they are called, which is the same on all workers. Those in a process set have no names: they meet in the order in
which its workers call them, and their results are there when they return. Ranks in results and splits are those in the
set, and a root is given by its rank in the job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mxnet as mx

from byteps import mxnet as bps
from byteps._basics import Average, rank, size
from byteps._groups import party
from byteps.mxnet import _grouped

from .._arguments import choose, init, named, root_of, shares
from ..process_sets import global_process_set, group_of

if TYPE_CHECKING:
    from typing import Iterable, Sequence, Union

    from byteps._basics import ReduceOp

    from ..process_sets import ProcessSet

    Splits = Union[mx.nd.NDArray, Sequence[int], None]

__all__ = [
    "allgather",
    "allreduce",
    "allreduce_",
    "alltoall",
    "broadcast",
    "broadcast_",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_reducescatter",
    "init",
    "rank",
    "reducescatter",
    "size",
]


def allreduce(
    tensor: mx.nd.NDArray,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: ReduceOp | None = None,
) -> mx.nd.NDArray:
    """Return the reduction of an array over all workers, as byteps.mxnet.push_pull()."""
    scales = (prescale_factor, postscale_factor)
    return allreduce_(tensor.copy(), average, name, priority, *scales, process_set, op)


def allreduce_(
    tensor: mx.nd.NDArray,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: ReduceOp | None = None,
) -> mx.nd.NDArray:
    """Reduce an array over all workers in place, and return it."""
    scales, op, group = (prescale_factor, postscale_factor), choose(average, op), group_of(process_set)
    return bps.push_pull_inplace(tensor, None, named("allreduce", name, group), priority, op, *scales, group=group)


def grouped_allreduce(
    tensors: Iterable[mx.nd.NDArray],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: ReduceOp | None = None,
) -> list[mx.nd.NDArray]:
    """Return the reduction of each array of a list; all are in flight at once."""
    scales, copies = (prescale_factor, postscale_factor), [tensor.copy() for tensor in tensors]
    return grouped_allreduce_(copies, average, name, priority, *scales, process_set, op)


def grouped_allreduce_(
    tensors: Iterable[mx.nd.NDArray],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: ReduceOp | None = None,
) -> list[mx.nd.NDArray]:
    """Reduce each array of a list in place, and return them; all are in flight at once."""
    scales, op, group = (prescale_factor, postscale_factor), choose(average, op), group_of(process_set)
    tensors, name = list(tensors), named("allreduce", name)
    if group is not None:
        return _grouped.reduce(tensors, op, scales, group, priority)
    return bps.grouped_allreduce_(tensors, None, name, priority, *scales, op=op)


def broadcast(
    tensor: mx.nd.NDArray,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> mx.nd.NDArray:
    """Return the array of worker root_rank as a new array on every worker."""
    return broadcast_(tensor.copy(), root_rank, name, priority, process_set)


def broadcast_(
    tensor: mx.nd.NDArray,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> mx.nd.NDArray:
    """Replace an array by that of worker root_rank, in place, and return it."""
    group = group_of(process_set)
    root = root_of(root_rank, group)
    return bps.broadcast_inplace(tensor, root, named("broadcast", name, group), priority, group)


def allgather(
    tensor: mx.nd.NDArray,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> mx.nd.NDArray:
    """Return the arrays of all workers one after the other along the first dimension, which may differ between them.

    `name` is accepted; calls meet in their order.
    """
    del name
    return bps.all_gather(tensor, priority=priority, group=group_of(process_set))


def grouped_allgather(
    tensors: Iterable[mx.nd.NDArray],
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> list[mx.nd.NDArray]:
    """Return the allgather of each array of a list."""
    return [allgather(tensor, name, priority, process_set) for tensor in tensors]


def alltoall(
    tensor: mx.nd.NDArray,
    splits: Splits = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> mx.nd.NDArray | tuple[mx.nd.NDArray, mx.nd.NDArray]:
    """Send a part of the array to each worker; return what all have sent to this one, by rank.

    Args:
        tensor: the parts lie one after the other along the first dimension.
        splits: how many rows each worker gets; all workers give them, or none does. None: all parts are alike.
        name: accepted; calls meet in their order.
        priority: larger is more urgent.
        process_set: of the workers that take part.

    Returns:
        The parts one after the other along the first dimension. With splits (that, received_splits): how many rows have
        come from each worker, as int32.
    """
    del name
    group = group_of(process_set)
    how, workers = {"priority": priority, "group": group}, party(group).size()
    if splits is None and tensor.shape and tensor.shape[0] % workers == 0:  # first dimensions may differ nevertheless
        return bps.all_to_all(tensor, [tensor.shape[0] // workers] * workers, **how)[0]
    numbers = splits.astype("int64").asnumpy() if isinstance(splits, mx.nd.NDArray) else splits
    output, received = bps.all_to_all(tensor, numbers, **how)
    return output if splits is None else (output, mx.nd.array(received, dtype="int32"))


def reducescatter(
    tensor: mx.nd.NDArray,
    op: ReduceOp = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> mx.nd.NDArray:
    """Return this worker's rows of the reduction of an array over all workers.

    Where the first dimension cannot be divided by size(), the first workers get one more row. `name` is accepted; calls
    meet in their order.
    """
    del name
    group = group_of(process_set)
    if not tensor.shape:
        raise ValueError("reducescatter: a scalar cannot be split; reshape it first, as with reshape(1)")
    how = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor, "group": group}
    return bps.reduce_scatter(tensor, shares(tensor.shape[0], group), op=choose(None, op), priority=priority, **how)


def grouped_reducescatter(
    tensors: Iterable[mx.nd.NDArray],
    op: ReduceOp = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[mx.nd.NDArray]:
    """Return the reducescatter of each array of a list."""
    scales = (prescale_factor, postscale_factor)
    return [reducescatter(tensor, op, name, priority, process_set, *scales) for tensor in tensors]
