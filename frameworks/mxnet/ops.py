# SPDX-License-Identifier: Apache-2.0
"""push_pull and broadcast of arrays, as operations of MXNet's engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

import mxnet as mx

from byteps._basics import ReduceOp, choose_op, declare, full_name
from byteps._groups import check_root, party, refuse_name
from byteps._horovod import refuse_process_set

from . import _grouped, _library
from ._rows import Journey, is_rows

if TYPE_CHECKING:
    from byteps._groups import Group

__all__ = [
    "allreduce",
    "allreduce_",
    "broadcast",
    "broadcast_",
    "broadcast_inplace",
    "byteps_declare_tensor",
    "byteps_push_pull",
    "grouped_allreduce",
    "grouped_allreduce_",
    "push_pull",
    "push_pull_inplace",
]

_push, pending = _library.load()
_names = {}  # of tensors: as they are in the job
_HAS_GPU = mx.context.num_gpus() > 0


def _name_in_job(name):
    known = _names.get(name)
    if known is None:
        if not isinstance(name, str) or "\0" in name:
            raise TypeError(f"the name of a tensor must be a str without NUL, not {name!r}")
        known = _names[name] = full_name(name).encode()
    return known


def _enqueue(tensor, name, root, op, priority, prescale, postscale, rate=0.0):
    """Give an operation to the engine, which runs it in place when what comes before has ended.

    Without a name it has ended when this returns: those of all workers meet by the order of their calls, and the
    engine has an order of its own.
    """
    if not isinstance(tensor, mx.nd.NDArray):
        raise TypeError(f"expected an mxnet.nd.NDArray or an mxnet.np.ndarray, not {type(tensor).__name__}")
    host = tensor if not _HAS_GPU else tensor.as_in_context(mx.cpu())
    problem = _push(host.handle, _name_in_job(name or "unnamed"), root, op, priority, prescale, postscale, rate)
    if problem is not None:
        raise TypeError(f"{name or 'unnamed'}: {problem.decode()}")
    if host is not tensor:
        host.copyto(tensor)
    if name is None:
        tensor.wait_to_read()
    return tensor


# ---- the operations --------------------------------------------------------------------------------------


def push_pull_inplace(
    tensor: mx.nd.NDArray,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    learning_rate: float = 0.0,
    group: Group | None = None,
) -> mx.nd.NDArray:
    """Reduce an array over all workers in place and return it. Arguments and errors as for push_pull()."""
    op, scales = choose_op(average, op), (prescale_factor, postscale_factor)
    if group is not None:
        refuse_name(name)
        return _grouped.reduce([tensor], op, scales, group, priority)[0]
    if is_rows(tensor):
        if name is None:
            raise ValueError("a row-sparse array needs a name, the same on all workers")
        Journey([tensor], [tensor], name, op, priority, scales).wait_to_read()
        return tensor
    return _enqueue(tensor, name, -1, op, priority, *scales, learning_rate)


def push_pull(
    tensor: mx.nd.NDArray,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    learning_rate: float = 0.0,
    group: Group | None = None,
) -> mx.nd.NDArray:
    """Return the reduction of an array over all workers, as a new array.

    With a name it returns at once, as all operations of MXNet do; any number of them is in flight at once.

    Args:
        tensor: an mxnet.nd.NDArray or an mxnet.np.ndarray; shape and type must be the same on all workers. Of a
            row-sparse one only the rows that it has are sent, and the result has the rows of all workers. It needs a
            name, is summed or averaged, and the result is there when this returns, or an error of byteps raised.
        average: True (the default): the mean; False: the sum. The average of integers is rounded down; their
            sums and products wrap.
        name: of the tensor, the same on all workers; arrays in flight at once need different ones. None: the n-th
            call meets the n-th of the others, and the result is there when it returns.
        priority: larger is more urgent.
        op: Average, Sum, Min, Max or Product, instead of `average`.
        prescale_factor, postscale_factor: multiply each contribution and the result.
        learning_rate: of this step, if the tensor is coded on the network with error feedback: what was lost under
            another one is scaled by the ratio of both.
        group: of the workers that take part, see new_group(); None: all workers. In a group operations have no name
            and meet in the order of the calls, and the result is there when this returns, or an error of byteps
            raised. Row-sparse arrays travel as dense ones.

    Raises:
        TypeError, ValueError: the arguments are wrong, or the array cannot be sent.
        mxnet.base.MXNetError: where the result is used: there is no job, the name is in flight already, the
            workers disagree about shape, type or operation, or a member of the job was lost. All workers that
            took part get it.
    """
    return push_pull_inplace(
        tensor.copy(), average, name, priority, op, prescale_factor, postscale_factor, learning_rate, group
    )


def broadcast_inplace(
    tensor: mx.nd.NDArray,
    root_rank: int = 0,
    name: str | None = None,
    priority: int = 0,
    group: Group | None = None,
) -> mx.nd.NDArray:
    """Replace an array by that of worker root_rank, bit by bit the same, and return it.

    Args:
        tensor: of the same shape and type on all workers; its values count on the root only.
        root_rank: the worker that sends.
        name, priority, group: as for push_pull(). In a group root_rank counts its members.
    """
    root = check_root(root_rank, party(group))
    if group is not None:
        refuse_name(name)
        return _grouped.broadcast([tensor], root, group, priority)[0]
    return _enqueue(tensor, name, root, 0, priority, 1.0, 1.0)


def broadcast(
    tensor: mx.nd.NDArray,
    root_rank: int = 0,
    name: str | None = None,
    priority: int = 0,
    group: Group | None = None,
) -> mx.nd.NDArray:
    """Return the array of worker root_rank, as a new array. Arguments as for broadcast_inplace()."""
    return broadcast_inplace(tensor.copy(), root_rank, name, priority, group)


# ---- the original's names --------------------------------------------------------------------------------


def byteps_push_pull(
    tensor: mx.nd.NDArray,
    version: int = 0,
    priority: int = 0,
    name: str | None = None,
    is_average: bool = True,
) -> None:
    """Reduce an array over all workers in place; `version` is without effect."""
    del version
    push_pull_inplace(tensor, is_average, name, priority)


def byteps_declare_tensor(name: str, **kwargs: Any) -> None:
    """Announce a tensor before its first push_pull; not needed.

    Args:
        name: of the tensor.
        kwargs: how it is coded on the network, with the original's prefix: ``byteps_compressor_type`` and so on.
    """
    declare(name, kwargs or None)


# ---- Horovod's names -------------------------------------------------------------------------------------


def allreduce_(
    tensor: mx.nd.NDArray,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: object = None,
    op: ReduceOp | None = None,
    group: Group | None = None,
) -> mx.nd.NDArray:
    """Horovod's name of push_pull_inplace()."""
    refuse_process_set(process_set)
    return push_pull_inplace(tensor, average, name, priority, op, prescale_factor, postscale_factor, group=group)


