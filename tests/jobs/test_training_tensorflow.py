# SPDX-License-Identifier: Apache-2.0
"""The training example for TensorFlow."""

import unittest

import curves
import harness

PYTHON = harness.framework_python("tensorflow")


class Training(curves.Curves):
    example_file = "train_tensorflow.py"
    rate = 0.002
    plain = "tensorflow_plain.py"
    python = PYTHON
    framework = "tensorflow"


if __name__ == "__main__":
    unittest.main()
