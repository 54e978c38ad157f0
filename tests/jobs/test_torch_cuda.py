# SPDX-License-Identifier: Apache-2.0
"""byteps.torch with tensors on GPUs: what the other tests check on the host, and what only GPUs have.

It runs with TEST_GPU=1 only (tests/gpu/run). Workers share the GPUs if there are fewer.
"""

import os
import tempfile
import unittest

import harness
import scripted

if os.environ.get("TEST_GPU") != "1":
    raise unittest.SkipTest("without TEST_GPU=1 nothing is expected of this machine's GPUs")
scripted.require("torch")

USE = ("--set", "worker.use=cuda")


class OnGpus(scripted.TestCase):
    def check(self, name, *arguments, options=(), env=None, **job):
        env = {"TEST_DEVICE": "cuda", **(env or {})}
        return self.run_script(name, *arguments, options=[*USE, *options], env=env, **job)

    def test_alone(self):
        for name in ("torch_cuda.py", "torch_ops.py", "torch_state.py", "torch_train.py"):
            with self.subTest(script=name):
                self.check(name, workers=1, servers=0)

    def test_what_only_gpus_have(self):
        self.check("torch_cuda.py")
        self.check("torch_cuda.py", options=["--set", "worker.hierarchy=off"], workers=3)

    def test_operations(self):
        self.check("torch_ops.py")

    def test_state(self):
        self.check("torch_state.py")

    def test_training(self):
        self.check("torch_train.py")

    def test_gradients_are_not_in_shared_memory(self):
        self.check("torch_shared.py", "no", "check_where_gradients_are", servers=0)

    def test_ddp_hook(self):
        with tempfile.TemporaryDirectory() as folder:
            self.check("torch_ddp.py", env={"STORE": os.path.join(folder, "store")})

    def test_a_worker_is_killed(self):
        for how in ("optimizer", "parallel", "barrier"):
            with self.subTest(how=how):
                script = scripted.script("torch_lost.py", how)
                result = harness.run(script, workers=2, servers=1, options=USE, env={"TEST_DEVICE": "cuda"})
                self.assertNotEqual(result.status, 0, str(result))
                text = "\n".join(result.lines("worker 0"))
                self.assertRegex(text, r"^step \d+: .*worker 1.* was lost", str(result))


if __name__ == "__main__":
    unittest.main()
