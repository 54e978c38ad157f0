# SPDX-License-Identifier: Apache-2.0
"""Programs written for the original BytePS or for Horovod find their names in byteps.torch."""

import unittest

import scripted

scripted.require("torch")


class Names(scripted.TestCase):
    def test_alone(self):
        self.run_script("torch_names.py", workers=1, servers=0)

    def test_two_workers(self):
        self.run_script("torch_names.py", workers=2, servers=1)


if __name__ == "__main__":
    unittest.main()
