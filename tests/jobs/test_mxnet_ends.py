# SPDX-License-Identifier: Apache-2.0
"""How programs with MXNet end."""

import unittest

import ended
import harness

PYTHON = harness.framework_python("mxnet")


class Ends(ended.TestCase):
    python = PYTHON
    framework = "mxnet"
    program = "mxnet_ends.py"
    loops = ("trainer", "hand")
    error = "LostError"


if __name__ == "__main__":
    unittest.main()
