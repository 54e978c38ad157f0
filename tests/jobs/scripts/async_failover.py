# SPDX-License-Identifier: Apache-2.0
"""Pushes tensors in mode async while servers are lost: in the end each push is in the value, once."""

import itertools
import os

import byteps.numpy as bps
import numpy as np

COUNT = 100_001  # several partitions and slices
FIRST = 5.0

bps.init()
own = bps.rank() + 1
names = [f"value {i}" for i in range(4)]  # each server has some
seen = dict.fromkeys(names, FIRST)
for name in [*names, "set again"]:
    bps.declare(name, mode="async")
for name in names:
    first = np.full(COUNT, FIRST if bps.rank() == 0 else -1.0)
    assert np.all(bps.broadcast(first, 0, name=name) == FIRST)
bps.barrier()


def at_end():
    """Whether somebody has seen the gate open, as all agree."""
    is_open = os.path.exists(os.path.join(os.environ["GATES"], "end"))
    return bps.push_pull(np.array([int(is_open)]), average=False, name="end")[0] > 0


for step in itertools.count(1):
    handles = [(name, bps.push_pull_async(np.full(COUNT, float(own)), average=False, name=name)) for name in names]
    for name, handle in handles:
        result = handle.wait()
        assert result.min() >= seen[name] + own, (name, step, result.min(), seen[name])
        seen[name] = result.min()
    value = np.full(COUNT, float(step))
    result = bps.broadcast(value, step % bps.size(), name="set again")
    assert result.min() >= step, (step, result.min())
    if step == 3:
        print("pushes", flush=True)
    if step % 5 == 0 and at_end():
        break
total = FIRST + step * sum(range(1, bps.size() + 1))
for name in names:
    result = bps.push_pull(np.zeros(COUNT), average=False, name=name)
    assert np.all(result == total), (name, step, result.min(), result.max(), total)
bps.barrier()
print(f"right after {step} steps", flush=True)
bps.shutdown()
