# SPDX-License-Identifier: Apache-2.0
"""LocalSGD and DiLoCo in whole jobs. Each worker checks for itself."""

import unittest

import scripted

scripted.require("torch")


class Rarely(scripted.TestCase):
    framework = "torch"

    def test_alone(self):
        self.run_script("torch_diloco.py", workers=1, servers=0)

    def test_two_workers(self):
        self.run_script("torch_diloco.py", workers=2, servers=1)

    def test_in_an_asynchronous_job(self):
        env = {"BYTEPS_ENABLE_ASYNC": "1"}
        self.run_script("torch_diloco.py", "check_nesterov", "check_streaming", workers=2, servers=1, env=env)


if __name__ == "__main__":
    unittest.main()
