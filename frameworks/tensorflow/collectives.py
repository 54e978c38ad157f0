# SPDX-License-Identifier: Apache-2.0
"""all_gather, reduce_scatter and all_to_all of tensors, in eager mode and in tf.function, and their gradients.

They are byteps.numpy's. In a graph TensorFlow calls these as functions of Python, one after the other: what has no name
meets by its order, which is that of the program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable, SupportsIndex, Union

import numpy as np
import tensorflow as tf

from byteps import numpy as arrays
from byteps._basics import Average, ReduceOp, Sum, choose_op
from byteps._groups import party

from ._failures import noted
from ._graph import dense, in_turn

if TYPE_CHECKING:
    from byteps._collectives import Sizes
    from byteps._groups import Group

    from .ops import TensorLike

Splits = Union[tf.Tensor, Iterable[SupportsIndex], None]

__all__ = ["all_gather", "all_to_all", "reduce_scatter"]

_ORDER = object()  # what in_turn() knows all of them by


def call(function, inputs, types, first, *shapes):
    """Return tensors of these types and shapes, made by a function of arrays.

    Args:
        function: of arrays; returns a list of arrays.
        inputs: the tensors that it is given.
        types, shapes: of the results.
        first: what a refusal begins with.
    """
    if tf.executing_eagerly():
        return [tf.convert_to_tensor(result, kind) for result, kind in zip(function(*_host(inputs)), types)]
    if not tf.compat.v1.executing_eagerly_outside_functions():
        raise NotImplementedError(
            f"{first}: in a graph of sessions its order is undefined, and workers match operations by their order; "
            "call it in eager mode or in a tf.function"
        )
    with in_turn(_ORDER) as made:
        results = tf.numpy_function(noted(function), inputs, types)
        made(results[0])
    for result, shape in zip(results, shapes):
        result.set_shape(shape)
    return results


def _host(inputs):
    """Return the arrays of tensors, and of gradients, which may be IndexedSlices."""
    return [tf.convert_to_tensor(tensor).numpy() for tensor in inputs]


def _rows_of(tensor):
    """Return the shape of some rows of a tensor."""
    return tf.TensorShape([None]).concatenate(tensor.shape[1:]) if tensor.shape.rank else tf.TensorShape(None)


def _array(value):
    """Return the array of what a function of byteps.numpy returns."""
    return np.asarray(value)


def all_gather(tensor: TensorLike, sizes: Sizes = None, *, priority: int = 0, group: Group | None = None) -> tf.Tensor:
    """Return the tensors of all workers one after the other along the first dimension, by rank.

    Like all functions of this file it has no name: the i-th call of a worker, push_pulls and broadcasts without a name
    in eager mode counted, meets the i-th of the others, so all workers call them in the same order. In a tf.function
    they run one after the other, in the order of the program. A graph of sessions has no such order.

    Args:
        tensor: all but the first dimension, and the type, must be the same on all workers. One without dimensions is
            a row.
        sizes: the first dimensions on all workers, or one number, if it is the same for all. None: the workers tell
            each other first. All workers give it, or none does.
        priority: larger is more urgent.
        group: of the workers that take part, see new_group(); None: all workers.

    The gradient of a worker's tensor is the sum of the workers' gradients of its rows.

    Raises:
        TypeError, ValueError: the arguments are wrong, or the tensor has a type that cannot be sent.
        MismatchError: the workers disagree. All of them get it.
        LostError, TimeoutError: a member of the job was lost, or does not answer.
        NotImplementedError: it is called in a graph of sessions.
        tf.errors.OpError: in a tf.function, any of the errors above that comes when it runs.
    """

    @tf.custom_gradient
    def gathered(given):
        def gather(array):
            return [_array(arrays.all_gather(array, sizes, priority=priority, group=group))]

        def backward(gradient):
            (own,) = call(scatter, [gradient, tf.shape(given)], [given.dtype], "all_gather", given.shape)
            return own

        def scatter(gradient, shape):
            rows = arrays.all_gather(np.array([shape[0] if len(shape) else 1]), 1, group=group)
            part = arrays.reduce_scatter(gradient, rows.tolist(), op=Sum, priority=priority, group=group)
            return [_array(part).reshape(shape)]

        (result,) = call(gather, [given], [given.dtype], "all_gather", _rows_of(given))
        return result, backward

    return gathered(dense(tensor, "all_gather"))


def reduce_scatter(
    tensor: TensorLike,
    sizes: Iterable[SupportsIndex] | None = None,
    *,
    average: bool | None = None,
    op: ReduceOp | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
) -> tf.Tensor:
    """Return this worker's rows of the reduction of a tensor over all workers.

    Args:
        tensor: of the same shape and type on all workers.
        sizes: how many rows each worker gets. None: all as many. It may be a function that is given the number of
            rows of the tensor, and returns that.
        average, op, prescale_factor, postscale_factor: as for push_pull().
        priority, group: as for all_gather().

    The gradient of a sum or an average is the all_gather of the workers' gradients, scaled as the reduction is; the
    other reductions have none.

    Raises:
        As all_gather().
    """
    op = choose_op(average, op)

    def shares(rows):
        return list(sizes(rows) if callable(sizes) else sizes) if sizes is not None else None

    @tf.custom_gradient
    def scattered(given):
        def scatter(array):
            rows = shares(array.shape[0]) if array.ndim else None
            scales = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
            return [_array(arrays.reduce_scatter(array, rows, op=op, priority=priority, group=group, **scales))]

        def gather(gradient, shape):
            rows = shares(shape[0]) or gradient.shape[0]
            factor = prescale_factor * postscale_factor / (party(group).size() if op == Average else 1)
            gradient = gradient if factor == 1 else (gradient * factor).astype(gradient.dtype)
            return [_array(arrays.all_gather(gradient, rows, priority=priority, group=group))]

        def backward(gradient):
            if op not in (Average, Sum):
                raise NotImplementedError(f"reduce_scatter with op={op.name} has no gradient; use Average or Sum")
            (whole,) = call(gather, [gradient, tf.shape(given)], [given.dtype], "reduce_scatter", given.shape)
            return whole

        (result,) = call(scatter, [given], [given.dtype], "reduce_scatter", _rows_of(given))
        return result, backward

    return scattered(dense(tensor, "reduce_scatter"))


def all_to_all(
    tensor: TensorLike, splits: Splits = None, *, priority: int = 0, group: Group | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Send a part of the tensor to each worker; return what all have sent to this one, by rank.

    Args:
        tensor: the parts lie one after the other along the first dimension.
        splits: how many rows each worker gets, a tensor of integers or a list; all workers give them, or none does.
            None: all parts of all workers are alike.
        priority, group: as for all_gather().

    Returns:
        (the parts one after the other, an int64 tensor that says how many rows have come from each worker). The
        gradient is exchanged the other way.

    Raises:
        As all_gather().
    """
    numbers = [] if splits is None else [tf.cast(tf.convert_to_tensor(splits), tf.int64)]

    def exchange(array, *counts):
        given = [count.tolist() for count in counts]
        output, received = arrays.all_to_all(array, *given, priority=priority, group=group)
        return [_array(output), _array(received)]

    @tf.custom_gradient
    def exchanged(given):
        def backward(gradient, _):
            inputs = [gradient, *([received] if numbers else [])]
            back, _ = call(exchange, inputs, [given.dtype, tf.int64], "all_to_all", given.shape, [None])
            return back

        shapes = _rows_of(given), [None]
        output, received = call(exchange, [given, *numbers], [given.dtype, tf.int64], "all_to_all", *shapes)
        return (output, received), backward

    output, received = exchanged(dense(tensor, "all_to_all"))
    return output, received
