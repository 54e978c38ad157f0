# SPDX-License-Identifier: Apache-2.0
"""reduce, reduce_scatter, all_gather, gather, scatter and all_to_all, for the parts of all frameworks.

A part brings a Kit, which knows its arrays. What workers cannot know of each other, they tell each other first, in
headers of a few numbers, before a function returns: so all start all operations in the same order.
"""

from __future__ import annotations

import ctypes
import math
import operator
from typing import TYPE_CHECKING, NamedTuple

from ._basics import Handle, Sum, start
from ._errors import MismatchError
from ._groups import ALL, check_root, number_of, party
from ._native import bps as _bps

if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Protocol, Sequence, SupportsIndex, Tuple, Union

    from ._basics import ReduceOp
    from ._groups import Group

    Shape = Tuple[int, ...]
    Sizes = Union[SupportsIndex, Iterable[SupportsIndex], None]

    class Kit(Protocol):
        """What a framework knows of its arrays."""

        def read(self, array: Any) -> Source:
            """Return what is sent of an array; raise for what cannot be sent."""

        def make(self, shape: Shape, dtype: int) -> tuple[Any, Any]:
            """Return what the extension takes for a new array, and the array."""

        def numbers(self, values: Sequence[int]) -> Any:
            """Return an array of 64-bit integers."""


class Source(NamedTuple):
    """What a worker brings.

    Attributes:
        memory: what the extension takes for it.
        shape: of it.
        dtype: the extension's number for the type of its elements.
        finish: makes an array such as the given one of a result; None: the result is one.
    """

    memory: Any
    shape: Shape
    dtype: int
    finish: Callable[[Any], Any] | None


_NAMES = {code: name for name, code in _bps.dtypes.items()}

# ---- headers ---------------------------------------------------------------------------------------------

_MARK = 0x6865616465727321  # tells a header from the numbers of another operation
_DIMENSIONS = 64  # at most, as BPS_DIMENSIONS of byteps.h
_LENGTH = 3 + _DIMENSIONS


def _numbers(count, values=()):
    """Return 64-bit numbers, and what the extension takes for them."""
    numbers = (ctypes.c_int64 * count)(*values)
    return numbers, (ctypes.addressof(numbers), (count,), _bps.dtypes["int64"], numbers)


def _header(shape, dtype):
    return [_MARK, dtype, len(shape), *shape] + [0] * (_DIMENSIONS - len(shape))


def _shape_of(kind, header, worker):
    """Return (shape, dtype) of what another worker has sent."""
    mark, dtype, dimensions, *shape = header
    if mark != _MARK or dtype not in _NAMES or not 0 <= dimensions <= _DIMENSIONS or min(shape) < 0:
        raise MismatchError(f"{kind}: worker {worker} called another function, or this one with other arguments")
    return tuple(shape[:dimensions]), dtype


def _row(shape):
    return f"rows of shape {list(shape[1:])}"


def _require_alike(kind, all_of_them, group):
    """Raise, on all workers with one text, if what they bring differs in more than the first dimension."""
    (first, first_dtype) = all_of_them[0]
    for worker, (shape, dtype) in enumerate(all_of_them):
        if shape[1:] != first[1:] or dtype != first_dtype:
            raise MismatchError(
                f"{kind}: worker {group.worker(worker)} has {_row(shape)} of type {_NAMES[dtype]}, worker "
                f"{group.worker(0)} {_row(first)} of type "
                f"{_NAMES[first_dtype]}; the type and all but the first dimension must be the same on all workers"
            )


def _exchange(kind, source, own, priority, group):
    """Send own[r], a list of numbers, with a header to worker r; own may be empty. Return those of all for this one."""
    workers, header = group.size(), _header(source.shape, source.dtype)
    length = _LENGTH + (1 if own else 0)
    values = [number for one in own for number in (*header, one)] if own else header
    sent, memory = _numbers(len(values), values)
    got, result = _numbers(length * workers)
    _run("all_to_all" if own else "all_gather", memory, result, priority=priority, group=group)
    parts = [got[length * worker : length * (worker + 1)] for worker in range(workers)]
    all_of_them = [_shape_of(kind, part[:_LENGTH], worker) for worker, part in enumerate(parts)]
    _require_alike(kind, all_of_them, group)
    return [part[-1] for part in parts] if own else [shape[0] for shape, _ in all_of_them]


