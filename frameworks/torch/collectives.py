# SPDX-License-Identifier: Apache-2.0
"""reduce, reduce_scatter, all_gather, gather, scatter and all_to_all of tensors; send and recv."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from byteps import _collectives
from byteps._basics import Handle, choose_op
from byteps._collectives import Source
from byteps._native import bps as _bps

from . import _memory

if TYPE_CHECKING:
    from typing import Iterable, SupportsIndex

    from byteps._basics import ReduceOp
    from byteps._collectives import Sizes
    from byteps._groups import Group

_CODES = {getattr(torch, name): code for name, code in _bps.dtypes.items() if hasattr(torch, name)}
_TYPES = {code: dtype for dtype, code in _CODES.items()}


class _Tensors:
    """See byteps._collectives.Kit. Tensors on a device go through the host."""

    @staticmethod
    def read(tensor):
        _memory.check(tensor)
        host = tensor.detach().cpu()
        plain = host if _memory.is_plain(host) else _memory.plain_copy(host)
        device = tensor.device

        def finish(result):
            return result.to(device)

        memory = _memory.memory(plain)
        return Source(memory, tuple(tensor.shape), _CODES[tensor.dtype], None if tensor.is_cpu else finish)

    @staticmethod
    def make(shape, dtype):
        result = torch.empty(shape, dtype=_TYPES[dtype], device="cpu")
        return _memory.memory(result), result

    @staticmethod
    def numbers(values):
        return torch.tensor(values, dtype=torch.int64, device="cpu")


def reduce_async(
    tensor: torch.Tensor,
    root_rank: SupportsIndex = 0,
    *,
    average: bool | None = None,
    op: ReduceOp | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
) -> Handle[torch.Tensor | None]:
    """Start a reduce and return its Handle at once. Arguments as for reduce()."""
    scales = (prescale_factor, postscale_factor)
    return _collectives.reduce(_Tensors, tensor, root_rank, choose_op(average, op), scales, priority, group)


def reduce(
    tensor: torch.Tensor,
    root_rank: SupportsIndex = 0,
    *,
    average: bool | None = None,
    op: ReduceOp | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
) -> torch.Tensor | None:
    """Return on worker root_rank the reduction of a tensor over all workers, as a new tensor; on the others None.

    Like all functions of this file it has no name: the i-th call of a worker, push_pulls and broadcasts without a name
    counted, meets the i-th of the others, so that all workers call them in the same order, on one thread. The memory of
    the argument belongs to the library while the operation is in flight.

    Args:
        tensor: a dense tensor, contiguous or not; from a CUDA device it goes through the host. Number and type of its
            elements must be the same on all workers, the device need not.
        root_rank: the worker that gets the result.
        average, op, priority, prescale_factor, postscale_factor, group: as for push_pull().

    Returns:
        What has the shape, the type and the device of the argument. Autograd does not see it.

    Raises:
        TypeError, ValueError: the tensor cannot be sent (type, device, layout).
        MismatchError: the workers disagree about function, type, size, operation or root. All of them get it.
        LostError, TimeoutError: a member of the job was lost, or does not answer.
    """
    scales = (prescale_factor, postscale_factor)
    return _collectives.reduce(_Tensors, tensor, root_rank, choose_op(average, op), scales, priority, group).wait()


def reduce_scatter_async(
    tensor: torch.Tensor,
    sizes: Iterable[SupportsIndex] | None = None,
    *,
    average: bool | None = None,
    op: ReduceOp | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
) -> Handle[torch.Tensor]:
    """Start a reduce_scatter and return its Handle at once. Arguments as for reduce_scatter()."""
    scales = (prescale_factor, postscale_factor)
    return _collectives.reduce_scatter(_Tensors, tensor, sizes, choose_op(average, op), scales, priority, group)


def reduce_scatter(
    tensor: torch.Tensor,
    sizes: Iterable[SupportsIndex] | None = None,
    *,
    average: bool | None = None,
    op: ReduceOp | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
) -> torch.Tensor:
    """Return this worker's part of the reduction of a tensor over all workers, as a new tensor.

    The parts lie one after the other along the first dimension, by rank: of size() workers, each gets
    ``tensor.shape[0] / size()`` rows, or as many as `sizes` says.

    Args:
        tensor: as for reduce(), with a first dimension.
        sizes: how many rows each worker gets; they add up to the first dimension. The same on all workers. None: all
            alike.
        average, op, priority, prescale_factor, postscale_factor, group: as for push_pull().

    Raises:
        TypeError, ValueError: as reduce(); or the first dimension cannot be divided so.
        MismatchError, LostError, TimeoutError: as reduce().
    """
    scales = (prescale_factor, postscale_factor)
    return _collectives.reduce_scatter(_Tensors, tensor, sizes, choose_op(average, op), scales, priority, group).wait()


def all_gather_async(
    tensor: torch.Tensor, sizes: Sizes = None, *, priority: int = 0, group: Group | None = None
) -> Handle[torch.Tensor]:
    """Start an all_gather and return its Handle: at once if sizes are given, else when all workers have called it.

    Arguments as for all_gather().
    """
    return _collectives.all_gather(_Tensors, tensor, sizes, priority, group)


def all_gather(
    tensor: torch.Tensor, sizes: Sizes = None, *, priority: int = 0, group: Group | None = None
) -> torch.Tensor:
    """Return the tensors of all workers one after the other along the first dimension, by rank, as a new tensor.

    Args:
        tensor: as for reduce(), but the first dimension may differ between workers and be 0; type and other dimensions
            must be the same. What has no dimension is like a tensor of one element.
        sizes: the first dimensions of all workers' tensors, by rank; or one number, if they are all the same. The same
            on all workers; then only the number of elements is compared. None: the workers tell each other first, which
            is one more round trip.
        priority: larger is more urgent.
        group: of the workers that take part, see new_group(); None: all workers.

    Raises:
        TypeError, ValueError: as reduce(); or `sizes` does not say what this tensor has.
        MismatchError: type or other dimensions differ, or as reduce(). All workers get it.
        LostError, TimeoutError: as reduce().
    """
    return _collectives.all_gather(_Tensors, tensor, sizes, priority, group).wait()


def gather_async(
    tensor: torch.Tensor,
    root_rank: SupportsIndex = 0,
    sizes: Sizes = None,
    *,
    priority: int = 0,
    group: Group | None = None,
) -> Handle[torch.Tensor | None]:
    """Start a gather and return its Handle: at once if sizes are given, else when all workers have called it.

    Arguments as for gather().
    """
    return _collectives.gather(_Tensors, tensor, root_rank, sizes, priority, group)


def gather(
    tensor: torch.Tensor,
    root_rank: SupportsIndex = 0,
    sizes: Sizes = None,
    *,
    priority: int = 0,
    group: Group | None = None,
) -> torch.Tensor | None:
    """Return on worker root_rank what all_gather() returns, on the others None.

    Args:
        tensor, sizes, priority, group: as for all_gather().
        root_rank: the worker that gets the result.

    Raises:
        TypeError, ValueError, MismatchError, LostError, TimeoutError: as all_gather().
    """
    return _collectives.gather(_Tensors, tensor, root_rank, sizes, priority, group).wait()


def scatter_async(
    tensor: torch.Tensor | None = None,
    root_rank: SupportsIndex = 0,
    sizes: Iterable[SupportsIndex] | None = None,
    *,
    priority: int = 0,
    group: Group | None = None,
) -> Handle[torch.Tensor]:
    """Start a scatter and return its Handle, when the root has called it. Arguments as for scatter()."""
    return _collectives.scatter(_Tensors, tensor, root_rank, sizes, priority, group)


def scatter(
    tensor: torch.Tensor | None = None,
    root_rank: SupportsIndex = 0,
    sizes: Iterable[SupportsIndex] | None = None,
    *,
    priority: int = 0,
    group: Group | None = None,
) -> torch.Tensor:
    """Return this worker's part of the tensor of worker root_rank, as a new tensor.

    The parts lie one after the other along the first dimension, by rank: all alike, or as `sizes` says. The root tells
    the others first what it has, which is one more round trip.

    Args:
        tensor: on the root as for reduce(), with a first dimension; on the others it is not looked at.
        root_rank: the worker that sends.
        sizes: how many rows each worker gets; they add up to the first dimension. It counts on the root only. None: all
            alike.
        priority: larger is more urgent.
        group: of the workers that take part, see new_group(); None: all workers.

    Returns:
        On the root a tensor on the device of the argument, on the others one on the CPU.

    Raises:
        TypeError, ValueError: on the root, as reduce(); or the first dimension cannot be divided so.
        MismatchError, LostError, TimeoutError: as reduce().
    """
    return _collectives.scatter(_Tensors, tensor, root_rank, sizes, priority, group).wait()


def all_to_all_async(
    tensor: torch.Tensor,
    splits: Iterable[SupportsIndex] | None = None,
    *,
    priority: int = 0,
    group: Group | None = None,
) -> Handle[tuple[torch.Tensor, torch.Tensor]]:
    """Start an all_to_all and return its Handle: without splits at once, else when all workers have called it.

    Arguments as for all_to_all().
    """
    return _collectives.all_to_all(_Tensors, tensor, splits, priority, group)


def all_to_all(
    tensor: torch.Tensor,
    splits: Iterable[SupportsIndex] | None = None,
    *,
    priority: int = 0,
    group: Group | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Send a part of the tensor to each worker; return what all have sent to this one, by rank, as a new tensor.

    Args:
        tensor: as for reduce(), with a first dimension, along which the parts lie by rank.
        splits: how many rows each worker gets; they add up to the first dimension, and may differ between workers. The
            workers tell each other first, which is one more round trip, so that all give splits or none. None: all
            parts are alike, and the first dimensions the same on all workers.
        priority: larger is more urgent.
        group: of the workers that take part, see new_group(); None: all workers.

    Returns:
        (result, received_splits): the parts one after the other along the first dimension, and how many rows have come
        from each worker, as a tensor of int64.

    Raises:
        TypeError, ValueError: as reduce(); or the first dimension cannot be divided so.
        MismatchError: type or other dimensions differ, or as reduce(). All workers get it.
        LostError, TimeoutError: as reduce().
    """
    return _collectives.all_to_all(_Tensors, tensor, splits, priority, group).wait()


