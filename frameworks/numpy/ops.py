# SPDX-License-Identifier: Apache-2.0
"""push_pull and broadcast of arrays."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, overload

import numpy as np

from byteps._basics import Handle, choose_op, full_name, run_push_pull, shared_buffer, start
from byteps._groups import check_root, number_of, party
from byteps._native import bps as _bps

if TYPE_CHECKING:
    from typing import Any, Protocol, Sequence, SupportsIndex, TypeVar

    from numpy.typing import ArrayLike, DTypeLike, NDArray

    from byteps._basics import ReduceOp
    from byteps._groups import Group
    from byteps._types import T

    class _SupportsDLPack(Protocol):
        def __dlpack__(self) -> Any: ...

        def __dlpack_device__(self) -> Any: ...

    # The result of what has __dlpack__ is of the same kind, but that of a subclass of ndarray is an ndarray.
    Exchanged = TypeVar("Exchanged", bound=_SupportsDLPack)
    Shape = TypeVar("Shape", bound="tuple[Any, ...]")
    Type = TypeVar("Type", bound="np.dtype[Any]")
    Scalar = TypeVar("Scalar", bound=np.generic)

# Frameworks whose arrays never change, though the memory that they show seems writable.
_IMMUTABLE = ("jax", "jaxlib", "pyarrow", "tensorflow")

_ndarray = np.ndarray
_HOST = (1, 3, 11)  # types of devices in DLPack: memory of the host, also where CUDA or ROCm has pinned it

# What NumPy gives away by DLPack, in this machine's byte order. Before NumPy 2, that was all but bool. The types of
# the package ml_dtypes are no part of it.
_PLAIN = {np.dtype(name) for name in _bps.dtypes if name not in ("bfloat16", "float8_e4m3fn", "float8_e5m2")}
if int(np.__version__.partition(".")[0]) < 2:
    _PLAIN.remove(np.dtype(bool))


@overload
def empty(shape: SupportsIndex | Sequence[SupportsIndex]) -> NDArray[np.float64]: ...
@overload
def empty(
    shape: SupportsIndex | Sequence[SupportsIndex], dtype: np.dtype[Scalar] | type[Scalar]
) -> NDArray[Scalar]: ...
@overload
def empty(shape: SupportsIndex | Sequence[SupportsIndex], dtype: DTypeLike = float) -> NDArray[Any]: ...
def empty(shape: SupportsIndex | Sequence[SupportsIndex], dtype: DTypeLike = float) -> NDArray[Any]:
    """Return a new array in shared memory, where push_pull with workers of the same host is fastest.

    Use it for arrays that live long: each call takes a descriptor. The memory is freed with the last array in
    it, also after shutdown(). A forked child does not share it, and finds zeros. Where there is no such
    memory, it is an ordinary array.

    Args:
        shape, dtype: as for numpy.empty().
    """
    array = np.empty(shape, dtype)
    buffer: Any = shared_buffer(array.nbytes)
    return array if buffer is None else np.ndarray(shape, dtype, buffer)


def check(array):
    """Raise if an ndarray does not say by itself, in numbers, what its elements are."""
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError("the array is masked, and the mask is not sent; fill it with array.filled(value)")
    if array.dtype.names is not None:
        raise TypeError(f"the array has fields, {array.dtype.names}; give them one by one, as array[name]")


def _memory(array):
    """Return what the extension takes for a contiguous ndarray that may be written."""
    return array if array.dtype in _PLAIN else place(array)


def place(array):
    """Return what the extension takes for a contiguous ndarray that may be read-only."""
    dtype = array.dtype
    if not dtype.isnative:
        raise TypeError(
            f"the array has foreign byte order ({dtype.str}); convert it with "
            "array.astype(array.dtype.newbyteorder('='))"
        )
    if dtype.name not in _bps.dtypes:
        raise TypeError(f"an array of type {dtype} is not supported; supported are {', '.join(_bps.dtypes)}")
    return array.ctypes.data, array.shape, _bps.dtypes[dtype.name], array


def _framework(array):
    """Return the name of the framework that an array is of."""
    return type(array).__module__.partition(".")[0]


def _namespace(array):
    """Return what has the functions for arrays of this kind, from_dlpack() and empty_like(); None: not known."""
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__()
    module = sys.modules.get(_framework(array))
    return module if hasattr(module, "from_dlpack") else None


def _from_dlpack(array):
    """Return the ndarray that shares the memory of another framework's array."""
    try:
        return np.from_dlpack(array)
    except (BufferError, RuntimeError) as error:
        raise TypeError(
            f"NumPy cannot take this {type(array).__module__}.{type(array).__qualname__}: {error}"
        ) from error