def _announce(kind, root, shape, dtype, sizes, priority, group):
    """Return shape, dtype and sizes of the root, which alone has them."""
    values = [*_header(shape, dtype), *sizes] if group.rank() == root else []
    numbers, memory = _numbers(_LENGTH + group.size(), values)
    Handle(start(_bps.broadcast, memory, None, None, root, priority, number_of(group)), None).wait()
    return (*_shape_of(kind, numbers[:_LENGTH], root), numbers[_LENGTH:])


# ---- what the arguments say ------------------------------------------------------------------------------


def _counts(kind, what, values, group):
    """Return what has a size for each worker as a list of ints."""
    try:
        values = [operator.index(value) for value in values]
    except TypeError:
        raise TypeError(f"{kind}: {what} must be a sequence of integers, one for each worker") from None
    if len(values) != group.size() or min(values) < 0:
        raise ValueError(f"{kind}: {what}={values}; expected {group.size()} numbers, one for each worker, none below 0")
    return values


def _parts(kind, what, values, shape, group):
    """Return how many rows of a shape belong to each worker: as the argument says, or all alike."""
    if not shape:
        raise ValueError(f"{kind}: a scalar cannot be split; reshape it first, as with reshape(1)")
    if values is None:
        if shape[0] % group.size() != 0:
            raise ValueError(
                f"{kind}: the first dimension, {shape[0]}, is not a multiple of the {group.size()} workers; say with "
                f"{what}= how much each of them gets"
            )
        return [shape[0] // group.size()] * group.size()
    values = _counts(kind, what, values, group)
    if sum(values) != shape[0]:
        raise ValueError(f"{kind}: {what}={values} add up to {sum(values)}; the first dimension is {shape[0]}")
    return values


def _gathered(kind, source, sizes, priority, group):
    """Return the first dimensions of all workers' arrays."""
    if sizes is None:
        return _exchange(kind, source, (), priority, group)
    try:
        values = [operator.index(sizes)] * group.size()
    except TypeError:
        values = _counts(kind, "sizes", sizes, group)
    if values[group.rank()] != source.shape[0]:
        raise ValueError(
            f"{kind}: sizes={sizes} says that worker {group.rank()} has {values[group.rank()]} rows; it gives "
            f"{source.shape[0]}"
        )
    return values


def _read_rows(kit, array):
    """Read an array of which the first dimension counts rows; one without dimensions is a row."""
    source = kit.read(array)
    return source if source.shape else source._replace(shape=(1,))


# ---- operations ------------------------------------------------------------------------------------------


def _start(kind, memory, target, ins=None, outs=None, op=Sum, root=0, priority=0, scales=(1.0, 1.0), group=ALL, tag=0):
    return start(_bps.collective, kind, memory, target, ins, outs, op, root, priority, *scales, number_of(group), tag)


def _run(*arguments, **how):
    Handle(_start(*arguments, **how), None).wait()


def _elements(rows, shape):
    """Return the elements of each block, from its rows."""
    row = math.prod(shape[1:])
    return tuple(count * row for count in rows)


def _uneven(rows, shape):
    """Return the same of rows that all workers know; None if all blocks have one size, of which messages say more."""
    return None if len(set(rows)) == 1 else _elements(rows, shape)


def reduce(
    kit: Kit,
    array: Any,
    root_rank: SupportsIndex,
    op: ReduceOp,
    scales: tuple[float, float],
    priority: int,
    group: Group | None,
) -> Handle[Any]:
    """Start a reduce. The result of others than the root is None."""
    group = party(group)
    root = check_root(root_rank, group)
    source = kit.read(array)
    if group.rank() != root:
        return Handle(_start("reduce", source.memory, None, None, None, op, root, priority, scales, group), None)
    target, result = kit.make(source.shape, source.dtype)
    native = _start("reduce", source.memory, target, None, None, op, root, priority, scales, group)
    return Handle(native, result, source.finish)


def reduce_scatter(
    kit: Kit,
    array: Any,
    sizes: Iterable[SupportsIndex] | None,
    op: ReduceOp,
    scales: tuple[float, float],
    priority: int,
    group: Group | None,
) -> Handle[Any]:
    """Start a reduce_scatter."""
    group = party(group)
    source = kit.read(array)
    rows = _parts("reduce_scatter", "sizes", sizes, source.shape, group)
    target, result = kit.make((rows[group.rank()], *source.shape[1:]), source.dtype)
    counts = _uneven(rows, source.shape)
    native = _start("reduce_scatter", source.memory, target, counts, None, op, 0, priority, scales, group)
    return Handle(native, result, source.finish)


def all_gather(kit: Kit, array: Any, sizes: Sizes, priority: int, group: Group | None) -> Handle[Any]:
    """Start an all_gather; without sizes, learn them from the others first."""
    group = party(group)
    source = _read_rows(kit, array)
    rows = _gathered("all_gather", source, sizes, priority, group)
    target, result = kit.make((sum(rows), *source.shape[1:]), source.dtype)
    counts = _uneven(rows, source.shape)
    native = _start("all_gather", source.memory, target, None, counts, priority=priority, group=group)
    return Handle(native, result, source.finish)


def gather(
    kit: Kit, array: Any, root_rank: SupportsIndex, sizes: Sizes, priority: int, group: Group | None
) -> Handle[Any]:
    """Start a gather; without sizes, learn them from the others first. The result of others than the root is None."""
    group = party(group)
    root = check_root(root_rank, group)
    source = _read_rows(kit, array)
    rows = _gathered("gather", source, sizes, priority, group)
    if group.rank() != root:
        return Handle(_start("gather", source.memory, None, root=root, priority=priority, group=group), None)
    target, result = kit.make((sum(rows), *source.shape[1:]), source.dtype)
    counts = _elements(rows, source.shape)
    native = _start("gather", source.memory, target, None, counts, root=root, priority=priority, group=group)
    return Handle(native, result, source.finish)


def scatter(
    kit: Kit,
    array: Any,
    root_rank: SupportsIndex,
    sizes: Iterable[SupportsIndex] | None,
    priority: int,
    group: Group | None,
) -> Handle[Any]:
    """Start a scatter, after the root has told the others what it has."""
    group = party(group)
    root = check_root(root_rank, group)
    memory, shape, dtype, finish, rows = None, (), 0, None, ()
    if group.rank() == root:
        if array is None:
            raise ValueError(f"scatter: worker {root} is the root, and must pass the tensor to split")
        memory, shape, dtype, finish = kit.read(array)
        rows = _parts("scatter", "sizes", sizes, shape, group)
    shape, dtype, rows = _announce("scatter", root, shape, dtype, rows, priority, group)
    target, result = kit.make((rows[group.rank()], *shape[1:]), dtype)
    counts = _elements(rows, shape) if group.rank() == root else None
    native = _start("scatter", memory, target, counts, None, root=root, priority=priority, group=group)
    return Handle(native, result, finish)


def all_to_all(
    kit: Kit, array: Any, splits: Iterable[SupportsIndex] | None, priority: int, group: Group | None
) -> Handle[tuple[Any, Any]]:
    """Start an all_to_all; with splits, tell them to the others first. The result is (array, the rows from each)."""
    group = party(group)
    source = kit.read(array)
    sent = _parts("all_to_all", "splits", splits, source.shape, group)
    got = sent if splits is None else _exchange("all_to_all", source, sent, priority, group)
    target, result = kit.make((sum(got), *source.shape[1:]), source.dtype)
    counts = (None, None)
    if splits is not None:
        counts = (_elements(sent, source.shape), _elements(got, source.shape))
    native = _start("all_to_all", source.memory, target, *counts, priority=priority, group=group)

    def finish(output):
        return (source.finish(output[0]), output[1])

    return Handle(native, (result, kit.numbers(got)), None if source.finish is None else finish)


def send(
    kit: Kit, array: Any, destination: SupportsIndex, tag: int, priority: int, group: Group | None
) -> Handle[None]:
    """Start to send an array to one worker."""
    group = party(group)
    root = check_root(destination, group)
    native = _start("send", kit.read(array).memory, None, root=root, priority=priority, group=group, tag=tag)
    return Handle(native, None)


def recv(memory: Any, origin: SupportsIndex, tag: int, priority: int, group: Group | None) -> Any:
    """Start to receive an array from one worker, in memory as the extension takes it; return its handle."""
    group = party(group)
    root = check_root(origin, group)
    return _start("recv", None, memory, root=root, priority=priority, group=group, tag=tag)
