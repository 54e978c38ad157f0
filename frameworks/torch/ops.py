# SPDX-License-Identifier: Apache-2.0
"""push_pull and broadcast of tensors, under the names of BytePS and of Horovod."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING

import torch

from byteps._basics import (
    Average,
    Handle,
    Sum,
    choose_op,
    declare,
    full_name,
    init,
    local_rank,
    local_size,
    poll,
    rank,
    resume,
    run_push_pull,
    shutdown,
    size,
    start,
    suspend,
    synchronize,
    wait_all,
)
from byteps._groups import check_root, number_of, party
from byteps._native import bps as _bps

from . import _memory, _rows
from .compression import Compression, choose

if TYPE_CHECKING:
    from typing import Callable, Iterable, Sequence

    from byteps._basics import ReduceOp
    from byteps._groups import Group

    from .compression import Cast, Choice

    _GroupBase = Handle[list[torch.Tensor]]  # synchronize() and poll() take both
else:
    _GroupBase = object

__all__ = [
    "BytePSPushPull",
    "GroupHandle",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "byteps_torch_set_num_grads",
    "declare",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "init",
    "local_rank",
    "local_size",
    "poll",
    "push_pull",
    "push_pull_async",
    "push_pull_async_inplace",
    "push_pull_group_sync_inplace",
    "push_pull_inplace",
    "rank",
    "resume",
    "shutdown",
    "size",
    "sparse_allreduce_async",
    "suspend",
    "synchronize",
    "wait_all",
]

# In a function that torch.compile() compiles; False where PyTorch does not say so.
is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)

# ---- gradients -------------------------------------------------------------------------------------------


class _Operation(torch.autograd.Function):
    """What autograd has to know of an operation whose results are computed outside of it."""

    @staticmethod
    def forward(ctx, reverse, results, *tensors):
        """Return the results as functions of the tensors; None: these are changed in place."""
        ctx.reverse = reverse
        if results is None:
            ctx.mark_dirty(*tensors)
            return tensors
        return tuple(results)

    @staticmethod
    def backward(ctx, *gradients):
        """Return the gradients of the tensors."""
        return (None, None, *ctx.reverse(gradients))


def _record(reverse, tensors, results=None):
    """Let autograd know that results come from tensors, or that these are changed in place.

    Gradients of the results are given to reverse(), which returns those of the tensors. It runs on all
    workers, so that tensors have to require gradients on all of them or on none.
    """
    if not torch.is_grad_enabled():
        return
    in_place = results is None
    seen = [i for i, t in enumerate(tensors) if t.requires_grad and not (in_place and t.is_leaf)]
    if seen:
        chosen = None if in_place else [results[i] for i in seen]
        _Operation.apply(reverse, chosen, *(tensors[i] for i in seen))


def gradient_name(name):
    """Return the name for the gradient of a tensor."""
    return None if name is None else f"{name}.gradient"


def _reverse_push_pull(name, priority, compression, op, prescale, postscale, group, gradients):
    """The gradient of a sum is the sum of the gradients."""
    if op not in (Average, Sum):
        raise NotImplementedError(f"push_pull with op={op.name} has no gradient; use Average or Sum")
    reduced = _push_pull_all(gradients, gradient_name(name), priority, compression, op, 1.0, postscale, group)
    return [gradient if prescale == 1 else gradient * prescale for gradient in reduced]


def _reverse_broadcast(root, name, priority, group, gradients):
    """The gradient of the root's tensor is the sum of the gradients; that of the others is zero.

    The zeros stem from the sum, so that a second backward pass has the same operations on all workers.
    """
    (gradient,) = gradients
    total = push_pull(gradient, False, gradient_name(name), priority=priority, group=group)
    return [total if party(group).rank() == root else total.masked_fill(torch.ones_like(total, dtype=torch.bool), 0)]


def _declare_coded(names: Sequence[str | None], compression: Choice) -> Cast:
    """Declare tensors as coded so, unless it is one of Compression; return the one of these that they have then."""
    cast, coding = choose(compression)
    if coding is None:
        return cast
    if None in names:
        raise ValueError(
            f"compression={compression!r} says how a tensor is coded on the network, which needs a name: give name=, "
            "or one of Compression"
        )
    if is_compiling():
        raise ValueError("declare a tensor with its compression outside of the function for torch.compile()")
    _bps.declare([full_name(name) for name in names], coding)
    return cast


# ---- operations ------------------------------------------------------------------------------------------


def _into_new(tensor):
    """Return source and target for the extension, and the new tensor that receives the result.

    If the tensor has to be copied, the result comes into the copy: the target is None.
    """
    _memory.check(tensor)
    if not _memory.is_plain(tensor):
        copy = _memory.plain_copy(tensor)
        return _memory.memory(copy), None, copy
    result = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    return _memory.memory(tensor), _memory.memory(result), result


def _handle(native, tensor, result):
    """Return the Handle of an operation whose result comes into a new tensor."""
    storage, stream = tensor.untyped_storage(), _memory.stream_of(result)
    address = storage.data_ptr()

    def finish(output):
        _memory.follow(stream)
        _memory.require_place(storage, address, "the tensor")
        return output

    return Handle(native, result, finish)


def _in_place(tensor, reverse):
    """Return what the extension takes, and a function that then brings the result into the tensor."""
    _memory.check(tensor)
    _record(reverse, [tensor])
    work = tensor if _memory.is_plain(tensor) else _memory.plain_copy(tensor)
    stream, address = _memory.stream_of(work), work.data_ptr()

    def finish(output):
        _memory.follow(stream)
        _memory.require_place(work, address, "the tensor")
        if work is tensor:
            _memory.changed(tensor)
        else:
            tensor.detach().copy_(work)
        return output

    return _memory.memory(work), finish


def _require_all(group):
    if group is not None:
        raise ValueError("sparse tensors are summed over all workers only, not in a process group")


def _push_pull_rows(tensor, name, priority, op, scales, compression=Compression.none):
    if name is None:
        raise ValueError("a sparse tensor needs a name, the same on all workers")
    _rows.check(tensor, "the tensor")
    journey = _rows.Journey(tensor, full_name(name), op, priority, scales, compression)
    return Handle(journey.native, tensor, lambda _: journey.land())


def sparse_allreduce_async(tensor: torch.Tensor, name: str, op: ReduceOp | None = None) -> Callable[[], torch.Tensor]:
    """Start a push_pull of a sparse tensor; what is returned waits for it and returns the result. As Horovod's."""
    return push_pull_async(tensor, name=name, op=op).wait


