# SPDX-License-Identifier: Apache-2.0
"""Tests of how programs with a framework end, and with them the job: the script is FRAMEWORK_ends.py."""

import os
import tempfile
import unittest

import harness
import scripted


class TestCase(scripted.TestCase):
    """The tests that all frameworks have. A file of tests makes a subclass and says which it is of."""

    program = None
    loops = ()
    error = None
    """The framework's exception for a worker that was lost, a regular expression."""

    @classmethod
    def setUpClass(cls):
        if cls.program is None:
            raise unittest.SkipTest("it has the tests of its subclasses")

    def run_ends(self, how, rank, servers=1, **env):
        with tempfile.TemporaryDirectory() as folder:
            env["FILE"] = os.path.join(folder, "go")
            command = self.script(self.program, how, str(rank), env=env)
            return harness.run(command, workers=2, servers=servers, env=env)

    def check(self, loop, end, kind=None, rank=1, servers=1, **env):
        """One worker ends in the middle of a loop: the job with its status, the other with the framework's error."""
        result = self.run_ends(f"{loop} {end}", rank, servers, **env)
        self.assertEqual(result.status, {"killed": 137, "exception": 1, "exit": 3}[end], result)
        says = [line for line in result.err.splitlines() if "; ending the job" in line]
        self.assertEqual(len(says), 1, result)
        self.assertIn(f"worker {rank} ", says[0], result)
        text = "\n".join(result.lines(f"worker {1 - rank}"))
        expected = rf"{kind or self.error}: .*worker {rank} \(.*was lost.*tensor '.*' was in flight"
        self.assertRegex(text, expected, result)

    def test_loops(self):
        for loop in self.loops:
            for end in ("killed", "exception", "exit"):
                with self.subTest(loop=loop, end=end):
                    self.check(loop, end)

    def test_first_worker_with_the_server(self):
        self.check(self.loops[-1], "killed", rank=0, servers=0)

    def test_threads_that_wait(self):
        for servers in (0, 1):
            with self.subTest(servers=servers):
                result = self.run_ends("thread", 1, servers)
                self.assertEqual(result.status, 0, result)

    def test_training_goes_on(self):
        for how in ("fork", "interrupted", "caught"):
            with self.subTest(how=how):
                result = self.run_ends(how, 1)
                self.assertEqual(result.status, 0, result)
                for rank in range(2):
                    self.assertEqual(result.lines(f"worker {rank}")[-1], "trained", result)
                if how == "interrupted":
                    self.assertEqual(result.lines("worker 1"), ["interrupted", "trained"], result)
