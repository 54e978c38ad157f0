# SPDX-License-Identifier: Apache-2.0
"""reduce, reduce_scatter, all_gather, gather, scatter and all_to_all of arrays: even, uneven, empty, and wrong."""

import byteps
import byteps.numpy as bps
import checks
import numpy as np

TYPES = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool")


def brought(rank, rows, row=(3,), dtype="float32"):
    """What a worker brings."""
    count = rows * int(np.prod(row, dtype=int))
    return ((np.arange(count) * 7 + rank * 3) % 5).astype(dtype).reshape(rows, *row)


def all_of(rows, row=(3,), dtype="float32"):
    """What all bring; rows(rank) of them."""
    return [brought(rank, rows(rank), row, dtype) for rank in range(bps.size())]


def same(got, want):
    assert got.dtype == want.dtype, (got.dtype, want.dtype)
    assert got.shape == want.shape, (got.shape, want.shape)
    assert np.array_equal(got, want), (got, want)


def only_on(root, got, want):
    if bps.rank() == root:
        same(got, want)
    else:
        assert got is None, got


def check_types():
    n, last = bps.size(), bps.size() - 1
    for dtype in TYPES:
        everything = all_of(lambda _: 2 * n, dtype=dtype)
        mine = everything[bps.rank()]
        kept = mine.copy()
        part = slice(2 * bps.rank(), 2 * bps.rank() + 2)
        most = np.maximum.reduce(everything)
        only_on(last, bps.reduce(mine, last, op=bps.Max), most)
        same(bps.reduce_scatter(mine, op=bps.Max), most[part])
        same(bps.all_gather(mine), np.concatenate(everything))
        only_on(last, bps.gather(mine, last), np.concatenate(everything))
        same(bps.scatter(mine if bps.rank() == last else None, last), everything[last][part])
        result, splits = bps.all_to_all(mine)
        same(result, np.concatenate([one[part] for one in everything]))
        same(splits, np.full(n, 2))
        same(mine, kept)


def check_reductions():
    n = bps.size()
    mine = np.full((2 * n, 2), bps.rank() + 1.0)
    total = n * (n + 1) / 2
    one_each = np.full(n, bps.rank() + 1.0)
    checks.average_and_op(bps, lambda **how: bps.reduce_scatter(one_each, **how)[0])
    only_on(0, bps.reduce(mine), np.full_like(mine, total / n))
    only_on(0, bps.reduce(mine, average=False, prescale_factor=2, postscale_factor=3), np.full_like(mine, 6 * total))
    only_on(0, bps.reduce(mine, average=False, prescale_factor=0, postscale_factor=0), np.zeros_like(mine))
    same(bps.reduce_scatter(mine, average=False, postscale_factor=0.5), np.full((2, 2), total / 2))
    sizes = [0] * (n - 1) + [2 * n]
    same(bps.reduce_scatter(mine, sizes, op=bps.Min), np.ones((sizes[bps.rank()], 2)))


def check_uneven():
    n, rank = bps.size(), bps.rank()
    everything = all_of(lambda of: 1000 * (of % 3))  # of the first, nothing
    mine = everything[rank]
    sizes = [len(one) for one in everything]
    whole = np.concatenate(everything)
    for how in (None, sizes, np.array(sizes)):
        same(bps.all_gather(mine, how), whole)
        only_on(n - 1, bps.gather(mine, n - 1, how), whole)
    first = sum(sizes[:rank])
    same(bps.scatter(whole if rank == 0 else None, 0, sizes if rank == 0 else None), whole[first : first + sizes[rank]])
    rows = [[(a * 3 + b * 5) % 4 * 11 for b in range(n)] for a in range(n)]  # that a sends b
    result, splits = bps.all_to_all(brought(rank, sum(rows[rank])), rows[rank])
    parts = [np.split(brought(a, sum(rows[a])), np.cumsum(rows[a])[:-1])[rank] for a in range(n)]
    same(result, np.concatenate(parts))
    same(splits, np.array([rows[a][rank] for a in range(n)]))