def as_ndarray(array):
    """Return the ndarray that has the elements, and what makes an array of the same framework of an ndarray, or None.

    None alone: they are in the memory of a device.
    """
    if isinstance(array, np.ndarray):
        return array, None
    if not hasattr(array, "__dlpack__"):
        return np.asarray(array), None
    if array.__dlpack_device__()[0] not in _HOST:
        return None
    namespace = _namespace(array)
    return _from_dlpack(array), None if namespace is None else namespace.from_dlpack


def _into_new(array):
    """Return source and target for the extension, the new array that receives the result, and what finishes that.

    If the array has to be copied, the result comes into the copy: the target is None. finish(result) makes an array
    of the same framework of it, if that takes arrays; None: there is nothing to be done.
    """
    seen = as_ndarray(array)
    if seen is not None:
        return (*_into_ndarray(seen[0]), seen[1])
    namespace = _namespace(array)
    if namespace is None:
        raise TypeError(
            f"a {type(array).__qualname__} on a device: cannot make a new one, because it has no "
            "__array_namespace__(); use push_pull_inplace() with a copy"
        )
    result = namespace.empty_like(array)
    return array, result, result, None


def _into_ndarray(source):
    check(source)
    if source.flags.c_contiguous and source.flags.writeable:
        result = np.empty(source.shape, source.dtype)
        return _memory(source), _memory(result), result
    result = np.array(source, order="C", subok=False)
    return _memory(result), None, result


def in_place(array):
    """Return what the extension takes, and a function that brings the result into the array, or None."""
    if type(array) is _ndarray and array.dtype in _PLAIN and array.flags.carray:  # most are like that
        return array, None
    if _framework(array) in _IMMUTABLE:
        raise TypeError(f"a {type(array).__name__} cannot change; use the function that returns a new array")
    if not isinstance(array, np.ndarray):
        return array, None
    check(array)
    if not array.flags.writeable:
        raise ValueError("the array is read-only; give a copy, or use the function that returns a new array")
    if array.flags.c_contiguous:
        return _memory(array), None
    copy = np.array(array, order="C", subok=False)

    def finish(result):
        result[...] = copy
        return result

    return _memory(copy), finish


@overload
def push_pull_async(
    array: np.ndarray[Shape, Type],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    learning_rate: float = 0.0,
    group: Group | None = None,
) -> Handle[np.ndarray[Shape, Type]]: ...
@overload
def push_pull_async(
    array: Exchanged,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    learning_rate: float = 0.0,
    group: Group | None = None,
) -> Handle[Exchanged]: ...
@overload
def push_pull_async(
    array: ArrayLike,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    learning_rate: float = 0.0,
    group: Group | None = None,
) -> Handle[NDArray[Any]]: ...
def push_pull_async(
    array: Any,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    learning_rate: float = 0.0,
    group: Group | None = None,
) -> Handle[Any]:
    """Start a push_pull into a new array and return its Handle at once. Arguments as for push_pull()."""
    op = choose_op(average, op)
    source, target, result, finish = _into_new(array)
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
    return Handle(native, result, finish)


def push_pull_async_inplace(
    array: T,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    learning_rate: float = 0.0,
    group: Group | None = None,
) -> Handle[T]:
    """Start a push_pull in place and return its Handle at once. Arguments as for push_pull().

    Do not touch the array before synchronize(handle) has returned.
    """
    op = choose_op(average, op)
    memory, finish = in_place(array)
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
    return Handle(native, array, finish)


