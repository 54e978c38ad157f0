# SPDX-License-Identifier: Apache-2.0
"""Training with PyTorch whose gradients are coded on the network: against the formulas, and does it learn?"""

import unittest

import scripted
from test_coded import ALONE

scripted.require("torch")

OFF = ["--set", "worker.hierarchy=off"]


class Coded(scripted.TestCase):
    def test_two_workers(self):
        self.run_script("torch_coded.py", workers=2, servers=1, options=OFF, env={"GROUPS": "1,1"})

    def test_three_workers(self):
        self.run_script("torch_coded.py", workers=3, servers=2, options=OFF, env={"GROUPS": "1,1,1"})

    def test_as_the_configuration_says(self):
        self.run_script("torch_coded.py", "configured", workers=2, servers=1, options=ALONE, env={"GROUPS": "1,1"})


if __name__ == "__main__":
    unittest.main()
