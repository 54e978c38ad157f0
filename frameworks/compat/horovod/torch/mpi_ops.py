# SPDX-License-Identifier: Apache-2.0
"""Horovod's operations on tensors, made of those of byteps.torch.

allreduce and broadcast meet by their names, each in names of its own; without a name, and all others, by the order in
which they are called, which is the same on all workers. Those in a process set have no names: they meet in the order in
which its workers call them, and ranks in results and splits are those in the set. A root is given by its rank in the
job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from byteps import torch as bps
from byteps._basics import Average, Sum, poll, rank, size, synchronize, wait_all
from byteps._groups import party
from byteps.torch.compression import Compression
from byteps.torch.ops import GroupHandle, gradient_name, is_compiling

from .._arguments import choose, named, root_of, shares
from ..process_sets import global_process_set, group_of
from ._joining import announce, announce_allreduces, join

if TYPE_CHECKING:
    from typing import Callable, Iterable, Sequence, Union

    from byteps._basics import Handle, ReduceOp
    from byteps.torch.compression import Cast, Choice

    from ..process_sets import ProcessSet

    Splits = Union[torch.Tensor, Sequence[int], None]
    _HandleBase = Handle[tuple[torch.Tensor, torch.Tensor]]  # synchronize() and poll() take both
else:
    _HandleBase = object

__all__ = [
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "join",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "size",
    "sparse_allreduce_async",
    "synchronize",
]


# ---- allreduce -------------------------------------------------------------------------------------------


def _prepare(tensor, average, op, name, scales, process_set, compression=Compression.none):
    """Tell workers that have joined of an allreduce, or of those of a list; return (op, name, process group) of it."""
    group = group_of(process_set)
    op, name = choose(average, op), named("allreduce", name, group)
    if group is None:
        tensors = tensor if isinstance(tensor, list) else [tensor]
        names = _numbered(name, tensors) if tensors is tensor else [name]
        announce_allreduces(tensors, names, op, scales, compression)
    elif not hasattr(compression, "compress"):
        raise ValueError(f"allreduce: compression={compression!r}: a process set has no codings; use Compression")
    return op, name, group


def _numbered(name, tensors):
    return [None if name is None else f"{name}.{i}" for i in range(len(tensors))]


def _announce_reverse(results, name, op, postscale, compression, group):
    """Have workers that have joined told of the allreduces of gradients, when they begin."""
    seen = [] if group is not None or is_compiling() else [result for result in results if result.grad_fn is not None]
    names = _numbered(gradient_name(name), seen)

    def tell(_):
        announce_allreduces(likes, names, op, (1.0, postscale), compression)

    if seen:
        likes = [torch.empty_like(result, device="meta", requires_grad=False) for result in seen]
        seen[0].grad_fn.register_prehook(tell)


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: Choice = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Return the reduction of a tensor over all workers, as byteps.torch.push_pull(). Autograd sees it."""
    scales = (prescale_factor, postscale_factor)
    op, name, group = _prepare(tensor, average, op, name, scales, process_set, compression)
    result = bps.allreduce(tensor, None, name, compression, op, *scales, group)
    _announce_reverse([result], name, op, postscale_factor, compression, group)
    return result


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[torch.Tensor]:
    """Start an allreduce into a new tensor, and return its handle at once."""
    op, name, group = _prepare(tensor, average, op, name, (prescale_factor, postscale_factor), process_set)
    return bps.allreduce_async(tensor, None, name, op, prescale_factor, postscale_factor, group)


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduce a tensor over all workers in place, and return it."""
    return allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set).wait()


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[torch.Tensor]:
    """Start an allreduce in place, and return its handle at once."""
    op, name, group = _prepare(tensor, average, op, name, (prescale_factor, postscale_factor), process_set)
    return bps.allreduce_async_(tensor, None, name, op, prescale_factor, postscale_factor, group)


def sparse_allreduce_async(
    tensor: torch.Tensor, name: str, op: ReduceOp | None = None, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Start an allreduce of a sparse tensor; what is returned waits for it and returns the result."""
    op, group = choose(None, op), group_of(process_set)
    if group is not None:
        return _sum_rows(tensor, op, group)
    announce("sparse_allreduce_async")
    return bps.sparse_allreduce_async(tensor, f"allreduce.{name}", op)


