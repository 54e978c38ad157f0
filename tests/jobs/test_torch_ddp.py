# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel: in process groups; and PyTorch's own, whose buckets a hook reduces by push_pull."""

import os
import tempfile
import unittest

import harness
import scripted

scripted.require("torch")


class Groups(scripted.TestCase):
    """DistributedOptimizer, DistributedDataParallel and SyncBatchNorm of some of the workers."""

    framework = "torch"

    def test_training(self):
        self.run_script("torch_groups.py", workers=3, servers=0)

    def test_reform(self):
        self.run_script("torch_groups.py", "check_later_job", workers=3, options=["--min-workers", "2"])


class Hook(scripted.TestCase):
    framework = "torch"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.env = {"STORE": os.path.join(folder.name, "store")}

    def test_training(self):
        self.run_script("torch_ddp.py", env=self.env)

    def test_a_program_ends_with_a_hook_in_pytorch(self):
        self.run_script("torch_ddp.py", "leave_with_a_hook_in_pytorch", env=self.env)

    def test_a_worker_is_killed(self):
        script = self.script("torch_ddp.py", "lose_a_worker")
        result = harness.run(script, workers=2, servers=1, env=self.env)
        self.assertNotEqual(result.status, 0, str(result))
        text = "\n".join(result.lines("worker 0"))
        self.assertRegex(text, r"^step \d+: .*worker 1.* was lost", str(result))


if __name__ == "__main__":
    unittest.main()
