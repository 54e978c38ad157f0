# SPDX-License-Identifier: Apache-2.0
"""push_pull and broadcast of tensors, in eager mode, in tf.function and in sessions, and their gradients."""

from __future__ import annotations

import contextlib
import operator
import struct
from typing import TYPE_CHECKING, Any, Sequence, Union

import tensorflow as tf

from byteps._basics import (
    Average,
    ReduceOp,
    Sum,
    choose_op,
    full_name,
    init,
    local_rank,
    local_size,
    rank,
    resume,
    shutdown,
    size,
    suspend,
)
from byteps._coded_names import choose_compressor, coding_of, require_name
from byteps._errors import InvalidError
from byteps._groups import check_root, party, refuse_name
from byteps._horovod import refuse_process_set
from byteps._native import bps as _bps
from byteps._sparse import check_reduction
from byteps.common import get_pushpull_speed

from . import _grouped
from ._graph import default_name, dense, in_turn, unique
from ._library import operations
from .compression import Compression, Compressor

if TYPE_CHECKING:
    from byteps._groups import Group
    from byteps._types import Coding

TensorLike = Union[tf.Tensor, tf.IndexedSlices, tf.Variable, Sequence, float]

__all__ = [
    "allreduce",
    "broadcast",
    "get_pushpull_speed",
    "grouped_allreduce",
    "init",
    "local_rank",
    "local_rank_op",
    "local_size",
    "local_size_op",
    "push_pull",
    "rank",
    "rank_op",
    "resume",
    "shutdown",
    "size",
    "size_op",
    "suspend",
]


def _attribute(name):
    """Return the attribute for the name of a tensor."""
    if name is None:
        return ""
    if not isinstance(name, str):
        raise TypeError(f"the name of a tensor must be a str, not {type(name).__name__}")
    if "\0" in name:
        raise ValueError(f"the name of a tensor cannot contain a NUL character: {name!r}")
    return full_name(name)


# ---- operations ------------------------------------------------------------------------------------------


def _bits(number):
    """Return a float as the integer of its bits, which an attribute can hold exactly."""
    return struct.unpack("q", struct.pack("d", number))[0]


def _reduce(tensor, name, op, priority, prescale, postscale, coding=None, learning_rate=None):
    with in_turn(name) as made:
        return made(
            operations.byteps_push_pull(
                tensor=tensor,
                learning_rate=[] if learning_rate is None else [tf.cast(learning_rate, tf.float64)],
                tensor_name=_attribute(name),
                op=int(op),
                waits=int(tf.executing_eagerly()),
                priority=priority,
                prescale_bits=_bits(prescale),
                postscale_bits=_bits(postscale),
                declares=int(coding is not None),
                coding=coding or "",
            )
        )


def _of_tensors(slices):
    """Return IndexedSlices of tensors, of what a user has made them of."""
    if slices.dense_shape is None:
        raise ValueError("push_pull: IndexedSlices need a dense_shape")
    return tf.IndexedSlices(*map(tf.convert_to_tensor, (slices.values, slices.indices, slices.dense_shape)))


def _reduce_rows(slices, name, op, priority, scales, compression):
    """Return IndexedSlices with the rows that those of any worker have."""
    check_reduction(op, coding_of(compression))
    if name is None:
        raise ValueError("push_pull: IndexedSlices need a name in eager mode, the same on all workers: give name=")
    small, context = compression.compress(slices.values)
    with in_turn(name) as made:
        indices, values = operations.byteps_push_pull_rows(
            indices=tf.cast(slices.indices, tf.int64),
            values=small,
            rows=tf.cast(slices.dense_shape[0], tf.int64),
            tensor_name=_attribute(name),
            op=int(op),
            waits=int(tf.executing_eagerly()),
            priority=priority,
            prescale_bits=_bits(scales[0]),
            postscale_bits=_bits(scales[1]),
        )
        made(values)
    indices.set_shape([None])
    values.set_shape(tf.TensorShape([None]).concatenate(small.shape[1:]))
    values = compression.decompress(values, context)
    return tf.IndexedSlices(values, tf.cast(indices, slices.indices.dtype), slices.dense_shape)


def _require_numbers(tensor):
    if tensor.dtype.name not in _bps.dtypes:
        raise TypeError(
            f"push_pull: a tensor of type {tensor.dtype.name} is not supported; supported are {', '.join(_bps.dtypes)}"
        )


