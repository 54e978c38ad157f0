# SPDX-License-Identifier: Apache-2.0
"""Children that workers fork: see scripts/fork.py."""

import os
import signal
import unittest

import harness
import scripted

scripted.require("numpy")


class Fork(scripted.TestCase):
    def test_with_a_server(self):
        self.run_script("fork.py", workers=2, servers=1)

    def test_server_in_a_worker(self):
        self.run_script("fork.py", workers=2, servers=0)

    def test_the_end_of_a_script(self):
        self.run_script("fork.py", "leave", workers=2, servers=1)

    def test_beginning_and_ending_jobs(self):
        self.run_script("fork.py", "alone", workers=1, servers=0)

    def test_beside_a_scheduler(self):
        command = scripted.script("fork.py", "hosts")
        done = harness.execute(command, env={**os.environ, "BYTEPS_SET": "cluster.workers=1"})
        self.assertEqual((done.returncode, done.stdout), (0, "passed 1\n"), done.stderr)

    def test_a_child_keeps_no_connection(self):
        """That the parent has died is known at once, not when the child ends or after cluster.peer_timeout."""
        for servers in (0, 1):
            with self.subTest(servers=servers):
                settings = ["--set", "cluster.peer_timeout=1 h"]
                command = scripted.script("fork.py", "hold")
                with harness.Job(command, workers=2, servers=servers, options=settings) as job:
                    job.wait_for("ready", "worker 0")
                    os.kill(job.pid("worker 0"), signal.SIGKILL)
                    line = job.wait_for("lost", "worker 1", timeout=25)
                    self.assertRegex(line, "worker 0.* was lost|server 0.* was lost")
                    result = job.wait()
                self.assertNotEqual(result.status, 0, result)


if __name__ == "__main__":
    unittest.main()