def _sum_rows(tensor, op, group):
    """Gather the elements that the workers of a group have; their sum is that of what has the same indices."""
    if op not in (Average, Sum):
        raise NotImplementedError(f"sparse_allreduce_async with op={op.name} in a process set; use Average or Sum")
    whole = tensor.detach().coalesce()
    places = bps.all_gather_async(whole.indices().T.contiguous(), group=group)
    values = bps.all_gather_async(whole.values(), group=group)

    def finish():
        summed = torch.sparse_coo_tensor(places.wait().T, values.wait(), tensor.shape).coalesce()
        return summed / group.size() if op == Average else summed

    return finish


def grouped_allreduce(
    tensors: Iterable[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: Choice = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Return the allreduce of each tensor of a list; all are in flight at once. Autograd sees it."""
    tensors, scales = list(tensors), (prescale_factor, postscale_factor)
    op, name, group = _prepare(tensors, average, op, name, scales, process_set, compression)
    results = bps.grouped_allreduce(tensors, None, name, compression, op, *scales, group)
    _announce_reverse(results, name, op, postscale_factor, compression, group)
    return results


def grouped_allreduce_async(
    tensors: Iterable[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> GroupHandle:
    """Start the allreduce of each tensor of a list into a new one, and return one handle for all."""
    tensors, scales = list(tensors), (prescale_factor, postscale_factor)
    op, name, group = _prepare(tensors, average, op, name, scales, process_set)
    return bps.grouped_allreduce_async(tensors, None, name, op, *scales, group)


def grouped_allreduce_(
    tensors: Iterable[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Reduce each tensor of a list in place, and return them."""
    return grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor, process_set).wait()


def grouped_allreduce_async_(
    tensors: Iterable[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> GroupHandle:
    """Start the allreduce of each tensor of a list in place, and return one handle for all."""
    tensors, scales = list(tensors), (prescale_factor, postscale_factor)
    op, name, group = _prepare(tensors, average, op, name, scales, process_set)
    return bps.grouped_allreduce_async_(tensors, None, name, op, *scales, group)


# ---- broadcast -------------------------------------------------------------------------------------------


def _rooted(root_rank, name, process_set):
    """Return root, name, priority and process group of a broadcast."""
    group = group_of(process_set)
    announce("broadcast", group)
    return root_of(root_rank, group), named("broadcast", name, group), 0, group


class _Averaged(torch.autograd.Function):
    """Makes the average of the workers' gradients of their sum, as Horovod's is one."""

    @staticmethod
    def forward(ctx, tensor, workers):
        ctx.workers = workers
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, gradient):
        return gradient / ctx.workers, None


def broadcast(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Return the tensor of worker root_rank as a new tensor on every worker.

    Autograd sees it: the gradient is the average of the workers' gradients on the root, and zeros on the others.
    """
    result = bps.broadcast(tensor, *_rooted(root_rank, name, process_set))
    return _Averaged.apply(result, party(group_of(process_set)).size()) if result.requires_grad else result


def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[torch.Tensor]:
    """Start a broadcast into a new tensor, and return its handle at once."""
    return bps.broadcast_async(tensor, *_rooted(root_rank, name, process_set))


def broadcast_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Replace a tensor by that of worker root_rank, in place, and return it."""
    return bps.broadcast_(tensor, *_rooted(root_rank, name, process_set))


def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[torch.Tensor]:
    """Start a broadcast in place, and return its handle at once."""
    return bps.broadcast_async_(tensor, *_rooted(root_rank, name, process_set))


# ---- allgather -------------------------------------------------------------------------------------------


class _Gathering(torch.autograd.Function):
    """The gradient of what a worker has given is the average of those of its rows over all workers."""

    @staticmethod
    def forward(ctx, group, *tensors):
        ctx.group, ctx.shapes = group, [tensor.shape for tensor in tensors]
        return tuple(wait_all([bps.all_gather_async(tensor, group=group) for tensor in tensors]))

    @staticmethod
    def backward(ctx, *gradients):
        group = ctx.group
        announce("backward() of an allgather", group)
        own = torch.tensor([shape[0] if shape else 1 for shape in ctx.shapes])
        rows = bps.all_gather(own, sizes=len(own), group=group).view(-1, len(own)).T.tolist()
        handles = [bps.reduce_scatter_async(g, sizes, op=Average, group=group) for g, sizes in zip(gradients, rows)]
        return (None, *(part.view(shape) for part, shape in zip(wait_all(handles), ctx.shapes)))


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Return the tensors of all workers one after the other along the first dimension, which may differ between them.

    Autograd sees it. As byteps.torch.all_gather(): `name` is accepted, and calls meet in their order.
    """
    return grouped_allgather([tensor], name, process_set)[0]


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[torch.Tensor]:
    """Start an allgather, and return its handle when all workers have called it."""
    del name
    group = group_of(process_set)
    announce("allgather", group)
    return bps.all_gather_async(tensor, group=group)


def grouped_allgather(
    tensors: Iterable[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    """Return the allgather of each tensor of a list. Autograd sees it."""
    del name
    group = group_of(process_set)
    announce("allgather", group)
    return list(_Gathering.apply(group, *tensors))


def grouped_allgather_async(
    tensors: Iterable[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> GroupHandle:
    """Start the allgather of each tensor of a list, and return one handle for all."""
    return GroupHandle([allgather_async(tensor, name, process_set) for tensor in tensors])


# ---- alltoall --------------------------------------------------------------------------------------------


def _exchange(tensor, splits, group):
    """Start an all_to_all; without splits first dimensions may differ nevertheless, as Horovod's do."""
    workers = party(group).size()
    if splits is None and tensor.dim() > 0 and tensor.shape[0] % workers == 0:
        splits = [tensor.shape[0] // workers] * workers
    return bps.all_to_all_async(tensor, splits, group=group)


def _counted(splits):
    """Return what makes counts of a result such as the splits that were given."""
    if isinstance(splits, torch.Tensor):
        return lambda counts: counts.to(dtype=splits.dtype, device=splits.device)
    return lambda counts: counts.to(torch.int32)


class _Exchange(torch.autograd.Function):
    """The gradient of an exchange is exchanged the other way."""

    @staticmethod
    def forward(ctx, tensor, splits, group):
        output, received = _exchange(tensor, splits, group).wait()
        ctx.group, ctx.received = group, received.tolist()
        counts = _counted(splits)(received)
        ctx.mark_non_differentiable(counts)
        return output, counts

    @staticmethod
    def backward(ctx, gradient, _):
        announce("backward() of an alltoall", ctx.group)
        return bps.all_to_all(gradient, ctx.received, group=ctx.group)[0], None, None


def alltoall(
    tensor: torch.Tensor,
    splits: Splits = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Send a part of the tensor to each worker; return what all have sent to this one, by rank. Autograd sees it.

    Args:
        tensor: the parts lie one after the other along the first dimension.
        splits: how many rows each worker gets; all workers give them, or none does. None: all parts are alike.
        name: accepted; calls meet in their order.
        process_set: of the workers that take part.

    Returns:
        The parts one after the other along the first dimension. With splits (that, received_splits): how many rows have
        come from each worker, of the type of splits, or int32 for a list.
    """
    del name
    group = group_of(process_set)
    announce("alltoall", group)
    output, received = _Exchange.apply(tensor, splits, group)
    return output if splits is None else (output, received)


class _ExchangeHandle(_HandleBase):
    """An alltoall in flight. synchronize() returns (output, received_splits)."""

    def __init__(self, handle, counted):
        """Have the counts of a handle's result made so."""
        self._handle, self._counted = handle, counted

    def poll(self):
        """Return whether it has ended."""
        return self._handle.poll()

    def wait(self):
        """Sleep until it has ended, and return its result."""
        output, received = self._handle.wait()
        return output, self._counted(received)


def alltoall_async(
    tensor: torch.Tensor,
    splits: Splits = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[tuple[torch.Tensor, torch.Tensor]]:
    """Start an alltoall, and return its handle when all workers have called it; its result has received_splits."""
    del name
    group = group_of(process_set)
    announce("alltoall", group)
    return _ExchangeHandle(_exchange(tensor, splits, group), _counted(splits))


# ---- reducescatter ---------------------------------------------------------------------------------------


def _shares(tensor, group):
    if tensor.dim() == 0:
        raise ValueError("reducescatter: a scalar cannot be split; reshape it first, as with reshape(1)")
    return shares(tensor.shape[0], group)


def _scatter(tensor, op, scales, group):
    return bps.reduce_scatter_async(
        tensor, _shares(tensor, group), op=op, prescale_factor=scales[0], postscale_factor=scales[1], group=group
    )


class _Scattering(torch.autograd.Function):
    """The gradients of the parts are gathered; those of a sum are multiplied by the size, as Horovod does."""

    @staticmethod
    def forward(ctx, op, scales, group, *tensors):
        workers = party(group).size()
        ctx.factor, ctx.group = (workers if op == Sum else 1) * scales[0] * scales[1], group
        ctx.has_gradient, ctx.shares = op in (Average, Sum), [_shares(tensor, group) for tensor in tensors]
        return tuple(wait_all([_scatter(tensor, op, scales, group) for tensor in tensors]))

    @staticmethod
    def backward(ctx, *gradients):
        if not ctx.has_gradient:
            raise NotImplementedError("reducescatter has a gradient with op=Average or Sum only")
        group = ctx.group
        announce("backward() of a reducescatter", group)
        handles = [bps.all_gather_async(g * ctx.factor, share, group=group) for g, share in zip(gradients, ctx.shares)]
        return (None, None, None, *wait_all(handles))


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: Cast = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Return this worker's rows of the reduction of a tensor over all workers. Autograd sees it.

    Args:
        tensor: of the same shape and type on all workers. Where the first dimension cannot be divided by size(), the
            first workers get one more row.
        name: accepted; calls meet in their order.
        compression: one of Compression.
        op: Average, Sum, Min, Max or Product. The first two have gradients: as Horovod's, those of a sum are multiplied
            by size().
        process_set: of the workers that take part.
        prescale_factor, postscale_factor: multiply each contribution and the result.
    """
    scales = (prescale_factor, postscale_factor)
    return grouped_reducescatter([tensor], name, compression, op, process_set, *scales)[0]


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[torch.Tensor]:
    """Start a reducescatter, and return its handle at once."""
    del name
    op, group = choose(None, op), group_of(process_set)
    announce("reducescatter", group)
    return _scatter(tensor, op, (prescale_factor, postscale_factor), group)


def grouped_reducescatter(
    tensors: Iterable[torch.Tensor],
    name: str | None = None,
    compression: Cast = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """Return the reducescatter of each tensor of a list; all are in flight at once. Autograd sees it."""
    del name
    op, group = choose(None, op), group_of(process_set)
    if not hasattr(compression, "compress"):
        raise TypeError(f"reducescatter: compression={compression!r} is not in Compression; only allreduce is coded")
    announce("reducescatter", group)
    small = [compression.compress(tensor) for tensor in tensors]
    scales = (prescale_factor, postscale_factor)
    results = _Scattering.apply(op, scales, group, *(tensor for tensor, _ in small))
    return [compression.decompress(result, context) for result, (_, context) in zip(results, small)]


def grouped_reducescatter_async(
    tensors: Iterable[torch.Tensor],
    name: str | None = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> GroupHandle:
    """Start the reducescatter of each tensor of a list, and return one handle for all."""
    scales = (prescale_factor, postscale_factor)
    return GroupHandle([reducescatter_async(tensor, name, op, process_set, *scales) for tensor in tensors])


# ---- all workers -----------------------------------------------------------------------------------------


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Return when all workers of a process set have called it."""
    group = group_of(process_set)
    if group is None:
        announce("barrier")
        bps.barrier()
    else:
        party(group).barrier()
