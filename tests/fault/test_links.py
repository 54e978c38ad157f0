# SPDX-License-Identifier: Apache-2.0
"""The link of a host is cut while a job runs: too long, and all hear of it; not too long, and it goes on."""

import contextlib
import os
import re
import sys
import tempfile
import time
import unittest

import cluster
import harness

sys.path.append(os.path.join(os.environ["top_srcdir"], "bench"))

from testbed import Testbed, Unavailable, kernel  # noqa: E402  (it lies in the folder that was just added)

LOOP = ["init", "loop:grad:100000:enough", "leave"]
IDLE = ["init", "push:warm:8:float32:sum:1", "gate:idle", "loop:grad:100000:enough", "leave"]
LATE = ["@2:gate:late", "init", "leave"]
WORKERS = [1, 2]  # ranks 1 and 2 are on host 1, an extra server is on host 2
TIMES = ["cluster.peer_timeout=3s", "cluster.rendezvous_timeout=20s"]  # who is cut off waits for another scheduler
SWITCHED_OFF = ["cluster.failover=false"]
BY_TRANSPORT = ["cluster.peer_timeout=300s", "transports.net.user_timeout=2s", "transports.net.keepalive=2s"]
LOST = r"(scheduler|server \d+|worker \d+) (?:\(host|at) .* was lost: "


class OnHosts:
    """A job on three hosts of its own, to be used by `with`."""

    def __init__(self, steps, settings, workers=WORKERS, **shape):
        harness.program()
        with contextlib.ExitStack() as stack:
            try:
                self.bed = stack.enter_context(Testbed(3, "1gbit"))
            except Unavailable as reason:
                raise unittest.SkipTest(str(reason)) from None
            self.gates = stack.enter_context(tempfile.TemporaryDirectory(prefix="byteps-fault-"))
            env = {"GATES": self.gates, "ASAN_OPTIONS": "detect_leaks=1"}
            job = self.bed.job([cluster.WORKER, *steps], workers, settings=settings, env=env, **shape)
            self.job = stack.enter_context(job)
            self.stack = stack.pop_all()
        self.workers = [part for part in self.job.parts if part.startswith("worker")]

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.stack.close()

    def wait_for_all(self, text):
        for part in self.workers:
            self.job.wait_for(text, part)

    def open(self, gate):
        with open(os.path.join(self.gates, gate), "x", encoding="ascii"):
            pass

    def finish(self, test):
        """How all parts have ended by themselves; none of them may have left anything behind."""
        ends = self.job.finish()
        for end in ends.values():
            test.assertNotRegex(end.err, "Sanitizer: |runtime error: ", self.job.show())
        test.assertEqual(self.bed.leftovers(), [], self.job.show())
        return ends


class TooLong(unittest.TestCase):
    """Those on either side of the cut say who of the other side gives no sign of life."""

    def cut(self, host, steps=LOOP, unplug=False, more=(), **shape):
        settings = [*TIMES, "server.shards=1", *more]
        with OnHosts(steps, settings, **shape) as hosts:
            hosts.wait_for_all("at idle" if steps is IDLE else "grad runs")
            hosts.bed.cut(host, unplug)
            if steps is IDLE:
                hosts.job.wait_for("was lost", "scheduler", "any")
                hosts.open("idle")
            ends = hosts.finish(self)
            beyond = {part for part, end in ends.items() if end.host == f"h{host}"}
            for part, end in ends.items():
                self.assertNotEqual(end.status, 0, f"{part}\n{hosts.job.show()}")
                lost = set(re.findall(LOST, end.out + end.err))
                others = set(ends) - beyond if part in beyond else beyond
                self.assertTrue(lost & others, f"{part} speaks of {lost}\n{hosts.job.show()}")

    def outlive(self):
        """Workers serve as well, so the job goes on without the server."""
        with OnHosts(LOOP, [*TIMES, "server.shards=1"], servers=1) as hosts:
            hosts.wait_for_all("grad runs")
            hosts.bed.cut(2)
            hosts.job.wait_for("the others take over its tensors", "scheduler", "any")
            hosts.open("enough")
            for part, end in hosts.finish(self).items():
                if part == "server 0":
                    self.assertRegex(end.out + end.err, LOST, hosts.job.show())
                else:
                    self.assertEqual(end.status, 0, f"{part}\n{hosts.job.show()}")
                if part in hosts.workers:
                    self.assertIn("grad is right", end.out, hosts.job.show())

    def cut_for_the_transport(self):
        """The transport hears no acknowledgement long before the members miss each other's signs of life."""
        with OnHosts(LOOP, BY_TRANSPORT, servers=1) as hosts:
            hosts.wait_for_all("grad runs")
            hosts.bed.cut(1)
            ends = hosts.finish(self)
            for part, end in ends.items():
                self.assertNotEqual(end.status, 0, f"{part}\n{hosts.job.show()}")
                self.assertRegex(end.out + end.err, LOST, f"{part}\n{hosts.job.show()}")
            self.assertIn("no answer for 2 s", ends["server 0"].err, hosts.job.show())

    def gather(self):
        """A host that never comes: those who wait say who is missing, and so does it. Its first worker may have come.
        """
        with OnHosts(LATE, ["cluster.rendezvous_timeout=10s"], servers=1) as hosts:
            hosts.job.wait_for("at late", "worker 2")
            hosts.bed.cut(1)
            hosts.open("late")
            ends = hosts.finish(self)
            for part, end in ends.items():
                self.assertNotEqual(end.status, 0, f"{part}\n{hosts.job.show()}")
            self.assertRegex(ends["worker 0"].out, r"missing .*worker.*\b2\b", hosts.job.show())
            self.assertIn("scheduler", ends["worker 2"].out, hosts.job.show())

    def test_all_hosts(self):
        cases = {
            "with workers": lambda: self.cut(1, servers=1),
            "with workers, unplugged": lambda: self.cut(1, servers=1, unplug=True),
            "with workers, idle": lambda: self.cut(1, steps=IDLE, servers=1),
            "with a server": self.outlive,
            "with a server that the job does not go on without": lambda: self.cut(2, servers=1, more=SWITCHED_OFF),
            "with workers and a server": lambda: self.cut(1, beside=True),
            "with a worker that serves": lambda: self.cut(0),
            "with the worker that serves all": lambda: self.cut(0, more=["cluster.colocated=first"]),
            "with a worker and the scheduler": lambda: self.cut(0, servers=1, scheduler_host=0),
            "for the transport": self.cut_for_the_transport,
            "while the job gathers": self.gather,
        }
        cluster.side_by_side(self, cases)


