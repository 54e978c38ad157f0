# SPDX-License-Identifier: Apache-2.0
"""Training with DistributedOptimizer, DistributedDataParallel and CrossBarrier against one process."""

import unittest

import harness
import scripted

scripted.require("torch")


class Training(scripted.TestCase):
    framework = "torch"

    def test_alone(self):
        self.run_script("torch_train.py", workers=1, servers=0)

    def test_three_workers(self):
        self.run_script("torch_train.py", workers=3, servers=1)

    def test_small_gradients(self):
        self.run_script("torch_buckets.py", workers=1, servers=0)
        self.run_script("torch_buckets.py", workers=2, servers=1)
        self.run_script("torch_buckets.py", workers=3, servers=0)

    def test_a_worker_is_killed(self):
        for how in ("optimizer", "parallel", "barrier"):
            with self.subTest(how=how):
                result = harness.run(self.script("torch_lost.py", how), workers=2, servers=1)
                self.assertNotEqual(result.status, 0, str(result))
                text = "\n".join(result.lines("worker 0"))
                self.assertRegex(text, r"^step \d+: .*worker 1.* was lost", str(result))


if __name__ == "__main__":
    unittest.main()
