# SPDX-License-Identifier: Apache-2.0
"""The training example for PyTorch."""

import unittest

import curves
import harness
import scripted

scripted.require("torch",)


class Training(curves.Curves):
    """It also has what depends on the layout of the job and on the examples' common parts, as it is fast."""

    example_file = "train_fashion_mnist.py"
    rate = 0.01
    plain = "torch_plain.py"
    python = harness.python()
    framework = "torch"

    def check_waiting(self, text, figures):
        self.assertIn("waiting for communication", text)
        self.assertTrue(0 <= figures["waiting"] <= 1, figures)

    def test_one_worker(self):
        self.check_curve(workers=1)

    def test_server_in_the_first_worker(self):
        self.check_curve(workers=2, servers=0)

    def test_three_workers_and_two_servers(self):
        self.check_curve(workers=3, servers=2)

    def test_nothing_to_compress(self):
        options = ["--limit", 640, "--batch-size", 64, "--epochs", 1, "--compress", "onebit"]
        result = self.example(*options, workers=2, servers=0)
        self.assertIn("nothing was coded", "\n".join(result.lines("worker 0")))

    def test_divergence(self):
        result = self.example("--epochs", 1, "--limit", 640, "--batch-size", 64, "--lr", 1e9, workers=2, servers=1)
        self.assertNotEqual(result.status, 0, result)
        self.assertIn("smaller --lr", result.err)


if __name__ == "__main__":
    unittest.main()
