# SPDX-License-Identifier: Apache-2.0
"""Programs written for the original BytePS or for Horovod find what they rely on in byteps.torch."""

import unittest

import scripted

scripted.require("torch")


class Programs(scripted.TestCase):
    framework = "torch"

    def test_alone(self):
        self.run_script("torch_programs.py", workers=1, servers=0)

    def test_two_workers(self):
        self.run_script("torch_programs.py", workers=2, servers=1)

    def test_three_workers(self):
        self.run_script("torch_programs.py", workers=3, servers=1)


if __name__ == "__main__":
    unittest.main()
