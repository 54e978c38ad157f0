# SPDX-License-Identifier: Apache-2.0
"""push_pull and broadcast in process groups, of lists of tensors, eagerly and in tf.function, and their gradients.

Nothing has a name in a group. So these are functions of Python, as all_gather() is, which run in the order of the
program; those of one list are in flight at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from byteps import numpy as arrays
from byteps._basics import Average, Sum, wait_all
from byteps._coded_names import choose_compressor, refuse_coding
from byteps._groups import party
from byteps._native import bps as _bps

from ._graph import dense
from .collectives import all_gather, call
from .compression import Compression, Compressor

if TYPE_CHECKING:
    from typing import Iterable, Sequence

    from byteps._basics import ReduceOp
    from byteps._groups import Group
    from byteps._types import Coding

    from .ops import TensorLike


# ---- push_pull -------------------------------------------------------------------------------------------


def _sums(tensors, op, before, after, group, priority):
    """Return the reductions of tensors."""

    def reduce(*inputs):
        handles = [
            arrays.push_pull_async(np.asarray(array), None, None, priority - i, op, before, after, group=group)
            for i, array in enumerate(inputs)
        ]
        return [np.asarray(result) for result in wait_all(handles)]

    types, shapes = [tensor.dtype for tensor in tensors], [tensor.shape for tensor in tensors]
    return call(reduce, tensors, types, "push_pull in a process group", *shapes) if tensors else []


def _differentiable_sums(tensors, op, before, after, group, priority):
    @tf.custom_gradient
    def reduced(*given):
        def backward(*gradients):
            if op not in (Average, Sum):
                raise NotImplementedError(f"push_pull with op={op.name} has no gradient; use Average or Sum")
            gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
            results = _sums(gradients, op, 1.0, after, group, priority)
            return results if before == 1 else [result * tf.cast(before, result.dtype) for result in results]

        return _sums(given, op, before, after, group, priority), backward

    return list(reduced(*tensors)) if tensors else []


def _gather_rows(slices, op, scales, compression, group):
    """Return IndexedSlices with the rows of all; where some have the same index, their sum counts."""
    if op not in (Average, Sum):
        raise NotImplementedError(
            f"push_pull of IndexedSlices with op={op.name} in a process group; use Average or Sum"
        )
    factor = scales[0] * scales[1] / (group.size() if op == Average else 1)
    small, context = compression.compress(tf.convert_to_tensor(slices.values))
    values = compression.decompress(all_gather(small, group=group), context)
    indices = all_gather(slices.indices, group=group)
    values = values if factor == 1 else values * tf.cast(factor, values.dtype)
    return tf.IndexedSlices(values, indices, slices.dense_shape)


def push_pull(
    tensors: Iterable[TensorLike | tf.IndexedSlices],
    op: ReduceOp,
    scales: tuple[float, float],
    compression: type[Compressor] | Coding,
    group: Group,
    priority: int = 0,
) -> list[tf.Tensor | tf.IndexedSlices]:
    """Return the reductions of tensors over the workers of a group. Gradients see those that are dense.

    Args:
        tensors: in the same order on all workers. IndexedSlices become those with the rows of all workers, after the
            others.
        op, scales: the reduction, and the factors before and after it.
        compression: one of Compression; a coding is refused.
        group: this worker is a member.
        priority: of the first tensor; the others are less urgent.
    """
    compression = choose_compressor(compression, Compression.none)
    refuse_coding(compression)
    party(group)
    tensors = list(tensors)
    results = {i: one for i, one in enumerate(tensors) if isinstance(one, tf.IndexedSlices)}
    chosen = [i for i in range(len(tensors)) if i not in results]
    small = [compression.compress(dense(tensors[i], "push_pull")) for i in chosen]
    sums = _differentiable_sums([tensor for tensor, _ in small], op, *scales, group, priority)
    for i in results:
        results[i] = _gather_rows(results[i], op, scales, compression, group)
    for i, result, (_, context) in zip(chosen, sums, small):
        results[i] = compression.decompress(result, context)
    return [results[i] for i in range(len(tensors))]


# ---- broadcast -------------------------------------------------------------------------------------------


def _send(array, root, group, priority):
    """Start the broadcast of an array; return its handle, and what makes the result of that of the handle."""
    array = np.asarray(array)
    if array.dtype.name in _bps.dtypes:
        return arrays.broadcast_async(array, root, None, priority, group=group), np.asarray
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    handle = arrays.broadcast_async(data, root, None, priority, group=group)
    return handle, lambda result: np.asarray(result).view(array.dtype).reshape(array.shape)


def broadcast(tensors: Sequence[TensorLike], root: int, group: Group, priority: int = 0) -> list[tf.Tensor]:
    """Return the tensors of a member on every member. The gradient is the sum on the root, and zeros on the others.

    Args:
        tensors: of the same shapes and types on all members, in the same order.
        root: the rank in the group of the worker that sends.
        group: this worker is a member.
        priority: larger is more urgent.
    """
    is_root = party(group).rank() == root

    def send(*inputs):
        started = [_send(array, root, group, priority) for array in inputs]
        return [finish(handle.wait()) for handle, finish in started]

    @tf.custom_gradient
    def sent(*given):
        def backward(*gradients):
            gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
            totals = _sums(gradients, Sum, 1.0, 1.0, group, priority)
            return totals if is_root else [tf.zeros_like(total) for total in totals]

        types, shapes = [one.dtype for one in given], [one.shape for one in given]
        return call(send, given, types, "broadcast in a process group", *shapes), backward

    tensors = [dense(tensor, "broadcast") for tensor in tensors]
    for tensor in tensors:
        if tensor.dtype.size == 0 or tensor.dtype in (tf.string, tf.resource, tf.variant):
            raise TypeError(
                f"broadcast: a tensor of type {tensor.dtype.name} is not supported; expected numbers"
            )
    return list(sent(*tensors)) if tensors else []
