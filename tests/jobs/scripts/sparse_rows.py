# SPDX-License-Identifier: Apache-2.0
"""Rows of a table: only those that somebody has touched travel, and their sums are those of dense tensors."""

import byteps
import byteps.numpy as bps
import checks
import numpy as np

TYPES = ("float32", "float64", "float16", "int32", "int64")


def brought(seed, rank, rows, width, most, dtype):
    """What a worker brings: some rows twice."""
    random = np.random.default_rng(1000 * seed + rank)
    count = int(random.integers(0, most + 1))
    indices = random.integers(0, rows, count)
    values = random.integers(-4, 5, (count, *width)).astype(dtype)
    return indices, values


def expected(seed, rows, width, most, dtype, average):
    table = np.zeros((rows, *width), dtype)
    touched = np.zeros(rows, bool)
    for rank in range(bps.size()):
        indices, values = brought(seed, rank, rows, width, most, dtype)
        np.add.at(table, indices, values)
        touched[indices] = True
    index = np.flatnonzero(touched)
    result = table[index]
    if average:
        whole = np.issubdtype(dtype, np.integer)
        result = result // bps.size() if whole else (result / np.asarray(bps.size(), dtype)).astype(dtype)
    return index, result


def same(got, want):
    assert np.array_equal(got[0], want[0]), (got[0], want[0])
    assert got[0].dtype == np.int64
    assert got[1].dtype == want[1].dtype
    assert got[1].shape == want[1].shape, (got[1].shape, want[1].shape)
    assert np.allclose(got[1], want[1], 1e-3 if want[1].dtype == np.float16 else 1e-6), (got[1], want[1])


def check_sums_and_averages():
    seed = 0
    for dtype in TYPES:
        for rows, width, most in ((1, (3,), 4), (1000, (17,), 60), (5000, (), 200), (300, (5, 7), 900)):
            for average in (True, False):
                seed += 1
                indices, values = brought(seed, bps.rank(), rows, width, most, dtype)
                kept = values.copy()
                got = bps.push_pull_sparse(indices, values, rows, f"table {dtype} {rows}", average)
                same(got, expected(seed, rows, width, most, dtype, average))
                assert np.array_equal(values, kept)


def check_many_rounds_in_flight():
    handles = []
    for table in range(6):
        handles.append(
            bps.push_pull_sparse_async(*brought(table, bps.rank(), 2000, (64,), 100, "float32"), 2000, f"many {table}",
                                       average=False, priority=table)
        )
    for table, handle in enumerate(handles):
        want = expected(table, 2000, (64,), 100, "float32", False)
        same(bps.synchronize(handle), want)
        same(bps.synchronize(handle), want)


def check_nobody_brings_anything():
    index, values = bps.push_pull_sparse(np.zeros(0, int), np.zeros((0, 8), "float32"), 100, "nothing")
    assert index.shape == (0,)
    assert values.shape == (0, 8)


def check_one_brings_all():
    mine = np.arange(5000) if bps.rank() == 0 else np.zeros(0, int)
    values = np.ones((len(mine), 33), "float32")
    index, result = bps.push_pull_sparse(mine[::-1], values, 5000, "all", average=False)
    assert np.array_equal(index, np.arange(5000))
    assert np.all(result == 1)


def some_rows(rank, rows, width, percent):
    """What a worker brings of a table: rows ascending, each once, so many of a hundred."""
    random = np.random.default_rng(rank)
    indices = np.flatnonzero(random.integers(0, 100, rows) < percent)
    return indices, random.integers(-4, 5, (len(indices), width)).astype("float32")


def check_densities():
    """From few rows to all: alike on all workers, and all by one of them and a part by the others."""
    for width, rows in ((1, 40000), (5, 8000), (64, 700)):
        for percents in ((2,), (50,), (97,), (100,), (100, 40)):
            all_brought = [some_rows(r, rows, width, percents[r % len(percents)]) for r in range(bps.size())]
            table = np.zeros((rows, width), "float32")
            touched = np.zeros(rows, bool)
            for indices, values in all_brought:
                table[indices] += values
                touched[indices] = True
            index = np.flatnonzero(touched)
            got = bps.push_pull_sparse(*all_brought[bps.rank()], rows, f"dense {width} {percents}", average=False)
            same(got, (index, table[index]))


def check_scales():
    index, result = bps.push_pull_sparse(
        [7, 7, 3], np.ones((3, 2), "float32"), 10, "scaled", average=False, prescale_factor=bps.rank() + 1.0,
        postscale_factor=0.5,
    )
    total = sum(range(1, bps.size() + 1)) / 2
    assert list(index) == [3, 7]
    assert np.all(result == [[total], [2 * total]])


def check_table_of_another_size():
    for rows in (100, 200, 50):
        index, result = bps.push_pull_sparse([rows - 1], np.ones((1, 4), "float32"), rows, "grows", average=False)
        assert list(index) == [rows - 1]
        assert np.all(result == bps.size())


def check_rows_and_all_in_turn():
    """A table of which rows are sent, and all of it at other times."""
    for _ in range(3):
        index, result = bps.push_pull_sparse([1, 2], np.ones((2, 4), "float32"), 100, "in turn", average=False)
        assert list(index) == [1, 2]
        assert np.all(result == bps.size())
        assert np.all(bps.push_pull(np.ones((100, 4), "float32"), average=False, name="in turn") == bps.size())


def check_what_is_wrong():
    ones = np.ones((1, 4), "float32")
    checks.raised(byteps.Error, lambda: bps.push_pull_sparse([10], ones, 10, "wrong"), "row 10", "0..9")
    checks.raised(byteps.Error, lambda: bps.push_pull_sparse([-1], ones, 10, "wrong"), "row -1")
    checks.raised(byteps.Error, lambda: bps.push_pull_sparse([1], ones, 10, "wrong", op=bps.Max), "sum and average")
    checks.raised(ValueError, lambda: bps.push_pull_sparse([1, 2], ones, 10, "wrong"), "2 indices, and values of 1")
    checks.raised(ValueError, lambda: bps.push_pull_sparse([1], ones, 0, "wrong"), "rows be above 0")
    if bps.size() > 1:
        width = 4 + bps.rank() % 2
        error = checks.raised(
            byteps.MismatchError, lambda: bps.push_pull_sparse([1], np.ones((1, width), "float32"), 10, "differs")
        )
        assert "float32" in str(error), error
    index, _ = bps.push_pull_sparse([1], ones, 10, "wrong")
    assert list(index) == [1]


if __name__ == "__main__":
    checks.main(globals(), bps)