def check_one_number_for_all_sizes():
    everything = all_of(lambda _: 5, ())
    same(bps.all_gather(everything[bps.rank()], 5), np.concatenate(everything))
    only_on(0, bps.gather(everything[bps.rank()], sizes=5), np.concatenate(everything))


def check_nothing_at_all():
    n = bps.size()
    nothing = np.zeros((0, 4))
    for result in (
        bps.all_gather(nothing),
        bps.all_gather(nothing, 0),
        bps.reduce_scatter(nothing),
        bps.scatter(nothing),
        bps.all_to_all(nothing)[0],
        bps.all_to_all(nothing, [0] * n)[0],
    ):
        same(result, nothing)
    only_on(0, bps.reduce(nothing), nothing)
    only_on(0, bps.gather(nothing), nothing)
    same(bps.all_gather(np.zeros((2, 0))), np.zeros((2 * n, 0)))


def check_no_dimension():
    n, rank = bps.size(), bps.rank()
    same(bps.all_gather(rank), np.arange(n))
    same(bps.all_gather(np.float32(rank), 1), np.arange(n, dtype="float32"))
    only_on(0, bps.gather(rank), np.arange(n))
    only_on(0, bps.reduce(np.array(rank), op=bps.Max), np.array(n - 1))
    for call in (bps.reduce_scatter, bps.all_to_all):
        checks.raised(ValueError, lambda: call(1.0), "a scalar cannot be split")  # noqa: B023


def check_layouts():
    """Not contiguous, read-only, of another framework, lists."""
    n = bps.size()
    mine = np.arange(6 * n).reshape(2 * n, 3)
    frozen = mine.copy()
    frozen.flags.writeable = False
    for one in (np.asfortranarray(mine), np.repeat(mine, 2, 0)[::2], frozen, mine.tolist()):
        same(bps.reduce_scatter(one, op=bps.Min), mine[2 * bps.rank() :][:2])
        same(bps.all_gather(one), np.concatenate([mine] * n))
        only_on(0, bps.reduce(one, op=bps.Max), mine)


def check_many_at_once():
    handles = []
    for i in range(20):
        mine = np.full((bps.size(), 3), i + bps.rank(), "int64")
        handles.append(bps.reduce_scatter_async(mine, op=bps.Min, priority=i))
        handles.append(bps.all_gather_async(mine, bps.size()))
        handles.append(bps.scatter_async(mine))
        handles.append(bps.all_to_all_async(mine))
        bps.gather_async(mine)  # nobody waits for it
        handles.append(bps.push_pull_async(mine, op=bps.Min))
    for i in range(20):
        least, gathered, part, (exchanged, _), pulled = [bps.synchronize(one) for one in handles[5 * i : 5 * i + 5]]
        same(least, np.full((1, 3), i))
        same(gathered[:: bps.size(), 0], i + np.arange(bps.size()))
        same(part, np.full((1, 3), i))
        same(exchanged[:, 0], i + np.arange(bps.size()))
        same(pulled, np.full((bps.size(), 3), i))
    assert handles[0].poll()
    same(handles[0].wait(), np.full((1, 3), 0))