def push_pull_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    version: int = 0,
    priority: int = 0,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    learning_rate: float = 0.0,
    group: Group | None = None,
) -> Handle[torch.Tensor]:
    """Start a push_pull into a new tensor and return its Handle at once. Arguments as for push_pull().

    Autograd does not see it.
    """
    del version
    op = choose_op(average, op)
    if _rows.is_sparse(tensor):
        _require_all(group)
        return _push_pull_rows(tensor, name, priority, op, (prescale_factor, postscale_factor))
    source, target, result = _into_new(tensor)
    native = start(
        _bps.push_pull,
        source,
        target,
        full_name(name),
        op,
        priority,
        prescale_factor,
        postscale_factor,
        learning_rate,
        number_of(group),
    )
    return _handle(native, tensor, result)


def push_pull_async_inplace(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    version: int = 0,
    priority: int = 0,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    learning_rate: float = 0.0,
    group: Group | None = None,
) -> Handle[torch.Tensor]:
    """Start a push_pull in place and return its Handle at once. Arguments as for push_pull().

    The tensor's memory belongs to the library until synchronize(handle) has returned: do not read, write or
    resize it. If the tensor is given other memory meanwhile, synchronize() raises a RuntimeError; resize_() of its
    storage waits for the operation first. A tensor that is not contiguous is changed when synchronize() is called.
    Autograd sees it as push_pull_inplace().
    """
    del version
    op = choose_op(average, op)
    memory, finish = _in_place(
        tensor,
        functools.partial(
            _reverse_push_pull, name, priority, Compression.none, op, prescale_factor, postscale_factor, group
        ),
    )
    native = start(
        _bps.push_pull,
        memory,
        None,
        full_name(name),
        op,
        priority,
        prescale_factor,
        postscale_factor,
        learning_rate,
        number_of(group),
    )
    return Handle(native, tensor, finish)


