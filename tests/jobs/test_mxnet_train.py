# SPDX-License-Identifier: Apache-2.0
"""MXNet: training with operations of its engine against training without."""

import unittest

import harness
import scripted

PYTHON = harness.framework_python("mxnet")


class Operations(scripted.TestCase):
    """In jobs of other sizes than the one that sanitizers watch."""

    python = PYTHON
    framework = "mxnet"

    def test_alone(self):
        self.run_script("mxnet_ops.py", workers=1, servers=0)

    def test_three_workers_and_two_servers(self):
        self.run_script("mxnet_ops.py", workers=3, servers=2)

    def test_without_hierarchy(self):
        self.run_script("mxnet_ops.py", options=["--set", "worker.hierarchy=off"])


class Training(scripted.TestCase):
    python = PYTHON
    framework = "mxnet"

    def test_alone(self):
        self.run_script("mxnet_train.py", workers=1, servers=0)

    def test_two_workers(self):
        self.run_script("mxnet_train.py", workers=2, servers=1)

    def test_three_workers(self):
        self.run_script("mxnet_train.py", workers=3, servers=1)


if __name__ == "__main__":
    unittest.main()
