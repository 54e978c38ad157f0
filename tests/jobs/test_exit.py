# SPDX-License-Identifier: Apache-2.0
"""How a Python program ends, and with it the job."""

import os
import pathlib
import signal
import tempfile
import unittest

import harness
import scripted

scripted.require("numpy")

PROGRAM = pathlib.Path(os.environ.get("top_builddir", "."), "tests", "jobs", "exit")


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
                result = self.interrupt("interrupt", servers)
                self.assertEqual(result.status, 128 + signal.SIGINT, result)
                self.assertRegex(result.err, r"worker 1 \(pid \d+\) was killed by SIGINT; ending the job\n")
                self.assertIn("worker 1", "\n".join(result.lines("worker 0")), result)


class Ends(unittest.TestCase):
    """One of two workers ends before the other."""

    def failed(self, result, status, rank):
        """The job has failed for this worker, which nothing has waited for; the other worker has heard of it."""
        self.assertEqual(result.status, status, result)
        says = [line for line in result.err.splitlines() if "; ending the job" in line]
        self.assertEqual(len(says), 1, result)
        self.assertRegex(says[0], rf"worker {rank} \(pid \d+\) exited with status {status}; ending the job$")
        self.assertIn(f"worker {rank} ", "\n".join(result.lines(f"worker {1 - rank}")), result)
        self.assertNotIn("it shut down while", result.err)

    def test_failure(self):
        for how, status in (
            ("sys.exit", 3),
            ("sys.exit, nothing in flight", 3),
            ("os._exit", 3),
            ("exception", 1),
        ):
            for servers, rank in ((0, 0), (0, 1), (1, 0), (1, 1)):
                with self.subTest(how, servers=servers, rank=rank):
                    command = scripted.script("exit.py", how, str(rank))
                    self.failed(harness.run(command, workers=2, servers=servers), status, rank)

    def test_exit_handler_that_leaves(self):
        """What threads of the library use is still there, and they do their part."""
        for status in (0, 3):
            with self.subTest(status):
                result = harness.run([str(PROGRAM), str(status)], workers=2)
                self.assertEqual(result.status, status, result)
                for worker in ("worker 0", "worker 1"):
                    self.assertEqual(result.lines(worker), ["left"], result)

    def test_failure_that_shows_late(self):
        """The process of worker 1 outlives its Python: the job ends for it all the same."""
        late = '"$@"; status=$?; [ "$BYTEPS_LOCAL_RANK" = 0 ] || sleep 1; exit "$status"'
        for servers in (0, 1):
            with self.subTest(servers=servers):
                command = ["sh", "-c", late, "sh", *scripted.script("exit.py", "sys.exit", "1")]
                self.failed(harness.run(command, workers=2, servers=servers), 3, 1)

    def test_success_with_an_operation_in_flight(self):
        for servers in (0, 1):
            with self.subTest(servers=servers), tempfile.TemporaryDirectory() as folder:
                env = {"FILE": os.path.join(folder, "go")}
                result = harness.run(scripted.script("exit.py", "success", "1"), workers=2, servers=servers, env=env)
                self.assertEqual((result.status, result.err), (0, ""), result)


if __name__ == "__main__":
    unittest.main()
