# SPDX-License-Identifier: Apache-2.0
"""broadcast_parameters, broadcast_optimizer_state, checkpoints, suspend and resume in byteps.torch."""

import unittest

import scripted

scripted.require("torch")


class State(scripted.TestCase):
    def test_alone(self):
        self.run_script("torch_state.py", workers=1, servers=0)

    def test_two_workers(self):
        self.run_script("torch_state.py", workers=2, servers=1)

    def test_three_workers(self):
        self.run_script("torch_state.py", workers=3, servers=2)


if __name__ == "__main__":
    unittest.main()
