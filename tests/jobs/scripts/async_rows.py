# SPDX-License-Identifier: Apache-2.0
"""Rows of tensors in mode async: what all workers have pushed to a row is in it, and each gets the rows it asks for."""

import byteps
import byteps.numpy as bps
import checks
import numpy as np

PUSHES = 12


def made(name, rows, width, dtype="float64"):
    """Set the value, each row of which is its number; nobody pushes before all know it."""
    bps.declare(name, mode="async")
    first = np.zeros((rows, *width), dtype)
    first += np.arange(rows).reshape(-1, *[1] * len(width)).astype(dtype)
    known = bps.broadcast(first if bps.rank() == 0 else np.zeros_like(first), 0, name=name)
    assert np.array_equal(known, first)
    bps.barrier()
    return first


def push(name, indices, values, rows, **how):
    return bps.push_pull_sparse(indices, values, rows, name, average=False, **how)


def brought(rank, number, rows, width, dtype):
    """What a worker pushes: some rows twice, and now and then none."""
    random = np.random.default_rng(100 * rank + number)
    count = int(random.integers(0, 80))
    return random.integers(0, rows, count), random.integers(0, 3, (count, *width)).astype(dtype)


def check_all_pushes_are_in_the_rows():
    tables = (("float64", 1009, (17,)), ("float32", 3001, ()), ("int32", 301, (5, 77)), ("float16", 64, (9001,)))
    for dtype, rows, width in tables:
        name = f"table of {dtype}"
        table = made(name, rows, width, dtype)
        seen = table.copy()
        for number in range(PUSHES):
            indices, values = brought(bps.rank(), number, rows, width, dtype)
            kept = values.copy()
            np.add.at(seen, indices, values)
            index, now = push(name, indices, values, rows)
            assert np.array_equal(values, kept)
            assert np.array_equal(index, np.unique(indices)), (index, indices)
            assert now.dtype == values.dtype and np.all(now >= seen[index])
            seen[index] = now
        bps.barrier()
        for rank in range(bps.size()):
            for number in range(PUSHES):
                np.add.at(table, *brought(rank, number, rows, width, dtype))
        index, now = push(name, range(rows), np.zeros_like(table), rows)
        assert np.array_equal(index, np.arange(rows)) and np.array_equal(now, table)
        assert np.array_equal(bps.push_pull(np.zeros_like(table), average=False, name=name), table)
        bps.barrier()


def check_all_and_rows_in_turn():
    table = made("in turn", 5000, (3,))
    for number in range(4):
        push("in turn", [number, 4999, number], np.ones((3, 3)), 5000)
        bps.push_pull(np.ones((5000, 3)), average=False, name="in turn")
    bps.barrier()
    table += 4 * bps.size()
    table[:4] += 2 * bps.size()
    table[4999] += 4 * bps.size()
    assert np.array_equal(push("in turn", range(5000), np.zeros((5000, 3)), 5000)[1], table)
    bps.barrier()


def check_average_and_scale():
    made("scaled", 10, (2,))
    if bps.rank() == 0:
        how = {"average": True, "prescale_factor": 2.0 * bps.size()}
        index, now = bps.push_pull_sparse([3, 1], np.ones((2, 2)), 10, "scaled", **how)
        assert index.tolist() == [1, 3] and now.tolist() == [[3, 3], [5, 5]], now
    bps.barrier()


def check_refused():
    bps.declare("unset rows", mode="async")
    checks.raised(byteps.Error, lambda: push("unset rows", [1], np.ones((1, 2)), 10), "broadcast it first")
    made("refused rows", 10, (2,))
    checks.raised(byteps.Error, lambda: push("refused rows", [10], np.ones((1, 2)), 10), "the tensor has rows 0..9")
    scaled = {"postscale_factor": 2.0}
    checks.raised(byteps.Error, lambda: push("refused rows", [1], np.ones((1, 2)), 10, **scaled), "postscale")
    checks.raised(byteps.Error, lambda: push("refused rows", [1], np.ones((1, 3)), 10), "mode async cannot change")
    bps.barrier()


def in_step():
    """With worker.staleness = 0 rows count as pushes of all do: an answer has those of all workers."""
    made("steps", 2000, (40,))
    for number in range(1, PUSHES + 1):
        _, now = push("steps", [7, 8 + bps.rank()], np.ones((2, 40)), 2000)
        assert np.all(now[0] == 7 + number * bps.size()), (number, now)
    bps.barrier()


if __name__ == "__main__":
    checks.main(globals(), bps)
