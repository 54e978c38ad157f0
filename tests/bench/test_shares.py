# SPDX-License-Identifier: Apache-2.0
"""The least time for a push_pull on links of any rates, beside the formula for equal ones."""

import os
import sys
import unittest

sys.path.append(os.path.join(os.environ["top_srcdir"], "bench"))

from testbed import shares  # noqa: E402  (it lies in the folder that was just added)


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


if __name__ == "__main__":
    unittest.main()
