# SPDX-License-Identifier: Apache-2.0
"""all_gather, reduce_scatter and all_to_all of arrays.

They are byteps.numpy's, and are over when they return: what has no name meets by the order of calls, and MXNet's engine
has an order of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mxnet as mx

from byteps import numpy as arrays
from byteps._basics import choose_op

if TYPE_CHECKING:
    from typing import Iterable, SupportsIndex

    import numpy as np

    from byteps._basics import ReduceOp
    from byteps._collectives import Sizes
    from byteps._groups import Group

__all__ = ["all_gather", "all_to_all", "reduce_scatter"]


def read(kind, tensor):
    """Return the ndarray of an array, when what comes before has ended."""
    if not isinstance(tensor, mx.nd.NDArray) or tensor.stype != "default":
        raise TypeError(f"{kind}: expected a dense mxnet.nd.NDArray or mxnet.np.ndarray, not {type(tensor).__name__}")
    return tensor.asnumpy()


def like(tensor, result):
    """Return an array of the kind, and at the place, of another one."""
    make = mx.np.array if isinstance(tensor, mx.np.ndarray) else mx.nd.array
    return make(result, ctx=tensor.context, dtype=result.dtype)


def all_gather(
    tensor: mx.nd.NDArray, sizes: Sizes = None, *, priority: int = 0, group: Group | None = None
) -> mx.nd.NDArray:
    """Return the arrays of all workers one after the other along the first dimension, by rank.

    Like all functions of this file it has no name, waits for the result, and is not seen by autograd. The i-th call of
    a worker, push_pulls and broadcasts without a name counted, meets the i-th of the others: all workers call them in
    the same order.

    Args:
        tensor: all but the first dimension, and the type, must be the same on all workers.
        sizes: the first dimensions on all workers, or one number, if it is the same for all. None: the workers tell
            each other first. All workers give it, or none does.
        priority: larger is more urgent.
        group: of the workers that take part, see new_group(); None: all workers.

    Raises:
        TypeError, ValueError: the arguments are wrong, or the array cannot be sent.
        MismatchError: the workers disagree. All of them get it.
        LostError, TimeoutError: a member of the job was lost, or does not answer.
    """
    return like(tensor, arrays.all_gather(read("all_gather", tensor), sizes, priority=priority, group=group))


def reduce_scatter(
    tensor: mx.nd.NDArray,
    sizes: Iterable[SupportsIndex] | None = None,
    *,
    average: bool | None = None,
    op: ReduceOp | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
) -> mx.nd.NDArray:
    """Return this worker's rows of the reduction of an array over all workers.

    Args:
        tensor: of the same shape and type on all workers.
        sizes: how many rows each worker gets. None: all as many.
        average, op, prescale_factor, postscale_factor: as for push_pull().
        priority, group: as for all_gather().

    Raises:
        As all_gather().
    """
    how = {"op": choose_op(average, op), "prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
    array = read("reduce_scatter", tensor)
    return like(tensor, arrays.reduce_scatter(array, sizes, priority=priority, group=group, **how))


def all_to_all(
    tensor: mx.nd.NDArray,
    splits: Iterable[SupportsIndex] | None = None,
    *,
    priority: int = 0,
    group: Group | None = None,
) -> tuple[mx.nd.NDArray, np.ndarray]:
    """Send a part of the array to each worker; return what all have sent to this one, by rank.

    Args:
        tensor: the parts lie one after the other along the first dimension.
        splits: how many rows each worker gets; all workers give them, or none does. None: all parts of all workers are
            alike.
        priority, group: as for all_gather().

    Returns:
        (the parts one after the other, an array of NumPy that says how many rows have come from each worker).

    Raises:
        As all_gather().
    """
    output, received = arrays.all_to_all(read("all_to_all", tensor), splits, priority=priority, group=group)
    return like(tensor, output), received
