# SPDX-License-Identifier: Apache-2.0
"""Every operation of byteps.numpy with every type, against what NumPy computes from all workers' data."""

import functools
import time

import checks
import numpy as np

import byteps
import byteps.numpy as bps

FLOATS = ["float16", "float32", "float64"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8"]


def data(rank, dtype, shape, seed=0):
    """The tensor of a worker; small integers, so that all results are exact."""
    rng = np.random.default_rng([seed, rank])
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.integers(0 if dtype == "uint8" else -4, 5, shape).astype(dtype)


def expected(op, arrays):
    """The reduction, by NumPy."""
    dtype = arrays[0].dtype
    stack = np.stack(arrays)
    if dtype.kind == "b":
        return (stack.any if op in (bps.Sum, bps.Max) else stack.all)(axis=0)
    wide = stack.astype(np.float64 if dtype.kind == "f" else np.int64)
    if op == bps.Average:
        total = wide.sum(axis=0)
        return (total / len(arrays) if dtype.kind == "f" else total // len(arrays)).astype(dtype)
    by = {bps.Sum: np.sum, bps.Min: np.min, bps.Max: np.max, bps.Product: np.prod}[op]
    return by(wide, axis=0).astype(dtype)


def same(result, want, op=None):
    """Equal in type, shape and values; the average of floats may be rounded once more."""
    assert result.dtype == want.dtype and result.shape == want.shape, (result.dtype, result.shape, want.shape)
    if op == bps.Average and want.dtype.kind == "f":
        np.testing.assert_allclose(result, want, rtol=2 * np.finfo(want.dtype).eps)
    else:
        np.testing.assert_array_equal(result, want)


def everyone(dtype, shape, seed=0):
    return [data(rank, dtype, shape, seed) for rank in range(bps.size())]


def check_all_operations_of_all_types():
    for dtype in [*FLOATS, *INTEGERS, "bool"]:
        for op in bps.ReduceOp:
            if dtype == "bool" and op == bps.Average:
                continue
            arrays = everyone(dtype, (5, 7))
            mine = arrays[bps.rank()].copy()
            want = expected(op, arrays)
            name = f"{dtype}.{op.name}"
            result = bps.push_pull(mine, name=name, op=op)
            same(result, want, op)
            np.testing.assert_array_equal(mine, arrays[bps.rank()])  # the input is untouched
            assert bps.push_pull_inplace(mine, name=name, op=op) is mine
            same(mine, want, op)


def check_average_is_the_default():
    arrays = everyone("float32", 9)
    mine = arrays[bps.rank()]
    same(bps.push_pull(mine), expected(bps.Average, arrays), bps.Average)
    same(bps.push_pull(mine, True), expected(bps.Average, arrays), bps.Average)
    same(bps.push_pull(mine, False), expected(bps.Sum, arrays))
    checks.raised(ValueError, lambda: bps.push_pull(mine, op="median"), "Product")


def check_average_and_op():
    def mine():
        return np.array([bps.rank() + 1.0])

    at_once = (bps.push_pull, bps.push_pull_inplace)
    later = (bps.push_pull_async, bps.push_pull_async_inplace)
    checks.average_and_op(
        bps,
        *(lambda reduce=reduce, **given: reduce(mine(), **given)[0] for reduce in at_once),
        *(lambda reduce=reduce, **given: reduce(mine(), **given).wait()[0] for reduce in later),
    )


def check_wide_range_of_integers():
    info = np.iinfo(np.int64)
    mine = np.array([info.max, info.min, 1 << 60, -1], np.int64)
    with np.errstate(over="ignore"):
        want = mine * np.int64(bps.size())
    same(bps.push_pull(mine, op=bps.Sum), want)
    same(bps.push_pull(mine, op=bps.Max), mine)


def check_averages_of_large_floats():
    """The mean is a number of the type, the sum is none."""
    for dtype in FLOATS:
        for count in (3, 300_000):
            mine = np.resize([1, -1, 0.5], count).astype(dtype) * (np.finfo(dtype).max * np.dtype(dtype).type(0.75))
            for name in (None, f"large.{dtype}.{count}"):
                same(bps.push_pull(mine, name=name), mine, bps.Average)


def check_averages_of_integers():
    """Sums that the type does not hold, and means below 0, in tensors of any size."""
    for dtype in INTEGERS:
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        rows = [
            [high] * bps.size(),
            [low] * bps.size(),
            [low, *[high] * (bps.size() - 1)],
            [high, *[low] * (bps.size() - 1)],
            [high - rank for rank in range(bps.size())],
            [low + rank for rank in range(bps.size())],
            [100] * bps.size(),
            [max(low, -1), *[0] * (bps.size() - 1)],
        ]
        for repeats in (1, 5001):
            mine = np.array([row[bps.rank()] for row in rows] * repeats, dtype)
            want = np.array([sum(row) // len(row) for row in rows] * repeats, dtype)
            name = f"mean.{dtype}.{repeats}"
            same(bps.push_pull(mine, name=name, op=bps.Average), want)
            same(bps.push_pull_async(mine, name=name, op=bps.Average).wait(), want)
            same(bps.push_pull(mine, op=bps.Average), want)
            same(bps.push_pull_inplace(mine, name=name, op=bps.Average), want)


def check_sizes_and_shapes():
    for shape in [(), (1,), (0,), (3, 0, 2), (1, 1, 1), (1000003,), (64, 128, 3)]:
        arrays = everyone("float32", shape, seed=1)
        same(bps.push_pull(arrays[bps.rank()], op=bps.Sum), expected(bps.Sum, arrays))
        same(bps.push_pull(arrays[bps.rank()], op=bps.Sum, name=f"shape{shape}"), expected(bps.Sum, arrays))


def check_scale_factors():
    arrays = everyone("float64", 100)
    factors = [2.0 + rank for rank in range(bps.size())]
    result = bps.push_pull(
        arrays[bps.rank()], op=bps.Sum, prescale_factor=factors[bps.rank()], postscale_factor=0.5
    )
    np.testing.assert_allclose(result, sum(a * f for a, f in zip(arrays, factors)) * 0.5, rtol=1e-15)


def check_scale_factors_of_integers():
    """Computed in float64 and truncated, each contribution and the result; what does not fit is the limit."""
    size, values = bps.size(), [-100, -7, -1, 0, 3, 99]
    for dtype in ("int8", "int16", "int32", "int64"):
        own = np.array(values, dtype)
        for factor in (0.5, 0.37, -0.25, 1 / 3):
            part = np.trunc(own * factor)
            same(bps.push_pull(own, op=bps.Sum, prescale_factor=factor), (part * size).astype(dtype))
            same(bps.push_pull(own, op=bps.Min, prescale_factor=factor), part.astype(dtype))
            result = bps.push_pull(np.array([5, -5], dtype), op=bps.Sum, postscale_factor=factor)
            same(result, np.trunc(np.array([5, -5]) * size * factor).astype(dtype))
            result = bps.push_pull(own, postscale_factor=factor)
            same(result, np.trunc(own.astype(float) * size * factor / size).astype(dtype))
        limits = np.iinfo(dtype)
        result = bps.push_pull(np.array([limits.max, limits.min], dtype), op=bps.Max, prescale_factor=3.0)
        same(result, np.array([limits.max, limits.min], dtype))
    # One worker may scale what the others do not.
    factor = 0.5 if bps.rank() == 0 else 1.0
    result = bps.push_pull(np.array([7, 8], np.uint8), op=bps.Sum, name="weights", prescale_factor=factor)
    same(result, np.array([3 + 7 * (size - 1), 4 + 8 * (size - 1)], np.uint8))


def check_memory_layouts():
    arrays = everyone("float32", (6, 8))
    want = expected(bps.Sum, arrays)
    mine = arrays[bps.rank()]
    wide = np.zeros((6, 16), np.float32)
    wide[:, ::2] = mine
    same(bps.push_pull(wide[:, ::2], op=bps.Sum), want)
    bps.push_pull_inplace(wide[:, ::2], op=bps.Sum)
    same(wide[:, ::2], want)
    assert not wide[:, 1::2].any()
    fortran = np.asfortranarray(mine)
    same(bps.push_pull(fortran, op=bps.Sum), want)
    bps.push_pull_inplace(fortran, op=bps.Sum)
    same(fortran, want)
    odd = np.zeros(mine.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(mine.shape)
    odd[...] = mine
    same(bps.push_pull_inplace(odd, op=bps.Sum), want)
    mine.flags.writeable = False
    same(bps.push_pull(mine, op=bps.Sum), want)
    same(bps.push_pull([1, 2], op=bps.Sum), np.array([1, 2]) * bps.size())
    assert bps.push_pull(3.0) == 3.0


class Foreign:
    """A tensor of another framework, known by its __dlpack__ only."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        if keywords.get("stream") is not None:
            raise ValueError("stream")
        keywords.pop("stream", None)
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Old(Foreign):
    """The same from the time before versions."""

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


def check_other_frameworks():
    for kind in (Foreign, Old):
        arrays = everyone("int32", 11)
        mine = arrays[bps.rank()].copy()
        same(bps.push_pull(kind(mine), op=bps.Sum), expected(bps.Sum, arrays))
        bps.push_pull_inplace(kind(mine), op=bps.Sum)
        same(mine, expected(bps.Sum, arrays))


def check_what_cannot_be_sent():
    read_only = np.zeros(3)
    read_only.flags.writeable = False
    checks.raised(ValueError, lambda: bps.push_pull_inplace(read_only), "read-only")
    checks.raised((ValueError, BufferError), lambda: bps.push_pull_inplace(Foreign(read_only)))
    checks.raised(TypeError, lambda: bps.push_pull(np.zeros(3, ">f4")), "byte order")
    checks.raised(TypeError, lambda: bps.push_pull(np.zeros(3, np.complex128)), "complex128")
    checks.raised(TypeError, lambda: bps.push_pull(np.zeros(3, np.uint32)), "uint32")
    checks.raised(TypeError, lambda: bps.push_pull(np.array(["text"])), "<U4")
    checks.raised(TypeError, lambda: bps.push_pull_inplace(np.array([object()])), "object")
    checks.raised(TypeError, lambda: bps.push_pull_inplace([1.0]), "__dlpack__")
    masked = np.ma.masked_array([1.0, 2.0], [True, False])
    fields = np.zeros(3, [("a", "f4"), ("b", ">i4")])
    for call in (bps.push_pull, bps.push_pull_inplace, bps.push_pull_async, lambda array: bps.broadcast(array, 0)):
        checks.raised(TypeError, lambda call=call: call(masked), "masked", "filled(")
        checks.raised(TypeError, lambda call=call: call(masked[::-1]), "masked", "filled(")
        checks.raised(TypeError, lambda call=call: call(fields), "fields", "'a', 'b'")
    checks.raised(ValueError, lambda: bps.push_pull_inplace(Foreign(np.zeros((4, 4))[:, ::2])), "contiguous")


def check_started_and_not_waited_for():
    """However promptly an application has waited for small arrays, one that it leaves alone goes on."""
    mine = np.full(1000, bps.rank(), np.float32)
    for turn in range(3):
        for i in range(40):
            handle = bps.push_pull_async(mine + i, name="prompt", op=bps.Sum)
            same(handle.wait(), expected(bps.Sum, [np.full(1000, r + i, np.float32) for r in range(bps.size())]))
        alone = bps.push_pull_async(mine, name="alone", op=bps.Sum)
        while not alone.poll():
            time.sleep(0.001)
        dropped = [bps.push_pull_async(mine, name=f"dropped.{turn}", op=bps.Sum) for _ in range(1)]
        del dropped
        bps.push_pull(mine, name="next")
    bps.barrier()


def check_many_in_flight():
    arrays = [everyone("float32", 1000 + i, seed=i) for i in range(200)]
    handles = [
        bps.push_pull_async(a[bps.rank()], name=f"many.{i}", op=bps.Sum, priority=i % 7)
        for i, a in enumerate(arrays)
    ]
    for handle, a in reversed(list(zip(handles, arrays))):
        same(bps.synchronize(handle), expected(bps.Sum, a))
        assert bps.poll(handle)
    inplace = [a[bps.rank()].copy() for a in arrays]
    handles = [bps.push_pull_async_inplace(a, op=bps.Sum) for a in inplace]
    for handle, mine, a in zip(handles, inplace, arrays):
        assert bps.synchronize(handle) is mine
        assert bps.synchronize(handle) is mine  # again
        same(mine, expected(bps.Sum, a))


def check_declared_in_another_order():
    names = [f"declared.{i}" for i in range(20)]
    for name in names if bps.rank() % 2 else reversed(names):
        bps.declare(name)
    handles = {}
    for i in range(20) if bps.rank() % 2 else reversed(range(20)):
        handles[i] = bps.push_pull_async(np.full(3, float(i)), name=names[i], op=bps.Sum)
    for i, handle in handles.items():
        same(handle.wait(), np.full(3, float(i * bps.size())))


def check_a_shape_that_changes():
    """Of as many bytes: the job gives the tensor another place, with another leader, as others have come meanwhile."""
    total = sum(range(bps.size()))
    mine = np.full((300, 40), float(bps.rank()))
    same(bps.push_pull(mine, name="changing", op=bps.Sum), np.full(mine.shape, float(total)))
    for i, count in enumerate((11250, 37500, 25000, 25000)):
        bps.push_pull(np.zeros(count), name=f"between {i}")
    mine = mine.reshape(40, 300)
    for _ in range(2):
        same(bps.push_pull(mine, name="changing", op=bps.Sum), np.full(mine.shape, float(total)))


def check_dropped_handles():
    for i in range(20):
        bps.push_pull_async(np.full(1000, 1.0), name=f"dropped.{i}", op=bps.Sum)
        bps.push_pull_async_inplace(np.full(1000, 1.0), op=bps.Sum)
    same(bps.push_pull(np.full(3, 2.0), name="after", op=bps.Sum), np.full(3, 2.0 * bps.size()))


def check_a_dropped_handle_blocks_nothing():
    """An asynchronous call does not wait for the others, whatever has become of the last one's handle."""
    other = bps.rank() == bps.size() - 1 and bps.size() > 1
    if not other:
        bps.push_pull_async(np.full(3, 1.0), name="lost")
        if bps.size() > 1:  # the last worker comes only after the next line
            for error in (byteps.BusyError, ValueError):
                again = functools.partial(bps.push_pull_async, np.full(3, 1.0), name="lost")
                checks.raised(error, again, "byteps.lost", "dropped")
    bps.barrier()
    if other:
        bps.push_pull(np.full(3, 1.0), name="lost")
    same(bps.push_pull(np.full(3, 2.0), name="lost"), np.full(3, 2.0))  # this one waits


def check_broadcast_is_exact():
    special = np.array([0x7FC00001, 0x7F800001, 0xFFFFFFFF, 0x80000000, 0x7F800000, 1], np.uint32)
    for root in range(bps.size()):
        mine = special.view(np.float32).copy() if bps.rank() == root else np.full(6, np.nan, np.float32)
        np.testing.assert_array_equal(bps.broadcast(mine, root, "b").view(np.uint32), special)
        assert bps.broadcast_inplace(mine, root) is mine
        np.testing.assert_array_equal(mine.view(np.uint32), special)
        for dtype in [*FLOATS, *INTEGERS, "bool"]:
            same(bps.broadcast(data(bps.rank(), dtype, (3, 4)), root), data(root, dtype, (3, 4)))
        same(bps.broadcast_async(data(bps.rank(), "int8", 0), root).wait(), data(root, "int8", 0))
    checks.raised(ValueError, lambda: bps.broadcast(np.zeros(1), bps.size()), "root_rank")
    checks.raised(ValueError, lambda: bps.broadcast(np.zeros(1), -1), "root_rank")


def check_barrier_and_ranks():
    assert 0 <= bps.rank() < bps.size() and 0 <= bps.local_rank() < bps.local_size() <= bps.size()
    for _ in range(20):
        bps.barrier()
    ranks = np.zeros(bps.size(), np.int64)
    ranks[bps.rank()] = 1
    same(bps.push_pull(ranks, op=bps.Sum), np.ones(bps.size(), np.int64))
    bps.init()  # does nothing


if __name__ == "__main__":
    checks.main(globals(), bps)