def send_async(
    tensor: torch.Tensor,
    destination: SupportsIndex,
    tag: int = 0,
    *,
    priority: int = 0,
    group: Group | None = None,
) -> Handle[None]:
    """Start a send and return its Handle at once. Arguments as for send()."""
    return _collectives.send(_Tensors, tensor, destination, tag, priority, group)


def send(
    tensor: torch.Tensor,
    destination: SupportsIndex,
    tag: int = 0,
    *,
    priority: int = 0,
    group: Group | None = None,
) -> None:
    """Send a tensor to one worker; return when that has received it.

    The n-th send to a worker meets the n-th recv there from the sender, of each tag apart.

    Args:
        tensor: as for reduce().
        destination: the rank of the worker, in the group if there is one.
        tag: 0 to 1023.
        priority: larger is more urgent.
        group: see new_group(). Messages of two workers are in one order, whatever the group.

    Raises:
        MismatchError: the two disagree about type or number of elements. Both get it.
    """
    _collectives.send(_Tensors, tensor, destination, tag, priority, group).wait()


def recv_async(
    tensor: torch.Tensor,
    origin: SupportsIndex,
    tag: int = 0,
    *,
    priority: int = 0,
    group: Group | None = None,
) -> Handle[torch.Tensor]:
    """Start a recv and return its Handle at once; do not touch the tensor before. Arguments as for recv()."""
    _memory.check(tensor)
    own = tensor.detach()
    place = own if own.is_cpu and _memory.is_plain(own) else torch.empty(own.shape, dtype=own.dtype, device="cpu")

    def finish(_):
        if place is not own:
            own.copy_(place)
        return tensor

    handle = _collectives.recv(_memory.memory(place), origin, tag, priority, group)
    return Handle(handle, tensor, finish)


def recv(
    tensor: torch.Tensor,
    origin: SupportsIndex,
    tag: int = 0,
    *,
    priority: int = 0,
    group: Group | None = None,
) -> torch.Tensor:
    """Receive what a worker sends into a tensor, which has its type and size, and return it. Arguments as for send().

    Args:
        origin: the rank of the sender, in the group if there is one.
    """
    return recv_async(tensor, origin, tag, priority=priority, group=group).wait()
