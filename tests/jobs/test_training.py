# SPDX-License-Identifier: Apache-2.0
"""The training example for PyTorch."""

import re
import unittest

import curves
import harness
import scripted

scripted.require("torch")


class Training(curves.Curves):
    example_file = "train_fashion_mnist.py"
    rate = 0.01
    plain = "torch_plain.py"
    python = harness.python()

    def check_waiting(self, text, figures):
        self.assertIn("waiting for communication", text)
        self.assertTrue(0 <= figures["waiting"] <= 1, figures)

    def test_compressed(self):
        options = ["--limit", 64 * 20, "--batch-size", 64, "--epochs", 1, "--compress", "onebit"]
        result = self.example(*options, workers=2, servers=1, options=["--set", "worker.hierarchy=off"])
        self.assertEqual(result.status, 0, result)
        text = "\n".join(result.lines("worker 0"))
        found = re.search(r"gradients +(\d+) MB, sent as ([\d.]+) MB \((\d+) times fewer\)", text)
        self.assertTrue(found, result)
        self.assertEqual(int(found[1]), round(2 * 20 * 215370 * 4 / 1e6))
        self.assertGreater(int(found[3]), 28)
        result = self.example(*options, workers=2, servers=0)
        self.assertIn("nothing was coded", "\n".join(result.lines("worker 0")))


if __name__ == "__main__":
    unittest.main()
