# SPDX-License-Identifier: Apache-2.0
"""Tensors in mode async: what all workers have pushed is in the value, and nobody waits."""

import time

import byteps
import byteps.numpy as bps
import checks
import numpy as np

COUNT = 300_001  # several partitions and slices, the last of them short
PUSHES = 20


def made(name, value, dtype="float64", count=COUNT):
    """Set the value; nobody pushes before all know it."""
    bps.declare(name, mode="async")
    first = np.full(count, value if bps.rank() == 0 else -1, dtype)
    assert np.all(bps.broadcast(first, 0, name=name) == value)
    bps.barrier()


def push(name, value, dtype="float64", count=COUNT, **how):
    return bps.push_pull(np.full(count, value, dtype), average=False, name=name, **how)


def total():
    """What all workers push in a check, each its rank + 1."""
    return PUSHES * sum(range(1, bps.size() + 1))


def check_all_pushes_are_in_the_value():
    for dtype in ("float64", "float32", "int32", "float16"):
        name = f"value of {dtype}"
        made(name, 5, dtype)
        seen = 5
        for _ in range(PUSHES):
            result = push(name, bps.rank() + 1, dtype)
            assert result.min() >= seen + bps.rank() + 1, (result.min(), seen)
            seen = result.min()
        bps.barrier()
        assert np.all(push(name, 0, dtype) == 5 + total())
        bps.barrier()


def check_nobody_waits():
    made("alone", 0)
    if bps.rank() == bps.size() - 1:
        for _ in range(PUSHES):
            result = push("alone", 1)
        assert np.all(result == PUSHES)
    bps.barrier()


def check_in_place_and_scales():
    made("scaled", 1)
    bps.barrier()
    value = np.full(COUNT, 3.0)
    if bps.rank() == 0:
        bps.push_pull_inplace(value, average=True, name="scaled", prescale_factor=2 * bps.size())
        assert np.allclose(value, 7), value
    bps.barrier()


def check_empty_and_scalar():
    made("empty", 0, count=0)
    assert push("empty", 1, count=0).shape == (0,)
    made("one", 2, count=1)
    bps.barrier()
    assert push("one", 1, count=1)[0] >= 3


def check_broadcast_again():
    """A checkpoint was loaded, for instance."""
    made("again", 1)
    push("again", 1)
    bps.barrier()
    made("again", 40)
    bps.barrier()
    assert np.all(push("again", 0) == 40)
    bps.barrier()


def check_refused():
    bps.declare("unset", mode="async")
    checks.raised(byteps.Error, lambda: push("unset", 1), "broadcast it first")
    made("refused", 1)
    small = np.ones(COUNT)
    checks.raised(byteps.Error, lambda: bps.push_pull(small, name="refused", op=bps.Max), "sum and average")
    checks.raised(byteps.Error, lambda: push("refused", 1, postscale_factor=2.0), "postscale")
    checks.raised(byteps.Error, lambda: push("refused", 1, count=5), "mode async")
    checks.raised(byteps.Error, lambda: bps.declare("refused", mode="sync"), "mode async, not sync")
    checks.raised(ValueError, lambda: bps.declare("refused", mode="other"), "'sync', 'async'")
    assert np.all(push("refused", 0) == 1)
    bps.barrier()


def check_two_modes():
    if bps.size() == 1:
        return
    bps.declare("two", mode="async" if bps.rank() == 0 else "sync")
    if bps.rank() == 0:
        bps.broadcast(np.ones(4), 0, name="two")
    bps.barrier()
    if bps.rank() == 1:
        checks.raised(byteps.Error, lambda: bps.push_pull(np.ones(4), name="two"), "mode async")
    bps.barrier()


def check_synchronous_ones_beside_them():
    made("beside", 0)
    for step in range(PUSHES):
        push("beside", 1)
        assert np.all(bps.push_pull(np.ones(1000), average=False, name="sync") == bps.size()), step
    if bps.rank() == 0:
        time.sleep(0.05)
    bps.barrier()
    assert np.all(push("beside", 0) == PUSHES * bps.size())
    bps.barrier()


def in_step():
    """With worker.staleness = 0: what synchronous training has."""
    made("in step", 0)
    for step in range(1, PUSHES):
        result = push("in step", bps.rank() + 1)
        assert np.all(result == step * sum(range(1, bps.size() + 1))), (step, result)
        if bps.rank() == 0:
            time.sleep(0.002)


def not_far():
    """With worker.staleness = 2: the fast one is never more than 3 pushes ahead of what it gets."""
    made("not far", 0)
    for step in range(1, PUSHES):
        result = push("not far", 1)
        least = step + (bps.size() - 1) * max(0, step - 2)
        assert result.min() >= least, (step, result.min(), least)
        if bps.rank() == 0:
            time.sleep(0.005)


if __name__ == "__main__":
    checks.main(globals(), bps)
