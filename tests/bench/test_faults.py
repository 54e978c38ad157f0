# SPDX-License-Identifier: Apache-2.0
"""What faults cost: that the comparison runs, and how it counts."""

import json
import os
import sys
import tempfile
import unittest

BENCH = os.path.join(os.environ["top_srcdir"], "bench")
sys.path += [BENCH, os.path.join(BENCH, "faults")]

import figures  # noqa: E402  (it lies in a folder that was just added)
import targets  # noqa: E402


class Figures(unittest.TestCase):
    def test_lost_worker(self):
        """Steps of 1 s with three workers. Of two that are left one is later; half of a step was sent in vain."""
        calm = {"fault": None, "again": 0, "sent": 3 * 8 * 10, "ends": {w: [1, 2, 3, 4, 5, 6, 7, 8] for w in range(3)}}
        run = {"fault": 3.5, "again": 1, "sent": 3 * 3 * 10 + 15 + 2 * 5 * 10,
               "ends": {0: [1, 2, 3, 5, 6, 7, 8, 9], 1: [1, 2, 3, 5.5, 6, 7, 8, 9]}}
        cost = figures.cost(run, calm, 3, figures.through_servers)
        self.assertEqual((cost["step"], cost["after"], cost["lost"], cost["more"]), (1, 1, 1.5, 1))
        self.assertAlmostEqual(cost["sent_again"], 15)
        self.assertAlmostEqual(cost["sent_steps"], 0.5)


class Run(unittest.TestCase):
    def test_server(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "figures.json")
            text = targets.make(self, "bench-faults", "--quick", "--fault", "server", "--json", path)
            with open(path, encoding="utf-8") as file:
                [cost] = json.load(file)["byteps"]["server"]
        self.assertIn("| a server is killed | 0 |", text)
        self.assertEqual(cost["again"], 0)
        self.assertGreater(cost["step"], 0)


if __name__ == "__main__":
    unittest.main()
