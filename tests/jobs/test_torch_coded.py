# SPDX-License-Identifier: Apache-2.0
"""Training with PyTorch whose gradients are coded on the network: against the formulas, and does it learn?"""

import json
import tempfile
import unittest

import harness
import scripted
from test_coded import ALONE

scripted.require("torch")

OFF = ["--set", "worker.hierarchy=off"]


class Coded(scripted.TestCase):
    framework = "torch"

    def test_two_workers(self):
        self.run_script("torch_coded.py", workers=2, servers=1, options=OFF, env={"GROUPS": "1,1"})

    def test_three_workers(self):
        self.run_script("torch_coded.py", workers=3, servers=2, options=OFF, env={"GROUPS": "1,1,1"})

    def test_as_the_configuration_says(self):
        self.run_script("torch_coded.py", "configured", workers=2, servers=1, options=ALONE, env={"GROUPS": "1,1"})

    def train(self, folder, *how):
        return harness.run(self.script("torch_checkpoints.py", folder, *how), workers=2, servers=1, options=OFF)

    def weights(self, folder, *how):
        """What a whole training has come to; all workers have the same."""
        result = self.train(folder, *how)
        self.assertEqual(result.status, 0, str(result))
        lines = [result.lines(f"worker {rank}")[-1] for rank in range(2)]
        self.assertEqual(lines[0], lines[1], str(result))
        return json.loads(lines[0].removeprefix("weights "))

    def test_a_worker_is_killed_and_the_job_goes_on_from_checkpoints(self):
        with tempfile.TemporaryDirectory(prefix="byteps-checkpoints-") as folder:
            killed = self.train(folder, "killed")
            self.assertNotEqual(killed.status, 0, str(killed))
            again, forgetful = self.weights(folder), self.weights(folder, "forgetful")
        with tempfile.TemporaryDirectory(prefix="byteps-checkpoints-") as folder:
            whole = self.weights(folder)
        self.assertEqual(whole, again)
        self.assertNotEqual(whole, forgetful)


if __name__ == "__main__":
    unittest.main()
