# SPDX-License-Identifier: Apache-2.0
"""Trainings that need not wait for the slowest: that the comparison runs, and how it counts."""

import json
import os
import sys
import tempfile
import unittest

BENCH = os.path.join(os.environ["top_srcdir"], "bench")
sys.path += [BENCH, os.path.join(BENCH, "stragglers"), os.path.join(os.environ["top_srcdir"], "tests", "jobs")]

import scripted  # noqa: E402  (they lie in the folders that were just added)
import straggler_figures as figures  # noqa: E402
import targets  # noqa: E402


def training(*accuracies, step=1.0):
    """One whose worker 0 looks after each step; worker 1 is as good a step later."""
    looks = [(i + 1, (i + 1) * step, each) for i, each in enumerate(accuracies)]
    later = [(i, (i + 1) * step, each) for i, _, each in looks]
    return {"steps": 4, "looks": [looks, later]}


class Figures(unittest.TestCase):
    def test_a_target_is_what_the_last_looks_come_to_less_half_a_point(self):
        self.assertAlmostEqual(figures.target_of(training(0.1, 0.6, 0.7, 0.8)), 0.795)
        self.assertAlmostEqual(figures.target_of(training(0.1, 0.6, 0.7, 0.8, 0.99)), 0.795)

    def test_time_is_that_of_the_first_worker_on_the_line_between_two_looks(self):
        self.assertAlmostEqual(figures.first(training(0.1, 0.6, 0.7, 0.8), 0.65), 2.5)
        self.assertIsNone(figures.first(training(0.1, 0.6, 0.7, 0.8), 0.81))

    def test_times_as_fast(self):
        base = {1: training(0.1, 0.6, 0.7, 0.8), 2: training(0.1, 0.6, 0.7, 0.8)}
        found = figures.compare({1: training(0.1, 0.6, 0.7, 0.8, step=0.5), 2: training(0, 0, 0, 0.1)}, base)
        self.assertEqual((found["seeds"], found["reached"], found["faster"]), (2, 1, None))
        found = figures.compare({1: training(0.1, 0.6, 0.7, 0.8, step=0.5)}, base)
        self.assertAlmostEqual(found["faster"], 2)
        self.assertAlmostEqual(found["more"], 0)


class Run(unittest.TestCase):
    def test_two_kinds(self):
        scripted.require("torch")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "figures.json")
            said = targets.make(self, "bench-stragglers", "--quick", "--task", "Fashion-MNIST", "--situation",
                                "slow worker", "--only", "asynchronous", "--json", path)
            with open(path, encoding="utf-8") as file:
                trainings = json.load(file)["trainings"]
        self.assertEqual([each["method"] for each in trainings], ["synchronous", "asynchronous"], said)
        for each in trainings:
            self.assertEqual(len(each["looks"]), 4, said)
            self.assertGreaterEqual(each["looks"][0][-1][0], 20, said)
        self.assertIn("| asynchronous |", said)


if __name__ == "__main__":
    unittest.main()
