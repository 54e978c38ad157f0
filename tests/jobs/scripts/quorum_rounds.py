# SPDX-License-Identifier: Apache-2.0
"""Rounds that end without the slowest of four workers: files in $FOLDER tell who has come how far."""

import os
import pathlib
import time

import byteps.numpy as bps
import checks
import numpy as np

FOLDER = pathlib.Path(os.environ["FOLDER"])
COUNT = 300_001  # several partitions and slices, the last of them short
ROUNDS = 5


def tell(word):
    (FOLDER / f"{word} {bps.rank()}").touch()


def wait_for(word, *ranks):
    while not all((FOLDER / f"{word} {rank}").exists() for rank in ranks):
        time.sleep(0.01)


def last_comes_late(name, average, dtype):
    """Make all rounds, the last worker after all others. Returns the results."""
    if bps.rank() == 3:
        wait_for(name, 0, 1, 2)
    own = np.full(COUNT, bps.rank() + 1, dtype)
    results = [bps.push_pull(own * (i + 1), average=average, name=name).copy() for i in range(ROUNDS)]
    tell(name)
    return results


def check_what_comes_late_is_dropped():
    for dtype in ("float32", "float64", "int32", "float16"):
        for average in (True, False):
            results = last_comes_late(f"late {average} {dtype}", average, dtype)
            for i, result in enumerate(results):
                assert np.all(result == (2 if average else 6) * (i + 1)), (dtype, average, result.min(), result.max())


def check_broadcasts_wait_for_all():
    if bps.rank() == 3:
        tell("broadcasts")
    result = bps.broadcast(np.full(COUNT, bps.rank(), "float32"), 3, name="root is last")
    assert (FOLDER / "broadcasts 3").exists()
    assert np.all(result == 3)


def check_any_worker_may_be_late():
    """Who is late in one round is in the next one: its result needs it."""
    for late in range(4):
        if bps.rank() == late:
            wait_for(f"turn {late}", *(rank for rank in range(4) if rank != late))
        result = bps.push_pull(np.full(COUNT, 1 << bps.rank(), "float32"), average=False, name="turns")
        assert np.all(result == 15 - (1 << late)), (late, result.min(), result.max())
        tell(f"turn {late}")
        bps.barrier()


def check_feedback_of_what_is_dropped():
    """topk with k = 1: had the error of a round that was dropped grown, another element would be sent."""
    own = np.array([3, 2, 0, 0] if bps.rank() == 3 else [0, 0, 0, 0], "float32")
    for i in range(3):
        last = 3 if i < 2 else 0
        if bps.rank() == last:
            wait_for(f"coded {i}", *(rank for rank in range(4) if rank != last))
        result = bps.push_pull(own, average=False, name="coded")
        assert list(result) == ([0, 0, 0, 0] if i < 2 else [3, 0, 0, 0]), (i, result)
        tell(f"coded {i}")
        bps.barrier()


def check_worker_that_leaves_early():
    """The last check: rounds that have ended do not need it, and who is late still gets them."""
    if bps.rank() == 3:
        wait_for("leaves", 0, 1, 2)
    result = bps.push_pull(np.full(COUNT, 1, "float32"), average=False, name="the last one")
    assert np.all(result == 3)
    tell("leaves")


if __name__ == "__main__":
    checks.main(globals(), bps)