def push_pull(
    tensor: TensorLike,
    scope: str = "",
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] | Coding = Compression.none,
    op: ReduceOp | None = None,
    enable_async: bool = False,
    *,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    learning_rate: float | None = None,
    group: Group | None = None,
) -> tf.Tensor | tf.IndexedSlices:
    """Return the reduction of a tensor over all workers, as a new tensor.

    Gradients see it for Average and Sum: the gradient is the same reduction of the workers' gradients.

    Args:
        tensor: a tensor, a variable or what becomes one, of any shape; shape and type must be the same on all
            workers. Of tf.IndexedSlices only the rows that they have are sent, and the result is IndexedSlices with
            the rows of all workers. These need a name in eager mode, are summed or averaged, their average is the
            sum divided by the number of workers, and they are not differentiated.
        scope: put in front of the name, if that is not given.
        average: True (the default): the mean; False: the sum. The average of integers is rounded down; their
            sums and products wrap.
        device_dense: the device to compute on, as for tf.device(); the result is there, too.
        device_sparse: accepted for compatibility; without effect.
        compression: Compression.none, .fp16 or .bf16; or how the network codes the tensor, as for declare():
            such as {"compressor": "onebit", "ef": "vanilla"}. It needs a name then in eager mode. The network codes no
            IndexedSlices.
        op: Average, Sum, Min, Max or Product, instead of `average`.
        enable_async: must be False; declare(name, mode="async") makes a tensor asynchronous.
        name: of the tensor, the same on all workers. None: in a graph it follows from the graph's names; in
            eager mode the n-th unnamed call meets the n-th of the others.
        priority: larger is more urgent.
        prescale_factor, postscale_factor: multiply each contribution and the result.
        learning_rate: of this step, a number or a tensor, if the network codes the tensor with error feedback: what
            was lost under another one is scaled by the ratio of both. None: it is not told.
        group: of the workers that take part, see new_group(); None: all workers. In a group operations have no name
            and no coding, and meet in the order of the program, eagerly and in tf.function; a graph of sessions has
            none. IndexedSlices come back with the rows of all members, each as often as it was sent.

    Raises:
        TypeError, ValueError: the arguments are wrong, or the tensor has a type that cannot be sent.
        tf.errors.InvalidArgumentError: the name is in flight already.
        tf.errors.FailedPreconditionError: this process is not in a job, or the workers disagree about shape, type or
            operation. All of them get it.
        tf.errors.InternalError, tf.errors.DeadlineExceededError: a member of the job was lost, or does not
            answer.
        byteps.Error: those of a group, eagerly; in a tf.function they are a tf.errors.OpError with the same text.
    """
    del device_sparse
    if enable_async:
        raise NotImplementedError('enable_async=True: leave it out; declare(name, mode="async") does that')
    op = choose_op(average, op)
    compression = choose_compressor(compression, Compression.none)
    with tf.device(device_dense) if device_dense else contextlib.nullcontext():
        is_rows = isinstance(tensor, tf.IndexedSlices)
        tensor = _of_tensors(tensor) if is_rows else dense(tensor, "push_pull")
        _require_numbers(tensor)
        scales = (prescale_factor, postscale_factor)
        if group is not None:
            refuse_name(name)
            return _grouped.push_pull([tensor], op, scales, compression, group, priority)[0]
        if name is None:
            name = default_name("BytePSPushPull", tensor, scope)
        if is_rows:
            return _reduce_rows(tensor, name, op, priority, scales, compression)
        small, context = compression.compress(tensor)
        coding = coding_of(compression)
        require_name(name, coding)
        result = _reduce(small, name, op, priority, *scales, coding, learning_rate)
        return compression.decompress(result, context)


def broadcast(
    tensor: TensorLike,
    root_rank: int,
    scope: str = "",
    name: str | None = None,
    is_variable: bool = True,
    *,
    priority: int = 0,
    group: Group | None = None,
) -> tf.Tensor:
    """Return the tensor of worker root_rank, bit by bit the same, on every worker.

    Its gradient is the sum of the workers' gradients on the root, and zeros on the others.

    Args:
        tensor: of the same shape and type on all workers; any type of fixed size. Its values count on the root
            only.
        root_rank: the worker that sends.
        scope, name, priority, group: as for push_pull(). In a group root_rank counts its members.
        is_variable: accepted for compatibility; without effect.

    Raises:
        As push_pull(); the root must be the same on all workers.
    """
    del is_variable
    if group is not None:
        refuse_name(name)
        return _grouped.broadcast([tensor], check_root(root_rank, party(group)), group, priority)[0]
    root = operator.index(root_rank)
    if root < 0:
        raise InvalidError(f"root_rank={root_rank} is not the rank of a worker; expected 0 or more")
    tensor = dense(tensor, "broadcast")
    if name is None:
        name = default_name("BytePSBroadcast", tensor, scope)
    if tensor.dtype.name in _bps.dtypes:
        return _send(tensor, root, name, priority)
    if tensor.dtype.size == 0 or tensor.dtype in (tf.string, tf.resource, tf.variant):
        raise TypeError(f"broadcast: a tensor of type {tensor.dtype.name} is not supported; expected numbers")
    return tf.bitcast(_send(tf.bitcast(tensor, tf.uint8), root, name, priority), tensor.dtype)


