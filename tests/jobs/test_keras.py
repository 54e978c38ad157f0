# SPDX-License-Identifier: Apache-2.0
"""Keras 3 on each of its backends: training against training without BytePS, callbacks, saved models."""

import os
import unittest

import harness
import scripted

PYTHON = harness.tensorflow_python()
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"


class Training(scripted.TestCase):
    python = PYTHON

    def train(self, backend, **how):
        needed = "keras" if backend == "tensorflow" else backend
        if not harness.has_module(PYTHON, needed):
            self.skipTest(f"{needed} is not installed for {PYTHON}")
        self.run_script("keras_train.py", env={"KERAS_BACKEND": backend}, **how)

    def test_alone(self):
        self.train("tensorflow", workers=1, servers=0)

    def test_tensorflow(self):
        self.train("tensorflow", workers=2, servers=1)

    def test_torch(self):
        self.train("torch", workers=2, servers=1)

    def test_jax(self):
        self.train("jax", workers=2, servers=1)

    def test_three_workers(self):
        self.train("jax", workers=3, servers=1)


if __name__ == "__main__":
    unittest.main()