def allreduce(tensor: mx.nd.NDArray, *args: Any, **keywords: Any) -> mx.nd.NDArray:
    """Horovod's name of push_pull()."""
    return allreduce_(tensor.copy(), *args, **keywords)


def grouped_allreduce_(
    tensors: Sequence[mx.nd.NDArray],
    average: bool | None = None,
    name: str | None = None,
    *args: Any,
    group: Group | None = None,
    **keywords: Any,
) -> list[mx.nd.NDArray]:
    """Reduce each array of a list in place; all are in flight at once, in a group one after the other.

    The other arguments as for allreduce_().
    """
    if group is None:
        name = "grouped" if name is None else name
    names = [None if name is None else f"{name}.{i}" for i in range(len(tensors))]
    keywords["group"] = group
    return [allreduce_(tensor, average, one, *args, **keywords) for tensor, one in zip(tensors, names)]


def grouped_allreduce(tensors: Sequence[mx.nd.NDArray], *args: Any, **keywords: Any) -> list[mx.nd.NDArray]:
    """Return the reduction of each array of a list. The arguments as for grouped_allreduce_()."""
    return grouped_allreduce_([tensor.copy() for tensor in tensors], *args, **keywords)


def broadcast_(
    tensor: mx.nd.NDArray,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: object = None,
    group: Group | None = None,
) -> mx.nd.NDArray:
    """Horovod's name of broadcast_inplace()."""
    refuse_process_set(process_set)
    return broadcast_inplace(tensor, root_rank, name, priority, group)