def check_wrong_arguments():
    """Each says so by itself, and nothing is sent."""
    n = bps.size()
    mine = np.zeros((n, 2))
    more = np.zeros((n + 1, 2))
    for kind, call, *parts in (
        (ValueError, lambda: bps.all_gather(mine, n + 1), f"worker {bps.rank()} has {n + 1} rows; it gives {n}"),
        (ValueError, lambda: bps.all_gather(mine, [n] * (n + 1)), f"expected {n} numbers"),
        (ValueError, lambda: bps.reduce_scatter(mine, [-1] * n), "none below 0"),
        (ValueError, lambda: bps.all_to_all(mine, [2] * n), f"add up to {2 * n}; the first dimension is {n}"),
        (TypeError, lambda: bps.all_to_all(mine, [0.5] * n), "a sequence of integers"),
        (TypeError, lambda: bps.all_to_all(mine, 1), "a sequence of integers"),
        (ValueError, lambda: bps.reduce(mine, n), f"expected 0..{n - 1}"),
        (ValueError, lambda: bps.gather(mine, -1), f"expected 0..{n - 1}"),
        (TypeError, lambda: bps.all_gather(["a"]), "not supported"),
        (TypeError, lambda: bps.all_gather(np.zeros(2, ">f4")), "foreign byte order"),
        (TypeError, lambda: bps.reduce(np.ma.masked_array(mine)), "masked"),
        (ValueError, lambda: bps.reduce(mine, average=True, op=bps.Sum), "not both"),
    ):
        checks.raised(kind, call, *parts)
    if n > 1:
        checks.raised(ValueError, lambda: bps.reduce_scatter(more), f"not a multiple of the {n} workers", "sizes=")
        checks.raised(ValueError, lambda: bps.all_to_all(more), "splits=")
    if bps.rank() == 0:
        checks.raised(ValueError, lambda: bps.scatter(None), "worker 0 is the root")
    same(bps.all_gather(mine), np.zeros((n * n, 2)))


def check_differences():
    """All workers are told the same, and go on."""
    n = bps.size()
    if n == 1:
        return
    odd = bps.rank() == 1
    mine = np.zeros((n, 2), "float32")
    other = np.zeros((n, 3), "float32")
    for call in (
        lambda: bps.all_gather(other if odd else mine),
        lambda: bps.gather(mine.astype("int32") if odd else mine),
        lambda: bps.all_to_all(other if odd else mine, [1] * n),
        lambda: bps.all_to_all(other if odd else mine),
        lambda: bps.all_gather(mine, [n] * n) if odd else bps.all_gather(other, n),
        lambda: bps.reduce_scatter(mine.astype("int32") if odd else mine),
        lambda: bps.reduce(mine, op=bps.Min if odd else bps.Max),
        lambda: bps.reduce(mine, int(odd)),
        lambda: bps.reduce_scatter(mine) if odd else bps.all_to_all(mine),
        lambda: bps.push_pull(mine) if odd else bps.all_to_all(mine),
    ):
        error = checks.raised(byteps.MismatchError, call, "worker 1")
        texts = bps.all_gather(np.array([hash_of(str(error).partition("; shape #")[0])]), 1)
        assert len(set(texts)) == 1, error
        checks.raised(byteps.MismatchError, call, "worker 1")
    # Where others tell each other their sizes, one does what it likes.
    call = (lambda: bps.reduce(mine)) if odd else (lambda: bps.all_gather(mine))
    checks.raised(byteps.MismatchError, call, "worker 1")
    numbers = np.zeros(67, "int64")
    if odd:
        bps.all_gather(numbers, 67)
    else:
        checks.raised(byteps.MismatchError, lambda: bps.all_gather(numbers), "worker 1 called another function")


def hash_of(text):
    return sum(place * ord(letter) for place, letter in enumerate(text, 1))


def check_shutdown_in_flight():
    size = bps.size()
    mine = np.zeros((bps.size(), 1000))
    handle = bps.reduce_scatter_async(mine) if bps.rank() == 0 else None
    bps.shutdown()
    if handle is not None and size > 1:
        assert handle.poll()
        checks.raised(byteps.LostError, handle.wait, "has left the job")
        checks.raised(byteps.LostError, handle.wait, "has left the job")
    checks.raised(byteps.NotInitializedError, lambda: bps.all_gather(mine))
    checks.raised(byteps.NotInitializedError, lambda: bps.reduce(mine))
    bps.resume()


if __name__ == "__main__":
    checks.main(globals(), bps)
