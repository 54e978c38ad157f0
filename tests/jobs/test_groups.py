# SPDX-License-Identifier: Apache-2.0
"""Process groups and messages, by tests/jobs/groups.c: what each member gets, what is refused, and who is lost."""

import os
import pathlib
import re
import signal
import unittest

import harness
import scripted

PROGRAM = str(pathlib.Path(os.environ.get("top_builddir", "."), "tests", "jobs", "groups"))
SMALL = ["worker.partition=64 KiB", "worker.slice=16 KiB"]
MANY = "200" if os.environ.get("SANITIZER") else "1000"


def options(settings):
    return [word for setting in settings for word in ("--set", setting)]


def run(*arguments, workers, servers=None, settings=()):
    return harness.run([PROGRAM, *arguments], workers=workers, servers=servers, options=options(settings))


@unittest.skipIf(os.geteuid() != 0, "needs root for hosts of their own names")
class Hosts(unittest.TestCase):
    """Several hosts, of which no server is: what has its members on one of them does not touch the network."""

    def on_hosts(self, hosts, *arguments, servers, settings=()):
        command = ["sh", "-c", scripted.ON_HOSTS, "sh", PROGRAM, *arguments]
        how = {"workers": len(hosts.split(",")), "servers": servers, "env": {"HOSTS": hosts}}
        return harness.Job(command, options=options(settings), **how)

    def fine(self, hosts, *arguments, servers, settings=()):
        with self.on_hosts(hosts, *arguments, servers=servers, settings=settings) as job:
            result = job.wait()
        self.assertEqual(result.status, 0, result)
        for rank in range(len(hosts.split(","))):
            self.assertEqual(result.lines(f"worker {rank}"), ["fine"], result)
        return result

    def test_results(self):
        """Groups on one host and on several, which overlap, at the same time."""
        for hosts, servers in (("a,a,b", 0), ("a,b,a,a", 2)):
            with self.subTest(hosts=hosts, servers=servers):
                self.fine(hosts, "all", servers=servers, settings=SMALL)

    def bytes_of_network(self, *settings):
        """What the worker with the most has sent or received."""
        settings = ["log.level=info", "cluster.colocated=none", *settings]
        said = self.fine("a,a,b,b", "local", servers=1, settings=settings).err
        counted = re.findall(r"worker/\d transports\.net .*: bytes_sent (\d+), bytes_received (\d+)", said)
        self.assertEqual(len(counted), 4, said)
        return max(int(number) for pair in counted for number in pair)

    def test_no_network(self):
        """Joining and making the groups is all that there is; one operation alone would be more than ten times that."""
        self.assertLess(self.bytes_of_network(), 20000)
        self.assertGreater(self.bytes_of_network("worker.hierarchy=off"), 20000000)

    def test_lost_member(self):
        with self.on_hosts("a,a,b", "endless", servers=1) as job:
            job.wait_for("begun", "worker 0")
            os.kill(job.pid("worker 1"), signal.SIGKILL)
            result = job.wait()
        self.assertNotEqual(result.status, 0)
        self.assertRegex("\n".join(result.lines("worker 0")), "worker 1 .* was lost")


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
            self.assertIn("worker 1 makes a process group of other ranks than worker 0", said[rank]["groups"])
            self.assertEqual(said[rank]["twice"], "rank 1 of a process group is listed twice")
        self.assertRegex(said[2]["member"], "^worker 2 is not a member of process group [0-9]+$")
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
