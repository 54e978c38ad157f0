# SPDX-License-Identifier: Apache-2.0
"""MXNet: training with operations of its engine against training without."""

import unittest

import harness
import scripted

PYTHON = harness.framework_python("mxnet")


class Operations(scripted.TestCase):
    """In jobs of other sizes than the one that sanitizers watch; NumPy's go through all layouts of a job."""

    python = PYTHON
    framework = "mxnet"

    def test_alone(self):
        self.run_script("mxnet_ops.py", workers=1, servers=0)

    def test_three_workers_and_two_servers(self):
        self.run_script("mxnet_ops.py", workers=3, servers=2)


class Training(scripted.TestCase):
    python = PYTHON
    framework = "mxnet"

    def test_alone(self):
        self.run_script("mxnet_train.py", workers=1, servers=0)

    def test_three_workers(self):
        self.run_script("mxnet_train.py", workers=3, servers=1)

    def test_elastic_state(self):
        options = ["--set", "cluster.min_workers=1"]
        self.run_script("mxnet_elastic_state.py", workers=2, servers=1, options=options)


if __name__ == "__main__":
    unittest.main()
