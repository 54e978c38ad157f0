# SPDX-License-Identifier: Apache-2.0
"""The comparison of trainings with coded gradients: what its figures come to, and that all of it runs."""

import json
import os
import sys
import tempfile
import unittest

BENCH = os.path.join(os.environ["top_srcdir"], "bench")
sys.path += [BENCH, os.path.join(BENCH, "compare"), os.path.join(os.environ["top_srcdir"], "tests", "jobs")]

import coded_figures  # noqa: E402  (they lie in the folders that were just added)
import scripted  # noqa: E402
import targets  # noqa: E402
import testbed  # noqa: E402


def training(method, seed, accuracy, seconds, size, task="text"):
    """One that reaches the accuracy in the second half of its steps."""
    points = [(50, accuracy / 2), (100, accuracy)]
    return {"task": task, "method": method, "seed": seed, "points": points, "seconds": seconds, "bytes": size}


class Figures(unittest.TestCase):
    def test_a_target_is_reached_on_the_line_between_two_points(self):
        points = [(10, 0.5), (20, 0.7), (30, 0.6)]
        self.assertAlmostEqual(coded_figures.steps_until(points, 0.6), 15)
        self.assertEqual(coded_figures.steps_until(points, 0.5), 10)
        self.assertIsNone(coded_figures.steps_until(points, 0.71))

    def test_a_row_has_the_means_of_the_seeds_and_the_ratios_to_none(self):
        figures = {"tasks": ["text", "other"], "methods": ["none", "onebit", "topk"], "steps": 100}
        figures["trainings"] = [
            training("none", 1, 0.90, 1.0, 4e6), training("none", 2, 0.92, 1.0, 4e6),
            training("onebit", 1, 0.91, 0.1, 1e5), training("onebit", 2, 0.93, 0.1, 1e5),
            training("topk", 1, 0.80, 0.1, 1e5), training("topk", 1, 0.99, 9.0, 9e9, task="other"),
        ]
        [(title, rows)] = coded_figures.tables(figures)
        self.assertIn("less 0.5 %", title)
        by_name = {row[0]: row[1:] for row in rows}
        self.assertEqual(by_name["onebit"][:6],
                         ["92.00 % (91.00 to 93.00)", "+1.00", "0.100", "40.0", "100 ms", "10.0"])
        self.assertEqual(by_name["topk"][1], "-10.00")
        self.assertEqual(by_name["topk"][-2:], ["by 0 of 1", "-"])


class Run(unittest.TestCase):
    def setUp(self):
        scripted.require("torch")
        try:
            testbed.Testbed(1).close()
        except testbed.Unavailable as reason:
            self.skipTest(str(reason))

    def test_one_of_each_kind_and_going_on(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "figures.json")
            flags = ["--quick", "--shape", "2,1", "--task", "text", "--json", path, "--resume"]
            for methods in (["none", "onebit"], ["onebit", "PowerSGD", "DDP fp16"]):
                only = [word for method in methods for word in ("--only", method)]
                said = targets.make(self, "bench-compression", *flags, *only)
            with open(path, encoding="utf-8") as file:
                trainings = json.load(file)["trainings"]
        found = {each["method"]: each for each in trainings}
        methods = [each["method"] for each in trainings]
        self.assertEqual(methods, ["none", "onebit", "PowerSGD", "DDP fp16"], said)
        self.assertGreater(found["none"]["bytes"] / found["onebit"]["bytes"], 10, said)
        for each in found.values():
            self.assertTrue(all(0 <= accuracy <= 1 for _, accuracy in each["points"]), each)
            self.assertIn(each["method"], said)


if __name__ == "__main__":
    unittest.main()
