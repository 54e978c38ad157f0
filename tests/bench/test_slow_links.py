# SPDX-License-Identifier: Apache-2.0
"""The comparison of coded tensors with plain ones on the links of a test bed: that it runs, and what it reports."""

import json
import os
import sys
import tempfile
import unittest

BENCH = os.path.join(os.environ["top_srcdir"], "bench")
sys.path += [BENCH, os.path.join(BENCH, "compare")]

import report_tables  # noqa: E402  (it lies in a folder that was just added)
import targets  # noqa: E402
import testbed  # noqa: E402


class Run(unittest.TestCase):
    def setUp(self):
        try:
            testbed.Testbed(1).close()
        except testbed.Unavailable as reason:
            self.skipTest(str(reason))

    def test_one_case(self):
        with tempfile.TemporaryDirectory() as folder:
            model, path = os.path.join(folder, "model.txt"), os.path.join(folder, "figures.json")
            with open(model, "w", encoding="ascii") as file:
                file.write("a 200000 float32\nb 1 float32\n")
            targets.make(self, "bench-slow-links", "--shape", "2,1", "--rounds", "1", "--case", f"{model},100mbit,2",
                         "--coding", "onebit; feedback=true", "--json", path)
            with open(path, encoding="utf-8") as file:
                figures = json.load(file)
        [result] = figures["results"]
        plain, coded = result["codings"].values()
        self.assertEqual(result["bytes"], 4 * 400002)
        self.assertEqual(plain["share"], 1)
        self.assertAlmostEqual(coded["share"], 1 / 32, delta=1e-3)
        self.assertAlmostEqual(coded["least"], coded["share"] * plain["least"])
        section = report_tables.slow_links(figures)
        self.assertIn("| `onebit; feedback=true` | 0.031 |", section)
        self.assertIn("| not coded | 1.000 |", section)


if __name__ == "__main__":
    unittest.main()
