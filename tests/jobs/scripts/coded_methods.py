# SPDX-License-Identifier: Apache-2.0
"""What holds for every compressor in a job, whatever it makes of a tensor: METHODS has them, as dictionaries."""

import json
import os

import checks
import numpy as np

import byteps.numpy as bps

METHODS = json.loads(os.environ["METHODS"])
COUNTS = (1, 2, 63, 64, 65, 1000, 50_001)


def each(ef=None):
    """The methods with a name for their tensors, declared once."""
    for number, method in enumerate(METHODS):
        name = f"{method['compressor']}.{number}.{ef}"
        bps.declare(name, {**method, **({"ef": ef} if ef else {})})
        yield name, method


def gradient(rank, number, count, dtype=np.float32):
    return np.random.default_rng([rank, number]).normal(size=count).astype(dtype)


def same_everywhere(array):
    mine = np.frombuffer(array.tobytes(), np.uint8)
    for op in (bps.Min, bps.Max):
        np.testing.assert_array_equal(bps.push_pull(mine, op=op), mine)


def check_all_workers_get_the_same_bytes():
    for name, _ in each():
        for dtype in (np.float16, np.float32, np.float64):
            for count in COUNTS:
                result = bps.push_pull(gradient(bps.rank(), 1, count, dtype), name=name)
                assert result.dtype == dtype and np.isfinite(result).all(), (name, count, dtype)
                same_everywhere(result)


def check_it_is_near_the_mean():
    """Of all tensors that have this direction, it is not the worst."""
    for name, method in each():
        want = np.mean([gradient(rank, 2, 20_000) for rank in range(bps.size())], axis=0)
        got = bps.push_pull(gradient(bps.rank(), 2, 20_000), name=name)
        cosine = got @ want / np.linalg.norm(got) / np.linalg.norm(want)
        assert cosine > 0.04, (method, cosine)


def check_feedback_loses_nothing_for_good():
    """The sum of all results goes where the sum of all gradients goes: what is missing does not grow with it."""
    count, rounds = 4000, 300
    for name, method in each("vanilla"):
        fixed = gradient(bps.rank(), 3, count)
        want = np.mean([gradient(rank, 3, count) for rank in range(bps.size())], axis=0)
        total = np.zeros(count)
        for _ in range(rounds):
            total += bps.push_pull(fixed, name=name)
        error = np.abs(total / rounds - want).mean() / np.abs(want).mean()
        assert error < 0.25, (method, error)


def check_zero_and_overflow():
    for name, method in each():
        zeros = bps.push_pull(np.zeros(3000, np.float32), name=name)
        np.testing.assert_array_equal(np.abs(zeros), 0, err_msg=str(method))
        wrong = np.ones(3000, np.float32)
        wrong[5] = np.nan if bps.rank() == 0 else 1
        result = bps.push_pull(wrong, name=name)
        assert method["compressor"] == "randomk" or not np.isfinite(result).all(), method


if __name__ == "__main__":
    checks.main(globals(), bps)
