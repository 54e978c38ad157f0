# SPDX-License-Identifier: Apache-2.0
"""Least squares by gradient descent; every worker has its own part of the data.

    byteps run -n 2 -s 1 -- python3 numpy_regression.py

Each step, the workers' gradients are averaged by push_pull in place, so all come to the same coefficients:
those of one process with all the data.
"""

import numpy as np

import byteps.numpy as bps

SAMPLES = 1000  # of each worker
TRUTH = np.array([2.0, -1.0, 0.5])


def main():
    bps.init()
    rng = np.random.default_rng(bps.rank())
    x = rng.normal(size=(SAMPLES, len(TRUTH)))
    y = x @ TRUTH + 0.1 * rng.normal(size=SAMPLES)

    weights = bps.broadcast(rng.normal(size=len(TRUTH)), root_rank=0, name="weights")
    for step in range(1, 101):
        error = x @ weights - y
        gradient = 2 / SAMPLES * x.T @ error
        bps.push_pull_inplace(gradient, name="gradient")
        weights -= 0.1 * gradient
        if step % 20 == 0:
            loss = bps.push_pull(np.mean(error**2), name="loss")
            if bps.rank() == 0:
                print(f"step {step:3d}  loss {loss:.5f}", flush=True)
    print("weights", np.round(weights, 2), flush=True)
    bps.shutdown()


if __name__ == "__main__":
    main()