def push_pull(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    version: int = 0,
    priority: int = 0,
    compression: Choice = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    learning_rate: float = 0.0,
    group: Group | None = None,
) -> torch.Tensor:
    """Return the reduction of a tensor over all workers, as a new tensor. The argument is not changed.

    It is differentiable for Average and Sum: the gradient is the push_pull of the workers' gradients, so that
    all workers run backward(). For the other operations, that raises a NotImplementedError.

    Args:
        tensor: a dense tensor of any shape, contiguous or not, on the CPU or a CUDA device (worker.use =
            "cuda"). Shape and type must be the same on all workers, the device need not.
        average: True (the default): the mean; False: the sum. The average of integers is rounded down,
            and right even where their sum would not fit; a sum or product that does not fit wraps.
        name: of the tensor, the same on all workers. None: the n-th unnamed call meets the n-th of the
            others, of which only the number of elements is compared. Another shape or type than the last
            time under a name takes a moment longer.
        version: accepted for compatibility; without effect.
        priority: larger is more urgent.
        compression: Compression.none, .fp16 or .bf16. Anything else declares the tensor, which needs a name then,
            with this compression.
        op: Average, Sum, Min, Max or Product, instead of `average`.
        prescale_factor, postscale_factor: multiply each contribution and the result. Scaled integers are
            computed in float64 and truncated towards zero; bool cannot be scaled.
        learning_rate: of this step, if the tensor is coded on the network with error feedback: what was lost
            under another one is scaled by the ratio of both.
        group: of the workers that take part, see new_group(); its operations have no name. None: all workers.

    Of a sparse tensor (COO, its first dimension) only the rows that it has are sent, and the result is one that has the
    rows of all workers. It needs a name, and autograd does not see it.

    Raises:
        TypeError, ValueError: the tensor cannot be sent (type, device, layout).
        BusyError: this name is in flight already.
        MismatchError: the workers disagree about shape, type or operation. All of them get it.
        LostError, TimeoutError: a member of the job was lost, or does not answer.
    """
    del version
    op = choose_op(average, op)
    compression = _declare_coded([name], compression)
    if is_compiling():
        _compiled.require_all(group)
        small, context = compression.compress(tensor)
        result = _compiled.push_pull(small, name, op, priority, prescale_factor, postscale_factor, learning_rate)
        return compression.decompress(result, context)
    if _rows.is_sparse(tensor):
        _require_all(group)
        return _push_pull_rows(tensor, name, priority, op, (prescale_factor, postscale_factor), compression).wait()
    _memory.check(tensor)
    small, context = compression.compress(tensor.detach())
    source, target, result = _into_new(small)
    run_push_pull(
        source,
        target,
        full_name(name),
        op,
        priority,
        prescale_factor,
        postscale_factor,
        learning_rate,
        number_of(group),
    )
    result = compression.decompress(result, context)
    reverse = functools.partial(
        _reverse_push_pull, name, priority, compression, op, prescale_factor, postscale_factor, group
    )
    _record(reverse, [tensor], [result])
    return result


class BytePSPushPull:
    """The original's autograd function, for its apply(): push_pull() with arguments by position."""

    apply = staticmethod(push_pull)


