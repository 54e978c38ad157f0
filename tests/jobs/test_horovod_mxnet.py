# SPDX-License-Identifier: Apache-2.0
"""Programs for Horovod in MXNet: its operations, and a training."""

import unittest

import harness
import scripted


class Horovod(scripted.TestCase):
    python = harness.framework_python("mxnet")
    framework = "mxnet"

    def test_three_workers(self):
        self.run_script("horovod_mxnet.py", workers=3, servers=0, options=["--as", "horovod"])

    def test_process_sets(self):
        self.run_script("horovod_mxnet_sets.py", workers=3, servers=1)


if __name__ == "__main__":
    unittest.main()
