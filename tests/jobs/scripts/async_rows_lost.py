# SPDX-License-Identifier: Apache-2.0
"""Rows of a tensor in mode async while a server is lost: the push says that the value is gone, and it is set again."""

import byteps
import byteps.numpy as bps
import numpy as np

ROWS, WIDTH = 20_000, 16  # several partitions: each server has some

bps.init()
bps.declare("table", mode="async")
table = np.zeros((ROWS, WIDTH), "float32")
bps.broadcast(table, 0, name="table")
bps.barrier()
own = np.array([bps.rank(), ROWS // 2, ROWS - 1])


def push():
    index, now = bps.push_pull_sparse(own, np.ones((3, WIDTH), "float32"), ROWS, "table", average=False)
    assert index.tolist() == own.tolist() and now.min() >= 1
    table[index] = now


push()
print("pushes", flush=True)
try:
    while True:
        push()
except byteps.Error as error:
    assert "broadcast it again" in str(error), error
bps.barrier()
table[:] = bps.broadcast(table, 0, name="table")
bps.barrier()
before = table[own]
push()
assert np.all(table[own] > before)
bps.barrier()
print("right after a loss", flush=True)
bps.shutdown()
