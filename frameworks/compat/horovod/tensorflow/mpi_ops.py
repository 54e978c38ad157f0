# SPDX-License-Identifier: Apache-2.0
"""Horovod's operations on tensors, made of those of byteps.tensorflow.

allreduce and broadcast meet by their names, each in names of its own; in eager mode without a name, and all others, by
the order in which they are called, which is the same on all workers. Those in a process set have no names: they meet in
the order in which its workers call them, and ranks in results and splits are those in the set. A root is given by its
rank in the job.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from byteps import tensorflow as bps
from byteps._basics import Average, rank, size
from byteps._groups import party
from byteps.tensorflow import _grouped
from byteps.tensorflow.compression import Compression
from byteps.tensorflow.functions import resource_of

from .._arguments import choose, init, named, root_of, shares
from ..process_sets import global_process_set, group_of, process_set_by_id

if TYPE_CHECKING:
    from typing import Iterable, Sequence

    from byteps._basics import ReduceOp
    from byteps._types import Coding
    from byteps.tensorflow.collectives import Splits
    from byteps.tensorflow.compression import Compressor
    from byteps.tensorflow.ops import TensorLike

    from ..process_sets import ProcessSet

__all__ = [
    "allgather",
    "allreduce",
    "alltoall",
    "broadcast",
    "broadcast_",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "init",
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank",
    "rank_op",
    "reducescatter",
    "size",
    "size_op",
]

local_rank_op, local_size_op, rank_op = bps.local_rank_op, bps.local_size_op, bps.rank_op


def _scaled(tensor, factor, group):
    """Return a tensor whose gradient is multiplied by what factor() returns of the number of workers."""

    @tf.custom_gradient
    def scaled(result):
        def backward(gradient):
            workers = bps.size_op() if group is None else group.size()
            return tf.convert_to_tensor(gradient) * factor(tf.cast(workers, gradient.dtype))

        return tf.identity(result), backward

    return scaled(tensor)


def _averaged(tensor, group):
    """Make the average of the workers' gradients of their sum, as Horovod's is one."""
    return _scaled(tensor, lambda workers: 1 / workers, group)


# ---- allreduce and broadcast -----------------------------------------------------------------------------


def allreduce(
    tensor: TensorLike,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] | Coding = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> tf.Tensor | tf.IndexedSlices:
    """Return the reduction of a tensor over all workers, as byteps.tensorflow.push_pull(). Gradients see it.

    In a process set IndexedSlices come back with the rows of all its workers, each as often as it was sent.
    """
    del ignore_name_scope
    group, op = group_of(process_set), choose(average, op)
    where, scales = (device_dense, device_sparse), (prescale_factor, postscale_factor)
    name = named("allreduce", name, group)
    return bps.allreduce(tensor, None, *where, compression, op, *scales, name, group=group)


def grouped_allreduce(
    tensors: Sequence[TensorLike],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] | Coding = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[tf.Tensor | tf.IndexedSlices]:
    """Return the allreduce of each tensor of a list; in a graph, or a process set, all are in flight at once."""
    del ignore_name_scope
    group, op = group_of(process_set), choose(average, op)
    where, scales, name = (device_dense, device_sparse), (prescale_factor, postscale_factor), named("allreduce", name)
    if group is not None:
        with tf.device(device_dense) if device_dense else contextlib.nullcontext():
            return _grouped.push_pull(tensors, op, scales, compression, group)
    return bps.grouped_allreduce(tensors, None, *where, compression, op, *scales, name=name)


def broadcast(
    tensor: TensorLike,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """Return the tensor of worker root_rank on every worker.

    The gradient is the average of the workers' gradients on the root, and zeros on the others.
    """
    del ignore_name_scope
    group = group_of(process_set)
    root, name = root_of(root_rank, group), named("broadcast", name, group)
    return _averaged(bps.broadcast(tensor, root, name=name, group=group), group)


def broadcast_(
    variables: Iterable[tf.Variable],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[tf.Tensor]:
    """Replace variables by those of worker root_rank, and return their values."""
    group, variables = group_of(process_set), list(variables)
    scope = "" if name is None else f"{name}."
    done = bps.broadcast_variables(variables, root_of(root_rank, group), scope, group=group)
    with tf.control_dependencies([] if done is None else [done]):
        return [resource_of(variable).read_value() for variable in variables]


# ---- allgather, alltoall, reducescatter ------------------------------------------------------------------


def allgather(
    tensor: TensorLike,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """Return the tensors of all workers one after the other along the first dimension, which may differ between them.

    As byteps.tensorflow.all_gather(): `name` is accepted, and calls meet in their order. The gradient is the average of
    the workers' gradients of this worker's rows.
    """
    del name, ignore_name_scope
    group = group_of(process_set)
    return _averaged(bps.all_gather(tensor, group=group), group)


def grouped_allgather(
    tensors: Iterable[TensorLike],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[tf.Tensor]:
    """Return the allgather of each tensor of a list."""
    return [allgather(tensor, name, ignore_name_scope, process_set) for tensor in tensors]


def alltoall(
    tensor: TensorLike,
    splits: Splits = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor | tuple[tf.Tensor, tf.Tensor]:
    """Send a part of the tensor to each worker; return what all have sent to this one, by rank.

    Args:
        tensor: the parts lie one after the other along the first dimension.
        splits: how many rows each worker gets; all workers give them, or none does. None: all parts are alike.
        name, ignore_name_scope: accepted; calls meet in their order.
        process_set: of the workers that take part.

    Returns:
        The parts one after the other along the first dimension. With splits (that, received_splits): how many rows have
        come from each worker, of the type of splits, or int32 for a list. The gradient is exchanged the other way.
    """
    del name, ignore_name_scope
    group = group_of(process_set)
    tensor = tf.convert_to_tensor(tensor)
    if splits is not None:
        splits = tf.convert_to_tensor(splits)
        output, received = bps.all_to_all(tensor, splits, group=group)
        return output, tf.cast(received, splits.dtype)
    if tensor.shape.rank == 0:
        raise ValueError("alltoall: a scalar cannot be split; reshape it first, as with tf.reshape(tensor, [1])")
    workers = bps.size_op() if group is None else party(group).size()
    return bps.all_to_all(tensor, tf.fill([workers], tf.shape(tensor)[0] // workers), group=group)[0]


def reducescatter(
    tensor: TensorLike,
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOp = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tf.Tensor:
    """Return this worker's rows of the reduction of a tensor over all workers.

    Args:
        tensor: of the same shape and type on all workers. Where the first dimension cannot be divided by size(), the
            first workers get one more row.
        device_dense: the device to compute on, as for tf.device().
        compression: one of Compression.
        op: Average, Sum, Min, Max or Product. The first two have gradients: as Horovod's, those of a sum are multiplied
            by size().
        name, ignore_name_scope: accepted; calls meet in their order.
        process_set: of the workers that take part.
        prescale_factor, postscale_factor: multiply each contribution and the result.
    """
    del name, ignore_name_scope
    group = group_of(process_set)
    if not hasattr(compression, "compress"):
        raise TypeError(f"reducescatter: compression={compression!r} is not in Compression; only allreduce is coded")
    scales = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
    with tf.device(device_dense) if device_dense else contextlib.nullcontext():
        small, context = compression.compress(tf.convert_to_tensor(tensor))
        split = functools.partial(shares, group=group)
        result = bps.reduce_scatter(small, split, op=choose(None, op), group=group, **scales)
        return compression.decompress(_scaled(result, lambda workers: workers, group), context)


def grouped_reducescatter(
    tensors: Iterable[TensorLike],
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[tf.Tensor]:
    """Return the reducescatter of each tensor of a list."""
    how = {"process_set": process_set, "prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
    return [reducescatter(tensor, device_dense, compression, op, **how) for tensor in tensors]


# ---- questions in a graph --------------------------------------------------------------------------------


def size_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """Return the number of workers of a process set as an int32 tensor, asked when the graph runs."""
    if process_set_id == 0:
        return bps.size_op(name)
    return _ask(lambda: process_set_by_id(process_set_id).size(), name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """Return 1 as an int32 tensor if this worker is in a process set, else 0; asked when the graph runs."""
    return _ask(lambda: process_set_by_id(process_set_id).included(), name)


def _ask(question, name):
    """Return the answer of a function of Python as an int32 tensor."""
    answer = tf.numpy_function(lambda: np.int32(question()), [], tf.int32, name=name)
    answer.set_shape([])
    return answer
