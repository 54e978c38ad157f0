# SPDX-License-Identifier: Apache-2.0
"""Workers that push the same large tensors in different orders: each has far more under way than its credit."""

import checks
import numpy as np

import byteps.numpy as bps

TENSORS = 12
COUNT = 1 << 20  # 4 MiB each


def push_all(order, priorities):
    handles = {
        i: bps.push_pull_async(
            np.full(COUNT, float(i + bps.rank())), name=f"order.{i}", op=bps.Sum, priority=priorities[i]
        )
        for i in order
    }
    for i, handle in handles.items():
        want = sum(i + rank for rank in range(bps.size()))
        assert (bps.synchronize(handle) == want).all(), i


def mine():
    """Of the first worker upwards, of the second one downwards."""
    return range(TENSORS) if bps.rank() % 2 == 0 else reversed(range(TENSORS))


def check_opposite_orders():
    push_all(mine(), [0] * TENSORS)


def check_opposite_orders_with_priorities():
    push_all(mine(), [-i for i in range(TENSORS)])


def check_one_that_waits_for_what_the_other_pushes_last():
    for _ in range(3):
        if bps.rank() % 2 == 0:
            push_all(range(TENSORS), [0] * TENSORS)
        else:
            for i in reversed(range(TENSORS)):
                push_all([i], [0] * TENSORS)


if __name__ == "__main__":
    checks.main(globals(), bps)