class NotTooLong(unittest.TestCase):
    """A second and a half is less than the time-out."""

    def blink(self, hosts_to_cut, unplug=False, **shape):
        with OnHosts(LOOP, ["cluster.peer_timeout=60s"], **shape) as hosts:
            hosts.wait_for_all("grad runs")
            for host in hosts_to_cut:
                hosts.bed.cut(host, unplug)
                time.sleep(1.5)
                hosts.bed.restore(host)
            hosts.open("enough")
            for part, end in hosts.finish(self).items():
                self.assertEqual(end.status, 0, f"{part}\n{hosts.job.show()}")
                self.assertNotIn("lost", end.out + end.err, hosts.job.show())
                if part in hosts.workers:
                    self.assertIn("grad is right", end.out, hosts.job.show())

    def test_job_goes_on(self):
        cases = {
            "each host": lambda: self.blink(range(3), servers=1),
            "unplugged": lambda: self.blink([1], unplug=True, servers=1),
            "a worker and a server": lambda: self.blink([1], beside=True),
            "a worker that serves": lambda: self.blink([0]),
        }
        cluster.side_by_side(self, cases)


class SeveralPaths(unittest.TestCase):
    """A second network joins the host of the workers and that of the server and the scheduler."""

    CONNECTIONS = 4  # of two workers to the scheduler and to a server of one shard

    def join(self, bed):
        """Makes the second network and tells the kernels of it."""
        workers, server = bed.namespace(1), bed.namespace(2)
        kernel.command("ip", "-n", workers, *"link add eth1 type veth peer name eth1 netns".split(), server)
        for namespace, number in ((workers, 1), (server, 2)):
            kernel.command("ip", "-n", namespace, "addr", "add", f"10.78.0.{number}/24", "dev", "eth1")
            kernel.command("ip", "-n", namespace, "link", "set", "eth1", "up")
            kernel.command("ip", "-n", namespace, *"mptcp limits set subflows 2 add_addr_accepted 2".split())
        kernel.command("ip", "-n", server, *"mptcp endpoint add 10.78.0.2 dev eth1 port 7800 signal".split())

    def paths(self, bed):
        """How many connections go over the second network."""
        return len(kernel.command("ss", "-N", bed.namespace(1), "-Hnt", "dst", "10.78.0.2").splitlines())

    def test_job_goes_on_over_the_other(self):
        settings = ["transports.net.multipath=true", "transports.net.user_timeout=5s", "server.shards=1"]
        settings.append("worker.hierarchy=off")  # so that both workers need the server
        steps = ["gate:joined", *LOOP]
        with OnHosts(steps, settings, workers=[0, 2], servers=1, scheduler_host=2) as hosts:
            try:
                self.join(hosts.bed)
            except OSError as reason:
                self.skipTest(f"no Multipath TCP: {reason}")
            hosts.open("joined")
            hosts.wait_for_all("grad runs")
            harness.until(lambda: self.paths(hosts.bed) >= self.CONNECTIONS, "second path")
            hosts.bed.cut(1)
            time.sleep(6)  # longer than it takes to count a peer as dead
            hosts.open("enough")
            ends = hosts.job.finish()
            kernel.command("ip", "-n", hosts.bed.namespace(2), "mptcp", "endpoint", "flush")  # the kernel's listener
            self.assertEqual(hosts.bed.leftovers(), [], hosts.job.show())
            for part, end in ends.items():
                self.assertEqual(end.status, 0, f"{part}\n{hosts.job.show()}")
                self.assertNotRegex(end.err, "Sanitizer: |runtime error: ", hosts.job.show())
                if part in hosts.workers:
                    self.assertIn("grad is right", end.out, hosts.job.show())


if __name__ == "__main__":
    unittest.main()
