# SPDX-License-Identifier: Apache-2.0
"""How a Python program ends, and with it the job."""

import os
import signal
import tempfile
import unittest

import harness
import scripted

scripted.require("numpy")


class Interrupts(unittest.TestCase):
    """One of two workers gets SIGINT while it waits for the other."""

    def interrupt(self, how, servers):
        with tempfile.TemporaryDirectory() as folder, harness.Job(
            scripted.script("exit.py", how, "1"),
            workers=2,
            servers=servers,
            env={"FILE": os.path.join(folder, "go")},
        ) as job:
            job.wait_for("waiting", "worker 1")
            os.kill(job.pid("worker 1"), signal.SIGINT)
            return job.wait()

    def test_caught(self):
        for how in ("wait again", "drop"):
            for servers in (0, 1):
                with self.subTest(how, servers=servers):
                    result = self.interrupt(how, servers)
                    self.assertEqual(result.status, 0, result)
                    self.assertEqual(result.lines("worker 0"), ["trained"], result)
                    self.assertEqual(result.lines("worker 1"), ["waiting", "interrupted", "trained"], result)

    def test_end_of_the_process(self):
        for servers in (0, 1):
            with self.subTest(servers=servers):
                result = self.interrupt("end", servers)
                self.assertEqual(result.status, 128 + signal.SIGINT, result)
                self.assertRegex(result.err, r"worker 1 \(pid \d+\) was killed by SIGINT; ending the job\n")
                self.assertIn("worker 1", "\n".join(result.lines("worker 0")), result)


if __name__ == "__main__":
    unittest.main()
