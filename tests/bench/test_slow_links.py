# SPDX-License-Identifier: Apache-2.0
"""The comparison of coded tensors with plain ones on the links of a test bed: that it runs, and what it reports."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

BENCH = os.path.join(os.environ["top_srcdir"], "bench")
sys.path += [BENCH, os.path.join(BENCH, "compare"), os.path.join(os.environ["top_srcdir"], "tests", "jobs")]

import harness  # noqa: E402  (they lie in the folders that were just added)
import report_tables  # noqa: E402
import testbed  # noqa: E402

COMMAND = os.path.join(BENCH, "compare", "slow_links")


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
            command = [harness.python(), "-B", COMMAND, "--shape", "2,1", "--rounds", "1", "--case",
                       f"{model},100mbit,2", "--coding", "onebit; feedback=true", "--json", path]
            done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.assertEqual(done.returncode, 0, done.stdout)
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