@overload
def push_pull(
    array: np.ndarray[Shape, Type],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    learning_rate: float = 0.0,
    group: Group | None = None,
) -> np.ndarray[Shape, Type]: ...
@overload
def push_pull(
    array: Exchanged,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    learning_rate: float = 0.0,
    group: Group | None = None,
) -> Exchanged: ...
@overload
def push_pull(
    array: ArrayLike,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    learning_rate: float = 0.0,
    group: Group | None = None,
) -> NDArray[Any]: ...
def push_pull(
    array: Any,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    learning_rate: float = 0.0,
    group: Group | None = None,
) -> Any:
    """Return the reduction of an array over all workers, as a new array. The argument is not changed.

    Args:
        array: an ndarray of any shape, anything with ``__dlpack__``, or a number. Shape and type must be
            the same on all workers. The result is an array of the same framework, on the same device, if the
            framework makes arrays of those of others; else an ndarray.
        average: True (the default): the mean; False: the sum. The average of integers is rounded down,
            and right even where their sum would not fit; a sum or product that does not fit wraps.
        name: of the tensor, the same on all workers. None: the n-th unnamed call meets the n-th of the
            others, of which only the number of elements is compared. Another shape or type than the last
            time under a name takes a moment longer.
        priority: larger is more urgent.
        op: Average, Sum, Min, Max or Product, instead of `average`.
        prescale_factor, postscale_factor: multiply each contribution and the result. Scaled integers are
            computed in float64 and truncated towards zero; bool cannot be scaled.
        learning_rate: of this step, if the tensor is coded on the network with error feedback: what was lost
            under another one is scaled by the ratio of both.
        group: of the workers that take part, see new_group(); its operations have no name. None: all workers.

    Raises:
        TypeError, ValueError: the array cannot be sent (element type, byte order, device).
        BusyError: this name is in flight already.
        MismatchError: the workers disagree about shape, type or operation. All of them get it.
        LostError, TimeoutError: a member of the job was lost, or does not answer.
    """
    op = choose_op(average, op)
    source, target, result, finish = _into_new(array)
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
    return result if finish is None else finish(result)


def push_pull_inplace(
    array: T,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    learning_rate: float = 0.0,
    group: Group | None = None,
) -> T:
    """Reduce an array over all workers in place and return it. Arguments and errors as for push_pull()."""
    op = choose_op(average, op)
    memory, finish = in_place(array)
    run_push_pull(
        memory, None, full_name(name), op, priority, prescale_factor, postscale_factor, learning_rate, number_of(group)
    )
    return array if finish is None else finish(array)


@overload
def broadcast_async(
    array: np.ndarray[Shape, Type],
    root_rank: int = 0,
    name: str | None = None,
    priority: int = 0,
    group: Group | None = None,
) -> Handle[np.ndarray[Shape, Type]]: ...
@overload
def broadcast_async(
    array: Exchanged, root_rank: int = 0, name: str | None = None, priority: int = 0, group: Group | None = None
) -> Handle[Exchanged]: ...
@overload
def broadcast_async(
    array: ArrayLike, root_rank: int = 0, name: str | None = None, priority: int = 0, group: Group | None = None
) -> Handle[NDArray[Any]]: ...
def broadcast_async(
    array: Any, root_rank: int = 0, name: str | None = None, priority: int = 0, group: Group | None = None
) -> Handle[Any]:
    """Start a broadcast into a new array and return its Handle at once. Arguments as for broadcast()."""
    root = check_root(root_rank, party(group))
    source, target, result, finish = _into_new(array)
    return Handle(
        start(_bps.broadcast, source, target, full_name(name), root, priority, number_of(group)), result, finish
    )


@overload
def broadcast(
    array: np.ndarray[Shape, Type],
    root_rank: int = 0,
    name: str | None = None,
    priority: int = 0,
    group: Group | None = None,
) -> np.ndarray[Shape, Type]: ...
@overload
def broadcast(
    array: Exchanged, root_rank: int = 0, name: str | None = None, priority: int = 0, group: Group | None = None
) -> Exchanged: ...
@overload
def broadcast(
    array: ArrayLike, root_rank: int = 0, name: str | None = None, priority: int = 0, group: Group | None = None
) -> NDArray[Any]: ...
def broadcast(
    array: Any, root_rank: int = 0, name: str | None = None, priority: int = 0, group: Group | None = None
) -> Any:
    """Return the array of worker root_rank, bit by bit the same, as a new array on every worker.

    Args:
        array: of the same shape and type on all workers; its values count on the root only.
        root_rank: the worker that sends.
        name, priority, group: as for push_pull(). In a group root_rank counts its members.
    """
    return broadcast_async(array, root_rank, name, priority, group).wait()


def broadcast_inplace(
    array: T, root_rank: int = 0, name: str | None = None, priority: int = 0, group: Group | None = None
) -> T:
    """Replace the array by that of worker root_rank, in place, and return it."""
    root = check_root(root_rank, party(group))
    memory, finish = in_place(array)
    return Handle(
        start(_bps.broadcast, memory, None, full_name(name), root, priority, number_of(group)), array, finish
    ).wait()
