# SPDX-License-Identifier: Apache-2.0
"""The training example for MXNet."""

import unittest

import curves
import harness

PYTHON = harness.framework_python("mxnet",)


class Training(curves.Curves):
    example_file = "train_mxnet.py"
    rate = 0.002
    plain = "mxnet_plain.py"
    python = PYTHON
    framework = "mxnet"


if __name__ == "__main__":
    unittest.main()
