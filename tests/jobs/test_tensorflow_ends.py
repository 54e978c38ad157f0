# SPDX-License-Identifier: Apache-2.0
"""How programs with TensorFlow and Keras end, and with them the job."""

import os
import tempfile
import unittest

import harness
import scripted

PYTHON = harness.framework_python("tensorflow")
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"


def run(how, rank, servers=1, **env):
    with tempfile.TemporaryDirectory() as folder:
        command = scripted.script("tensorflow_ends.py", how, str(rank), python=PYTHON)
        env["FILE"] = os.path.join(folder, "go")
        return harness.run(command, workers=2, servers=servers, env=env)


class Failures(unittest.TestCase):
    """One worker ends in the middle of a loop: the job with its status, the other with the framework's error."""

    def check(self, loop, end, kind, rank=1, servers=1, **env):
        result = run(f"{loop} {end}", rank, servers, **env)
        self.assertEqual(result.status, {"killed": 137, "exception": 1, "exit": 3}[end], result)
        says = [line for line in result.err.splitlines() if "; ending the job" in line]
        self.assertEqual(len(says), 1, result)
        self.assertIn(f"worker {rank} ", says[0], result)
        text = "\n".join(result.lines(f"worker {1 - rank}"))
        self.assertRegex(text, rf"{kind}: .*worker {rank} \(.*was lost.*tensor '.*' was in flight", result)

    def test_loops(self):
        for loop in ("function", "session", "fit"):
            for end in ("killed", "exception", "exit"):
                with self.subTest(loop=loop, end=end):
                    self.check(loop, end, "tf.errors.InternalError")

    def test_first_worker_with_the_server(self):
        self.check("fit", "killed", "tf.errors.InternalError", rank=0, servers=0)

    def test_other_backends(self):
        for backend, kind in (("jax", "jax.*JaxRuntimeError"), ("torch", "byteps.*LostError")):
            with self.subTest(backend=backend):
                self.check("fit", "killed", kind, KERAS_BACKEND=backend)


class Ends(unittest.TestCase):
    """Nothing is left in flight."""

    def test_threads_that_wait(self):
        for servers in (0, 1):
            with self.subTest(servers=servers):
                result = run("thread", 1, servers)
                self.assertEqual(result.status, 0, result)

    def test_training_goes_on(self):
        for how in ("fork", "interrupted", "caught"):
            with self.subTest(how=how):
                result = run(how, 1)
                self.assertEqual(result.status, 0, result)
                for rank in range(2):
                    self.assertEqual(result.lines(f"worker {rank}")[-1], "trained", result)
                if how == "interrupted":
                    self.assertEqual(result.lines("worker 1"), ["interrupted", "trained"], result)


if __name__ == "__main__":
    unittest.main()
