# SPDX-License-Identifier: Apache-2.0
"""The least time for a push_pull on links of any rates, beside the formula for equal ones."""

import os
import sys
import unittest

BENCH = os.path.join(os.environ["top_srcdir"], "bench")
sys.path += [BENCH, os.path.join(BENCH, "compare")]

import operations  # noqa: E402  (it lies in a folder that was just added)
from testbed import shares  # noqa: E402


class Fluid(unittest.TestCase):
    def test_equal_links(self):
        """What each host sends is what keeps all links busy for as long, as long as there are few servers."""
        for n in (2, 3, 4, 9):
            for k in (0, 1, 2, 4, 20):
                with self.subTest(n=n, k=k):
                    formula = max(2 * n * (n - 1) / (n * n + k * n - 2 * k), 1) * 1000 / 50
                    seconds, sent = shares.fluid(n, [50] * (n + k), 1000)
                    self.assertAlmostEqual(seconds, formula)
                    self.assertAlmostEqual(shares.optimum(n, k, 1000, 50), formula)
                    self.assertAlmostEqual(max(sent), 50 * formula)
                    if k <= n:
                        self.assertAlmostEqual(min(sent), 50 * formula)

    def test_a_slow_worker(self):
        """It cannot but send all its contributions, and the others have time enough."""
        seconds, sent = shares.fluid(4, [50, 10, 50, 50], 1000)
        self.assertAlmostEqual(seconds, 100)
        self.assertAlmostEqual(sent[1], 1000)
        self.assertAlmostEqual(sum(sent), 2 * 3 * 1000)

    def test_a_slow_server(self):
        """What it cannot sum, the workers do, and none of the links is busy for longer."""
        rates = [50, 50, 50, 20]
        seconds, sent = shares.fluid(3, rates, 1000)
        self.assertTrue(shares.optimum(3, 1, 1000, 50) < seconds < shares.optimum(3, 0, 1000, 50))
        for bytes_sent, rate in zip(sent, rates):
            self.assertAlmostEqual(bytes_sent / rate, seconds)

    def test_operations(self):
        """The figures of docs/collectives.md for 4 workers, 2 servers, and blocks of 300 bytes."""
        times = {name: operations.least(name, 4, 2, 1200, 100) for name in operations.OPERATIONS}
        self.assertAlmostEqual(times.pop("push_pull"), 1.2 * 12)
        self.assertEqual({times.pop(name) for name in ("broadcast", "reduce", "send")}, {12})
        self.assertEqual(set(times.values()), {9})


if __name__ == "__main__":
    unittest.main()