def push_pull_inplace(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    version: int = 0,
    priority: int = 0,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    learning_rate: float = 0.0,
    group: Group | None = None,
) -> torch.Tensor:
    """Reduce a tensor over all workers in place and return it. Arguments and errors as for push_pull().

    For autograd it is like PyTorch's operations in place, but for a leaf that requires a gradient, such as a
    parameter: that is changed as under torch.no_grad().
    """
    del version
    op = choose_op(average, op)
    if is_compiling():
        _compiled.require_all(group)
        return tensor.copy_(
            _compiled.push_pull(tensor, name, op, priority, prescale_factor, postscale_factor, learning_rate)
        )
    memory, finish = _in_place(
        tensor,
        functools.partial(
            _reverse_push_pull, name, priority, Compression.none, op, prescale_factor, postscale_factor, group
        ),
    )
    run_push_pull(
        memory, None, full_name(name), op, priority, prescale_factor, postscale_factor, learning_rate, number_of(group)
    )
    return finish(tensor)


_group_size = 0  # gradients of a group
_group_count = 0  # those of the current group that have been started
_group_lock = threading.Lock()  # autograd runs hooks on several threads


def byteps_torch_set_num_grads(num_grads: int) -> None:
    """Set after how many tensors push_pull_group_sync_inplace() starts counting again."""
    global _group_size, _group_count
    if not isinstance(num_grads, int) or num_grads < 1:
        raise ValueError(f"num_grads={num_grads!r} must be an integer of at least 1")
    with _group_lock:
        _group_size, _group_count = num_grads, 0


def push_pull_group_sync_inplace(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    version: int = 0,
    priority: int = 0,
    learning_rate: float = 0.0,
) -> tuple[Handle[torch.Tensor], int]:
    """Start a push_pull in place; return its Handle and how many tensors of its group have been started.

    The last tensor of a group has the count that byteps_torch_set_num_grads() was given; without that, all
    tensors are one group. Arguments as for push_pull().
    """
    global _group_count
    handle = push_pull_async_inplace(tensor, average, name, version, priority, learning_rate=learning_rate)
    with _group_lock:
        _group_count = count = _group_count + 1
        if count == _group_size:
            _group_count = 0
    return handle, count


def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, priority: int = 0, group: Group | None = None
) -> Handle[torch.Tensor]:
    """Start a broadcast into a new tensor and return its Handle at once. Arguments as for broadcast().

    Autograd does not see it.
    """
    root = check_root(root_rank, party(group))
    source, target, result = _into_new(tensor)
    return _handle(
        start(_bps.broadcast, source, target, full_name(name), root, priority, number_of(group)), tensor, result
    )


def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, priority: int = 0, group: Group | None = None
) -> Handle[torch.Tensor]:
    """Start a broadcast in place and return its Handle at once. Arguments as for broadcast_()."""
    root = check_root(root_rank, party(group))
    memory, finish = _in_place(tensor, functools.partial(_reverse_broadcast, root, name, priority, group))
    return Handle(
        start(_bps.broadcast, memory, None, full_name(name), root, priority, number_of(group)), tensor, finish
    )


def broadcast(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, priority: int = 0, group: Group | None = None
) -> torch.Tensor:
    """Return the tensor of worker root_rank, bit by bit the same, as a new tensor on every worker.

    It is differentiable: the gradient is the sum of the workers' gradients on the root, and zeros on the
    others, so that all workers run backward().

    Args:
        tensor: of the same shape and type on all workers; its values count on the root only.
        root_rank: the worker that sends.
        name, priority, group: as for push_pull(). In a group root_rank counts its members.
    """
    if is_compiling():
        _compiled.require_all(group)
        return _compiled.broadcast(tensor, root_rank, name, priority)
    result = broadcast_async(tensor, root_rank, name, priority, group).wait()
    _record(functools.partial(_reverse_broadcast, root_rank, name, priority, group), [tensor], [result])
    return result


def broadcast_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, priority: int = 0, group: Group | None = None
) -> torch.Tensor:
    """Replace the tensor by that of worker root_rank, in place, and return it. Arguments as for broadcast().

    For autograd it is like PyTorch's operations in place, but for a leaf that requires a gradient, such as a
    parameter: that is changed as under torch.no_grad().
    """
    if is_compiling():
        _compiled.require_all(group)
        return tensor.copy_(_compiled.broadcast(tensor, root_rank, name, priority))
    return broadcast_async_(tensor, root_rank, name, priority, group).wait()


