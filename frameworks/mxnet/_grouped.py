# SPDX-License-Identifier: Apache-2.0
"""push_pull and broadcast in process groups, of lists of arrays, and the gradients of a trainer.

Nothing has a name in a group, and MXNet's engine has an order of its own: so the results are there when these functions
return. The arrays of one list are in flight at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from byteps import numpy as arrays
from byteps._basics import Average, Max, wait_all
from byteps._groups import party

from ._devices import spread, sum_of
from ._rows import is_rows
from .collectives import like, read

if TYPE_CHECKING:
    from typing import Iterable, Sequence

    import mxnet as mx

    from byteps._basics import ReduceOp
    from byteps._groups import Group

    from .compression import NoneCompressor


def _in_place(kind, tensors, start):
    """Replace arrays by what operations on them return; start(array, i) returns the handle of one."""
    handles = [start(read(kind, _dense(tensor)), i) for i, tensor in enumerate(tensors)]
    for tensor, result in zip(tensors, wait_all(handles)):
        if result.size:
            new = like(tensor, result)
            (new.tostype("row_sparse") if is_rows(tensor) else new).copyto(tensor)
    return tensors


def _dense(tensor):
    return tensor.tostype("default") if is_rows(tensor) else tensor


def reduce(
    tensors: Sequence[mx.nd.NDArray], op: ReduceOp, scales: tuple[float, float], group: Group, priority: int = 0
) -> Sequence[mx.nd.NDArray]:
    """Reduce arrays over the members of a process group, in place, and return them.

    Args:
        tensors: in the same order on all members; the first ones are the most urgent. Row-sparse ones travel as dense
            ones.
        op, scales: the reduction, and the factors before and after it.
        group: this worker is a member.
        priority: of the first array.
    """
    party(group)

    def start(array, i):
        return arrays.push_pull_async(array, None, None, priority - i, op, *scales, group=group)

    return _in_place("push_pull", tensors, start)


def broadcast(tensors: Sequence[mx.nd.NDArray], root: int, group: Group, priority: int = 0) -> Sequence[mx.nd.NDArray]:
    """Replace arrays by those of the member with rank `root` in a process group, and return them."""
    party(group)

    def start(array, i):
        return arrays.broadcast_async(array, root, None, priority - i, group=group)

    return _in_place("broadcast", tensors, start)


def average_gradients(
    gradients: Iterable[Sequence[mx.nd.NDArray]],
    compression: type[NoneCompressor],
    scales: tuple[float, float],
    group: Group,
) -> None:
    """Average gradients, each given as its arrays on some devices, over devices' sums of the members, in place."""
    gradients = list(gradients)
    small = [compression.compress(sum_of([_dense(one) for one in each], each[0])) for each in gradients]
    reduce([tensor for tensor, _ in small], Average, scales, group)
    for each, (tensor, context) in zip(gradients, small):
        whole = compression.decompress(tensor, context)
        (whole.tostype("row_sparse") if is_rows(each[0]) else whole).copyto(each[0])
        spread(each)


def any_member(flags: Sequence[bool], group: Group) -> Sequence[bool]:
    """Return for each of some flags, as many on all members, whether it is True on one of them."""
    return arrays.push_pull(np.array(flags, np.uint8), op=Max, group=group) > 0 if flags else []
