# SPDX-License-Identifier: Apache-2.0
"""broadcast_parameters, broadcast_optimizer_state, checkpoints, suspend and resume in byteps.torch."""

import unittest

import scripted

scripted.require("torch")


class State(scripted.TestCase):
    framework = "torch"

    def test_alone(self):
        self.run_script("torch_state.py", workers=1, servers=0)

    def test_three_workers(self):
        self.run_script("torch_state.py", workers=3, servers=2)

    def test_elastic(self):
        options = ["--set", "cluster.min_workers=1"]
        self.run_script("torch_elastic_state.py", workers=2, servers=1, options=options)

    def test_newcomer_with_only_the_second_model(self):
        for wrapper, first in (("optimizer", "dropped"), ("optimizer", "kept"), ("parallel", "wider")):
            with self.subTest(wrapper=wrapper, first=first):
                self.run_script("torch_newcomer.py", wrapper, first, workers=3, servers=1)


if __name__ == "__main__":
    unittest.main()
