# SPDX-License-Identifier: Apache-2.0
"""Steps to which one worker comes late, as all know, or each in turn. Arguments: its rank or "turns", how late."""

import sys
import time

import numpy as np

import byteps.numpy as bps

LATE, SECONDS = None if sys.argv[1] == "turns" else int(sys.argv[1]), float(sys.argv[2])
STEPS = 27
PATIENCE = 30
large, small = np.ones(300_000, np.float32), np.ones(10, np.float32)


def step(number):
    if bps.rank() == (number % bps.size() if LATE is None else LATE):
        time.sleep(SECONDS)
    handles = [bps.push_pull_async(each, name=f"t{each.size}") for each in (large, small)]
    for handle in handles:
        assert (bps.synchronize(handle) == 1).all()


def last_one():
    """The worker that most waiting is for, as far as this one knows; None: nobody."""
    lateness = bps.metrics()["lateness"]
    assert [each["rank"] for each in lateness] == list(range(bps.size())), lateness
    most = max(lateness, key=lambda each: each["waited"])
    return most if most["waited"] > 0 else None


bps.init()
for number in range(STEPS):
    step(number)
if LATE is not None:
    end = time.monotonic() + PATIENCE
    while last_one() is None and time.monotonic() < end:
        time.sleep(0.1)
    found = last_one()
    assert found is not None and found["rank"] == LATE, bps.metrics()
    assert 0 < found["last"] <= found["rounds"] and 0 < found["median_seconds"], found
    assert found["host"], found
assert bps.metrics()["pushed_bytes"] > STEPS * large.nbytes
bps.barrier()
bps.shutdown()
print("passed 1")
