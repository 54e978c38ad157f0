# SPDX-License-Identifier: Apache-2.0
"""One tensor of more than 4 GiB: every byte of the sum, and that its last one is the last."""

import checks
import numpy as np

import byteps.numpy as bps

BYTES = (4 << 30) + 12345
PIECE = 1 << 28  # looked at at once


def check_sum_of_a_tensor_above_4_gib():
    array = np.empty(BYTES, np.uint8)
    array[:] = bps.rank() + 1
    array[-1] = 10 * (bps.rank() + 1)
    bps.push_pull_inplace(array, name="large", op=bps.Sum)
    want = sum(range(1, bps.size() + 1))
    assert array[-1] == 10 * want, array[-1]
    for start in range(0, BYTES - 1, PIECE):
        assert (array[start : min(start + PIECE, BYTES - 1)] == want).all(), start


if __name__ == "__main__":
    checks.main(globals(), bps)
