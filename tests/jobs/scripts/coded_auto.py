# SPDX-License-Identifier: Apache-2.0
"""Tensors that are coded only where that pays: whole numbers through a coding that loses nothing of them.

Whatever has been found by then, all workers go the same way in each round, and the sums are exact.
"""

import checks
import numpy as np

import byteps
import byteps.numpy as bps

SIZES = (1, 300, 20_000, 300_000)


def numbers(rank, number, size):
    return np.random.default_rng([rank, number, size]).integers(-9, 9, size).astype(np.float32)


def total(number, size):
    return sum(numbers(rank, number, size) for rank in range(bps.size()))


def one_round(number, sizes=SIZES):
    handles = [bps.push_pull_async(numbers(bps.rank(), number, n), average=False, name=f"n{n}") for n in sizes]
    for size, handle in zip(sizes, handles):
        np.testing.assert_array_equal(bps.synchronize(handle), total(number, size))


def tried():
    """Rounds of some worker have been coded, and others not."""
    coded = np.array([byteps.coded_bytes()[0] > 0], np.int32)
    return bool(bps.push_pull(coded, op=bps.Max, name="tried.plain")[0])


def check_both_ways():
    for number in range(60):
        one_round(number)
    assert tried()


def check_rounds_that_fail():
    for number in range(60):
        one_round(number)
        if number % 7 == 3:
            size = 300 if bps.rank() == 0 else 301
            wrong = np.ones(size, np.float32)
            checks.raised(byteps.MismatchError, lambda wrong=wrong: bps.push_pull(wrong, name="n300"), "n300")


def check_a_size_that_changes():
    for number in range(60):
        size = 5000 + 100 * (number // 9 % 2)
        result = bps.push_pull(numbers(bps.rank(), number, size), average=False, name="changes")
        np.testing.assert_array_equal(result, total(number, size))


def check_all_the_time_under_way():
    """Tensors whose rounds overlap, so that there is no moment without."""
    names = [f"chain{i}" for i in range(4)]
    handles = {}
    for number in range(300):
        name = names[number % len(names)]
        if name in handles:
            np.testing.assert_array_equal(bps.synchronize(handles[name][0]), total(handles[name][1], 4000))
        mine = numbers(bps.rank(), number, 4000)
        handles[name] = (bps.push_pull_async(mine, average=False, name=name), number)
    for handle, number in handles.values():
        np.testing.assert_array_equal(bps.synchronize(handle), total(number, 4000))


def check_a_pause():
    for number in range(30):
        one_round(number)
    bps.suspend()
    bps.resume()
    for number in range(30):
        one_round(number)


def pays():
    """On a slow link most of what is sent is coded."""
    for number in range(60):
        bps.push_pull(numbers(bps.rank(), number, 100_000), name="slow")
    plain, coded = byteps.coded_bytes()
    if bps.rank() == 0:
        assert plain > 30 * 400_000 and coded < plain / 20, (plain, coded)


if __name__ == "__main__":
    checks.main(globals(), bps)
