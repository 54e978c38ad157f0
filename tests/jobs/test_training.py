# SPDX-License-Identifier: Apache-2.0
"""The training example for PyTorch."""

import unittest

import curves
import harness
import scripted

scripted.require("torch",)


class Training(curves.Curves):
    example_file = "train_fashion_mnist.py"
    rate = 0.01
    plain = "torch_plain.py"
    python = harness.python()
    framework = "torch"

    def check_waiting(self, text, figures):
        self.assertIn("waiting for communication", text)
        self.assertTrue(0 <= figures["waiting"] <= 1, figures)


if __name__ == "__main__":
    unittest.main()
