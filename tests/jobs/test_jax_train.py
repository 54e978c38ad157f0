# SPDX-License-Identifier: Apache-2.0
"""JAX: optimizers whose gradients are summed, and what surrounds them in a training."""

import unittest

import harness
import scripted

PYTHON = harness.framework_python("jax")


class Operations(scripted.TestCase):
    """In jobs of other sizes than the one that sanitizers watch; NumPy's go through all layouts of a job."""

    python = PYTHON
    framework = "jax"

    def test_three_workers_and_two_servers(self):
        self.run_script("jax_ops.py", workers=3, servers=2)


class Training(scripted.TestCase):
    python = PYTHON
    framework = "jax"

    def test_alone(self):
        self.run_script("jax_train.py", workers=1, servers=0)

    def test_three_workers(self):
        self.run_script("jax_train.py", workers=3, servers=1)

    def test_asynchronous(self):
        self.run_script("jax_train.py", "refuses_asynchronous_training", workers=1, servers=0,
                        options=["--set", "worker.async=true"])


if __name__ == "__main__":
    unittest.main()