def _send(tensor, root, name, priority):
    with in_turn(name) as made:
        return made(
            operations.byteps_broadcast(
                tensor=tensor,
                tensor_name=_attribute(name),
                root_rank=root,
                priority=priority,
            )
        )


# ---- Horovod's names -------------------------------------------------------------------------------------


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
    process_set: object = None,
    ignore_name_scope: bool = False,
    group: Group | None = None,
) -> tf.Tensor | tf.IndexedSlices:
    """Horovod's name of push_pull()."""
    del ignore_name_scope
    refuse_process_set(process_set)
    return push_pull(
        tensor,
        "",
        average,
        device_dense,
        device_sparse,
        compression,
        op,
        name=name,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        group=group,
    )


def grouped_allreduce(
    tensors: Sequence[TensorLike],
    *args: Any,
    name: str | None = None,
    **keywords: Any,
) -> list[tf.Tensor | tf.IndexedSlices]:
    """Return the push_pull of each tensor of a list; in a graph all are in flight at once.

    The other arguments are those of allreduce(). In a group the tensors travel one after the other.
    """
    names = [None if name is None else f"{name}.{i}" for i in range(len(tensors))]
    return [allreduce(tensor, *args, name=one, **keywords) for tensor, one in zip(tensors, names)]


# ---- gradients -------------------------------------------------------------------------------------------


def _gradient_name(op, gradient, kind):
    """Return the name, without the job's prefix, for the gradient of an operation."""
    name = op.get_attr("tensor_name").decode()
    if name:
        name = name[len(full_name("")) :] + ".gradient"
        return name if tf.executing_eagerly() else unique(tf.compat.v1.get_default_graph(), name)
    return default_name(kind, gradient, "")


@tf.RegisterGradient("BytepsPushPull")
def _push_pull_gradient(op, gradient):
    """The gradient of a sum is the sum of the gradients."""
    reduction = ReduceOp(op.get_attr("op"))
    if reduction not in (Average, Sum):
        raise NotImplementedError(f"push_pull with op={reduction.name} has no gradient; use Average or Sum")
    gradient = tf.convert_to_tensor(gradient)
    name = _gradient_name(op, gradient, "BytePSPushPull")
    prescale, postscale = (_number(op.get_attr(f"{which}_bits")) for which in ("prescale", "postscale"))
    reduced = _reduce(gradient, name, reduction, op.get_attr("priority"), 1.0, postscale)
    reduced = reduced if prescale == 1 else reduced * tf.cast(prescale, reduced.dtype)
    return [reduced] + [None] * op.get_attr("rates")


def _number(bits):
    return struct.unpack("d", struct.pack("q", bits))[0]


@tf.RegisterGradient("BytepsBroadcast")
def _broadcast_gradient(op, gradient):
    """The gradient of the root's tensor is the sum of the gradients; that of the others is zero."""
    gradient = tf.convert_to_tensor(gradient)
    name = _gradient_name(op, gradient, "BytePSBroadcast")
    total = _reduce(gradient, name, Sum, op.get_attr("priority"), 1.0, 1.0)
    return tf.where(tf.equal(rank_op(), op.get_attr("root_rank")), total, tf.zeros_like(total))


for _question in ("BytepsRank", "BytepsSize", "BytepsLocalRank", "BytepsLocalSize"):
    tf.no_gradient(_question)


# ---- questions in a graph --------------------------------------------------------------------------------


def rank_op(name: str | None = None) -> tf.Tensor:
    """Return this worker's number as an int32 tensor, asked when the graph runs."""
    return operations.byteps_rank(name=name)


def size_op(name: str | None = None) -> tf.Tensor:
    """Return the number of workers as an int32 tensor, asked when the graph runs."""
    return operations.byteps_size(name=name)


def local_rank_op(name: str | None = None) -> tf.Tensor:
    """Return this worker's number among those on the same host as an int32 tensor."""
    return operations.byteps_local_rank(name=name)


def local_size_op(name: str | None = None) -> tf.Tensor:
    """Return the number of workers on this host as an int32 tensor."""
    return operations.byteps_local_size(name=name)