# ---- Horovod's names -------------------------------------------------------------------------------------


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: Choice = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
) -> torch.Tensor:
    """Horovod's name of push_pull()."""
    return push_pull(
        tensor,
        average,
        name,
        compression=compression,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        group=group,
    )


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
) -> torch.Tensor:
    """Horovod's name of push_pull_inplace()."""
    return allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, group).wait()


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
) -> Handle[torch.Tensor]:
    """Horovod's name of push_pull_async()."""
    return push_pull_async(
        tensor, average, name, op=op, prescale_factor=prescale_factor, postscale_factor=postscale_factor, group=group
    )


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
) -> Handle[torch.Tensor]:
    """Horovod's name of push_pull_async_inplace()."""
    return push_pull_async_inplace(
        tensor, average, name, op=op, prescale_factor=prescale_factor, postscale_factor=postscale_factor, group=group
    )


class GroupHandle(_GroupBase):
    """The operations of a group in flight. synchronize() returns the list of their results."""

    def __init__(self, handles: Sequence[Handle[torch.Tensor]]) -> None:
        """Make one handle of several."""
        self._handles = handles

    def poll(self) -> bool:
        """Return whether all operations have ended."""
        return all([handle.poll() for handle in self._handles])

    def wait(self) -> list[torch.Tensor]:
        """Sleep until all operations have ended and return their results; raise the first failure."""
        return wait_all(self._handles)


def _names(name, count):
    return [None if name is None else f"{name}.{i}" for i in range(count)]


def _group(start, tensors, name, arguments):
    tensors = list(tensors)
    names = _names(name, len(tensors))
    return GroupHandle([start(tensor, name=one, **arguments) for tensor, one in zip(tensors, names)])


def grouped_allreduce_async(
    tensors: Iterable[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
) -> GroupHandle:
    """Start a push_pull of each tensor into a new one and return one handle for all.

    Autograd does not see it.
    """
    return _group(
        push_pull_async,
        tensors,
        name,
        dict(
            average=average,
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            group=group,
        ),
    )


def grouped_allreduce_async_(
    tensors: Iterable[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
) -> GroupHandle:
    """Start a push_pull of each tensor in place and return one handle for all."""
    return _group(
        push_pull_async_inplace,
        tensors,
        name,
        dict(
            average=average,
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            group=group,
        ),
    )


def grouped_allreduce(
    tensors: Iterable[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: Choice = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
) -> list[torch.Tensor]:
    """Return the push_pull of each tensor of a list; all are in flight at once. Autograd sees it."""
    op = choose_op(average, op)
    return _push_pull_all(tensors, name, 0, compression, op, prescale_factor, postscale_factor, group)


def _push_pull_all(tensors, name, priority, compression, op, prescale, postscale, group=None):
    tensors = list(tensors)
    for tensor in tensors:
        _memory.check(tensor)
    compression = _declare_coded(_names(name, len(tensors)), compression)
    small = [compression.compress(tensor.detach()) for tensor in tensors]
    arguments = dict(priority=priority, op=op, prescale_factor=prescale, postscale_factor=postscale, group=group)
    arrived = _group(push_pull_async, [tensor for tensor, _ in small], name, arguments).wait()
    results = [compression.decompress(result, context) for result, (_, context) in zip(arrived, small)]
    _record(
        functools.partial(_reverse_push_pull, name, priority, compression, op, prescale, postscale, group),
        tensors,
        results,
    )
    return results


def grouped_allreduce_(
    tensors: Iterable[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
) -> list[torch.Tensor]:
    """Reduce each tensor of a list in place and return them; all are in flight at once."""
    return grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor, group).wait()


from . import _compiled  # noqa: E402  (its operators are the functions above)
