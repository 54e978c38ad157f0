# SPDX-License-Identifier: Apache-2.0
"""The operations of bench/collectives, by their number in operations.h, and the least time that links allow to each."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from testbed import shares  # noqa: E402  (found by the line above)

OPERATIONS = (
    "push_pull", "broadcast", "reduce", "reduce_scatter", "all_gather", "gather", "scatter", "all_to_all", "send",
)  # fmt: skip
WHOLE = ("broadcast", "reduce", "send")


def least(operation, n, k, size, rate):
    """Seconds for `size` bytes in all, n workers and k further servers, as docs/collectives.md has them."""
    if operation == "push_pull":
        return shares.optimum(n, k, size, rate)
    return (size if operation in WHOLE else (n - 1) * size / n) / rate
