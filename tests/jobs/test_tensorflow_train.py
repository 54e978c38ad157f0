# SPDX-License-Identifier: Apache-2.0
"""TensorFlow: training with BytePS against training without, and programs of users."""

import os
import unittest

import harness
import scripted

PYTHON = harness.framework_python("tensorflow")
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"


class Training(scripted.TestCase):
    python = PYTHON
    framework = "tensorflow"

    def test_alone(self):
        self.run_script("tensorflow_train.py", workers=1, servers=0)

    def test_three_workers(self):
        self.run_script("tensorflow_train.py", workers=3, servers=1)


class Elastic(scripted.TestCase):
    python = PYTHON
    framework = "tensorflow"

    def test_state(self):
        options = ["--set", "cluster.min_workers=1"]
        self.run_script("tensorflow_elastic_state.py", workers=2, servers=1, options=options)


class Programs(scripted.TestCase):
    python = PYTHON
    framework = "tensorflow"

    def test_three_workers(self):
        self.run_script("tensorflow_programs.py", workers=3, servers=1)


if __name__ == "__main__":
    unittest.main()
