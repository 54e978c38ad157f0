# SPDX-License-Identifier: Apache-2.0
"""Pushes tensors until a server is lost, and prints how that ends."""

import byteps
import byteps.numpy as bps
import numpy as np

bps.init()
names = [f"value {i}" for i in range(8)]  # each server has some
for name in names:
    bps.declare(name)
    bps.broadcast(np.zeros(100_000), 0, name=name)
print("pushes", flush=True)
try:
    while True:
        for name in names:
            bps.push_pull(np.ones(100_000), average=False, name=name)
except byteps.LostError as error:
    print(f"lost: {error}", flush=True)
