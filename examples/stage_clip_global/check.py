# SPDX-License-Identifier: Apache-2.0
"""What two workers or more get with clip_global.conf: their gradients of a step have a norm of 1 together, at most."""

import byteps.numpy as bps
import numpy as np

bps.init()
rng = np.random.default_rng(1)  # the same numbers on each worker, so that their average is known
for scale in (3.0, 1e-3, 100.0):
    gradients = [(scale * rng.standard_normal(shape)).astype(np.float32) for shape in (1, 1000, (300, 70))]
    norm = np.sqrt(sum(float(np.square(one, dtype=np.float64).sum()) for one in gradients))
    expected = [one * min(1.0, 1.0 / norm) for one in gradients]
    handles = [bps.push_pull_async(one, name=f"weight{i}") for i, one in enumerate(gradients)]
    for one, handle in zip(expected, handles):
        np.testing.assert_allclose(bps.synchronize(handle), one, rtol=1e-5)
bps.shutdown()
