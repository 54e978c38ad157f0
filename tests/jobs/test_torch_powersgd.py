# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own DistributedDataParallel, whose buckets a hook reduces with PowerSGD."""

import os
import tempfile
import unittest

import scripted

scripted.require("torch")


class PowerSgd(scripted.TestCase):
    framework = "torch"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.env = {"STORE": os.path.join(folder.name, "store")}

    def test_two_workers(self):
        self.run_script("torch_powersgd.py", env=self.env)

    def test_three_workers(self):
        self.run_script("torch_powersgd.py", workers=3, env=self.env)


if __name__ == "__main__":
    unittest.main()
