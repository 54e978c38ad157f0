# SPDX-License-Identifier: Apache-2.0
"""Process groups and messages, by tests/jobs/groups.c: what each member gets, what is refused, and who is lost."""

import os
import pathlib
import signal
import unittest

import harness

PROGRAM = str(pathlib.Path(os.environ.get("top_builddir", "."), "tests", "jobs", "groups"))
SMALL = ["worker.partition=64 KiB", "worker.slice=16 KiB"]
MANY = "200" if os.environ.get("SANITIZER") else "1000"


def options(settings):
    return [word for setting in settings for word in ("--set", setting)]


def run(*arguments, workers, servers=None, settings=()):
    return harness.run([PROGRAM, *arguments], workers=workers, servers=servers, options=options(settings))


class Groups(unittest.TestCase):
    def check(self, result, workers):
        self.assertEqual(result.status, 0, result)
        for rank in range(workers):
            self.assertEqual(result.lines(f"worker {rank}"), ["fine"], result)

    def test_results(self):
        for workers, servers, settings in (
            (1, 0, []),
            (2, 0, SMALL),
            (4, 0, ["worker.hierarchy=off"]),
            (3, 2, [*SMALL, "server.order=rank"]),
        ):
            with self.subTest(workers=workers, servers=servers):
                self.check(run("all", workers=workers, servers=servers, settings=settings), workers)

    def test_many(self):
        """Each is freed while its operation is in flight."""
        self.check(run("many", MANY, workers=3), 3)

    def test_opened(self):
        """By the members alone, at the same numbers."""
        self.check(run("opened", workers=3), 3)

    def test_threads(self):
        self.check(run("threads", workers=2), 2)

    def test_differences(self):
        result = run("differ", workers=3, servers=1)
        self.assertEqual(result.status, 0, result)
        said = [
            dict(line.split(": ", 1) for line in result.lines(f"worker {rank}") if line != "fine") for rank in range(3)
        ]
        for rank in range(3):
            self.assertIn("worker 1 makes a process group of other ranks here than worker 0", said[rank]["groups"])
            self.assertEqual(said[rank]["twice"], "rank 1 of a process group is there twice")
        self.assertRegex(said[2]["member"], "^worker 2 is no member of process group [0-9]+$")
        for rank in range(2):
            self.assertRegex(said[rank]["count"], "call 1 in process group [0-9]+.*worker 1 pushed.*worker 0 pushed")
            self.assertEqual(said[rank]["root"], "root 2 is not a worker of this process group (0..1)")
            self.assertIn("(from worker 0 to worker 1, tag 0)", said[rank]["message"])
            self.assertRegex(said[rank]["message"], "worker 1 pushed 4 int32 .*, worker 0 pushed 5 int32 ")
            self.assertEqual(said[rank]["self"], f"worker {rank} would send to itself")

    def test_lost_server(self):
        """What a group has summed there is not kept: the job ends, and says why."""
        off = options(["worker.hierarchy=off"])  # else their host sums it
        with harness.Job([PROGRAM, "endless"], workers=2, servers=2, options=off) as job:
            job.wait_for("begun", "worker 0")
            os.kill(job.pid("server 1"), signal.SIGKILL)
            result = job.wait()
        self.assertNotEqual(result.status, 0)
        self.assertIn("summed tensors of process groups, of which no result is kept", result.err)

    def test_lost_member(self):
        with harness.Job([PROGRAM, "endless"], workers=3) as job:
            job.wait_for("begun", "worker 0")
            os.kill(job.pid("worker 1"), signal.SIGKILL)
            result = job.wait()
        self.assertNotEqual(result.status, 0)
        self.assertRegex("\n".join(result.lines("worker 0")), "worker 1 .* was lost")


if __name__ == "__main__":
    unittest.main()
