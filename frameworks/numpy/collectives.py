# SPDX-License-Identifier: Apache-2.0
"""reduce, reduce_scatter, all_gather, gather, scatter and all_to_all of arrays; send and recv."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from byteps import _collectives
from byteps._basics import Handle, choose_op
from byteps._collectives import Source
from byteps._native import bps as _bps

from .ops import as_ndarray, check, in_place, place

if TYPE_CHECKING:
    from typing import Any, Iterable, SupportsIndex, TypeVar

    from byteps._basics import ReduceOp
    from byteps._collectives import Sizes
    from byteps._groups import Group
    from numpy.typing import NDArray

    T = TypeVar("T")

_NAMES = {code: name for name, code in _bps.dtypes.items()}
_OTHERS = ("bfloat16", "float8_e4m3fn", "float8_e5m2")  # types of the package ml_dtypes


def _type(code):
    name = _NAMES[code]
    if name in _OTHERS:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)


class _Arrays:
    """See byteps._collectives.Kit."""

    @staticmethod
    def read(array):
        seen = as_ndarray(array)
        if seen is None:
            raise TypeError(
                f"a {type(array).__qualname__} on a device: this operation takes memory of the host; copy it there"
            )
        array, finish = seen
        check(array)
        memory = place(np.asarray(array, order="C"))
        return Source(memory, array.shape, memory[2], finish)

    @staticmethod
    def make(shape, dtype):
        result = np.empty(shape, _type(dtype))
        return place(result), result

    @staticmethod
    def numbers(values):
        return np.array(values, np.int64)


def reduce_async(
    array: Any,
    root_rank: SupportsIndex = 0,
    *,
    average: bool | None = None,
    op: ReduceOp | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
) -> Handle[Any]:
    """Start a reduce and return its Handle at once. Arguments as for reduce()."""
    scales = (prescale_factor, postscale_factor)
    return _collectives.reduce(_Arrays, array, root_rank, choose_op(average, op), scales, priority, group)


def reduce(
    array: Any,
    root_rank: SupportsIndex = 0,
    *,
    average: bool | None = None,
    op: ReduceOp | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
) -> Any:
    """Return on worker root_rank the reduction of an array over all workers, as a new array; on the others None.

    Like all functions of this file it has no name: the i-th call of a worker, push_pulls and broadcasts without a name
    counted, meets the i-th of the others, so that all workers call them in the same order, on one thread. The memory of
    the argument belongs to the library while the operation is in flight.

    Args:
        array: an ndarray, contiguous or not, anything with ``__dlpack__`` in memory of the host, or a number. Number
            and type of its elements must be the same on all workers.
        root_rank: the worker that gets the result.
        average, op, priority, prescale_factor, postscale_factor, group: as for push_pull().

    Returns:
        What has the shape and the type of the argument: an array of the same framework, if that makes arrays of those
        of others; else an ndarray.

    Raises:
        TypeError, ValueError: the array cannot be sent (element type, byte order, device).
        MismatchError: the workers disagree about function, type, size, operation or root. All of them get it.
        LostError, TimeoutError: a member of the job was lost, or does not answer.
    """
    scales = (prescale_factor, postscale_factor)
    return _collectives.reduce(_Arrays, array, root_rank, choose_op(average, op), scales, priority, group).wait()


def reduce_scatter_async(
    array: Any,
    sizes: Iterable[SupportsIndex] | None = None,
    *,
    average: bool | None = None,
    op: ReduceOp | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
) -> Handle[Any]:
    """Start a reduce_scatter and return its Handle at once. Arguments as for reduce_scatter()."""
    scales = (prescale_factor, postscale_factor)
    return _collectives.reduce_scatter(_Arrays, array, sizes, choose_op(average, op), scales, priority, group)


def reduce_scatter(
    array: Any,
    sizes: Iterable[SupportsIndex] | None = None,
    *,
    average: bool | None = None,
    op: ReduceOp | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group | None = None,
) -> Any:
    """Return this worker's part of the reduction of an array over all workers, as a new array.

    The parts lie one after the other along the first dimension, by rank: of size() workers, each gets
    ``array.shape[0] / size()`` rows, or as many as `sizes` says.

    Args:
        array: as for reduce(), with a first dimension.
        sizes: how many rows each worker gets; they add up to the first dimension. The same on all workers. None: all
            alike.
        average, op, priority, prescale_factor, postscale_factor, group: as for push_pull().

    Raises:
        TypeError, ValueError: as reduce(); or the first dimension cannot be divided so.
        MismatchError, LostError, TimeoutError: as reduce().
    """
    scales = (prescale_factor, postscale_factor)
    return _collectives.reduce_scatter(_Arrays, array, sizes, choose_op(average, op), scales, priority, group).wait()


def all_gather_async(array: Any, sizes: Sizes = None, *, priority: int = 0, group: Group | None = None) -> Handle[Any]:
    """Start an all_gather and return its Handle: at once if sizes are given, else when all workers have called it.

    Arguments as for all_gather().
    """
    return _collectives.all_gather(_Arrays, array, sizes, priority, group)


def all_gather(array: Any, sizes: Sizes = None, *, priority: int = 0, group: Group | None = None) -> Any:
    """Return the arrays of all workers one after the other along the first dimension, by rank, as a new array.

    Args:
        array: as for reduce(), but the first dimension may differ between workers and be 0; type and other dimensions
            must be the same. What has no dimension is like an array of one element.
        sizes: the first dimensions of all workers' arrays, by rank; or one number, if they are all the same. The same
            on all workers; then only the number of elements is compared. None: the workers tell each other first, which
            is one more round trip.
        priority: larger is more urgent.
        group: of the workers that take part, see new_group(); None: all workers.

    Raises:
        TypeError, ValueError: as reduce(); or `sizes` does not say what this array has.
        MismatchError: type or other dimensions differ, or as reduce(). All workers get it.
        LostError, TimeoutError: as reduce().
    """
    return _collectives.all_gather(_Arrays, array, sizes, priority, group).wait()


def gather_async(
    array: Any, root_rank: SupportsIndex = 0, sizes: Sizes = None, *, priority: int = 0, group: Group | None = None
) -> Handle[Any]:
    """Start a gather and return its Handle: at once if sizes are given, else when all workers have called it.

    Arguments as for gather().
    """
    return _collectives.gather(_Arrays, array, root_rank, sizes, priority, group)


def gather(
    array: Any, root_rank: SupportsIndex = 0, sizes: Sizes = None, *, priority: int = 0, group: Group | None = None
) -> Any:
    """Return on worker root_rank what all_gather() returns, on the others None.

    Args:
        array, sizes, priority, group: as for all_gather().
        root_rank: the worker that gets the result.

    Raises:
        TypeError, ValueError, MismatchError, LostError, TimeoutError: as all_gather().
    """
    return _collectives.gather(_Arrays, array, root_rank, sizes, priority, group).wait()


def scatter_async(
    array: Any = None,
    root_rank: SupportsIndex = 0,
    sizes: Iterable[SupportsIndex] | None = None,
    *,
    priority: int = 0,
    group: Group | None = None,
) -> Handle[Any]:
    """Start a scatter and return its Handle, when the root has called it. Arguments as for scatter()."""
    return _collectives.scatter(_Arrays, array, root_rank, sizes, priority, group)


def scatter(
    array: Any = None,
    root_rank: SupportsIndex = 0,
    sizes: Iterable[SupportsIndex] | None = None,
    *,
    priority: int = 0,
    group: Group | None = None,
) -> Any:
    """Return this worker's part of the array of worker root_rank, as a new array.

    The parts lie one after the other along the first dimension, by rank: all alike, or as `sizes` says. The root tells
    the others first what it has, which is one more round trip.

    Args:
        array: on the root as for reduce(), with a first dimension; on the others it is not looked at.
        root_rank: the worker that sends.
        sizes: how many rows each worker gets; they add up to the first dimension. It counts on the root only. None: all
            alike.
        priority: larger is more urgent.
        group: of the workers that take part, see new_group(); None: all workers.

    Returns:
        On the root an array as of reduce(), on the others an ndarray.

    Raises:
        TypeError, ValueError: on the root, as reduce(); or the first dimension cannot be divided so.
        MismatchError, LostError, TimeoutError: as reduce().
    """
    return _collectives.scatter(_Arrays, array, root_rank, sizes, priority, group).wait()


def all_to_all_async(
    array: Any, splits: Iterable[SupportsIndex] | None = None, *, priority: int = 0, group: Group | None = None
) -> Handle[tuple[Any, NDArray[np.int64]]]:
    """Start an all_to_all and return its Handle: without splits at once, else when all workers have called it.

    Arguments as for all_to_all().
    """
    return _collectives.all_to_all(_Arrays, array, splits, priority, group)


def all_to_all(
    array: Any, splits: Iterable[SupportsIndex] | None = None, *, priority: int = 0, group: Group | None = None
) -> tuple[Any, NDArray[np.int64]]:
    """Send a part of the array to each worker; return what all have sent to this one, by rank, as a new array.

    Args:
        array: as for reduce(), with a first dimension, along which the parts lie by rank.
        splits: how many rows each worker gets; they add up to the first dimension, and may differ between workers. The
            workers tell each other first, which is one more round trip, so that all give splits or none. None: all
            parts are alike, and the first dimensions the same on all workers.
        priority: larger is more urgent.
        group: of the workers that take part, see new_group(); None: all workers.

    Returns:
        (result, received_splits): the parts one after the other along the first dimension, and how many rows have come
        from each worker, as an ndarray of int64.

    Raises:
        TypeError, ValueError: as reduce(); or the first dimension cannot be divided so.
        MismatchError: type or other dimensions differ, or as reduce(). All workers get it.
        LostError, TimeoutError: as reduce().
    """
    return _collectives.all_to_all(_Arrays, array, splits, priority, group).wait()


def send_async(
    array: Any,
    destination: SupportsIndex,
    tag: int = 0,
    *,
    priority: int = 0,
    group: Group | None = None,
) -> Handle[None]:
    """Start a send and return its Handle at once. Arguments as for send()."""
    return _collectives.send(_Arrays, array, destination, tag, priority, group)


def send(
    array: Any,
    destination: SupportsIndex,
    tag: int = 0,
    *,
    priority: int = 0,
    group: Group | None = None,
) -> None:
    """Send an array to one worker; return when that has received it.

    The n-th send to a worker meets the n-th recv there from the sender, of each tag apart.

    Args:
        array: as for reduce().
        destination: the rank of the worker, in the group if there is one.
        tag: 0 to 1023.
        priority: larger is more urgent.
        group: see new_group(). Messages of two workers are in one order, whatever the group.

    Raises:
        MismatchError: the two disagree about type or number of elements. Both get it.
    """
    _collectives.send(_Arrays, array, destination, tag, priority, group).wait()


def recv_async(
    array: T,
    origin: SupportsIndex,
    tag: int = 0,
    *,
    priority: int = 0,
    group: Group | None = None,
) -> Handle[T]:
    """Start a recv and return its Handle at once; do not touch the array before. Arguments as for recv()."""
    memory, finish = in_place(array)
    return Handle(_collectives.recv(memory, origin, tag, priority, group), array, finish)


def recv(
    array: T,
    origin: SupportsIndex,
    tag: int = 0,
    *,
    priority: int = 0,
    group: Group | None = None,
) -> T:
    """Receive what a worker sends into an array, which has its type and size, and return it. Arguments as for send().

    Args:
        origin: the rank of the sender, in the group if there is one.
    """
    return recv_async(array, origin, tag, priority=priority, group=group).wait()
