# SPDX-License-Identifier: Apache-2.0
"""The training example for JAX."""

import unittest

import curves
import harness

PYTHON = harness.framework_python("jax")


class Training(curves.Curves):
    example_file = "train_jax.py"
    rate = 0.002
    plain = "jax_plain.py"
    python = PYTHON
    framework = "jax"


if __name__ == "__main__":
    unittest.main()
