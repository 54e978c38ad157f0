# SPDX-License-Identifier: Apache-2.0
"""Servers are killed while a job trains: it goes on without them, and every result is right."""

import os
import unittest

import cluster
import harness
import scripted
import test_cuts

SETTINGS = ["cluster.peer_timeout=30s", "server.shards=2", "worker.partition=1MiB", "cluster.colocated=none"]
STEPS = ["init", "loop:grad:1000000:end", "push:later:1000:float32:sum:1", "cast:last:1000:1", "leave"]
WAYS = {
    "over the network": [],
    "over the network, by rank": ["server.order=rank"],
    "with the server of the host": ["server.local=true"],
}


class Failover(unittest.TestCase):
    def play(self, settings, servers, victims):
        with cluster.ByHand(STEPS, servers=servers, settings=SETTINGS + settings) as job:
            for part in ("worker 0", "worker 1"):
                job.wait_for("grad runs", part)
            for victim in victims:
                job.kill_and_wait(victim)
            for part in ("worker 0", "worker 1"):
                job.wait_for("was lost", part, "err")
            job.open("end")
            ends = job.finish()
        text = cluster.show(ends)
        for part in ("worker 0", "worker 1"):
            self.assertEqual(ends[part].status, 0, text)
            for words in ("grad is right", "later: 3", "last: 2"):
                self.assertIn(words, ends[part].out, text)
        self.assertIn("the others take over its tensors", ends["scheduler"].err, text)

    def test_one(self):
        for name, settings in WAYS.items():
            with self.subTest(name):
                self.play(settings, 2, ["server 0"])

    def test_two_of_three(self):
        self.play([], 3, ["server 2", "server 0"])

    def test_silent(self):
        """It is stopped, and sent away when it goes on."""
        settings = [setting for setting in SETTINGS if "peer_timeout" not in setting] + ["cluster.peer_timeout=2s"]
        with cluster.ByHand(STEPS, servers=2, settings=settings) as job:
            job.wait_for("grad runs", "worker 1")
            job.stop("server 1")
            job.wait_for("the others take over its tensors", "scheduler", "err")
            job.go_on("server 1")
            job.open("end")
            ends = job.finish()
        text = cluster.show(ends)
        for part in ("worker 0", "worker 1"):
            self.assertEqual(ends[part].status, 0, text)
            self.assertIn("grad is right", ends[part].out, text)
        self.assertGreater(ends["server 1"].status, 0, text)
        self.assertRegex(ends["server 1"].text, "no heartbeat for 2 s|the scheduler at .* was lost", text)

    def test_cut_off(self):
        """One worker does not reach it any more."""
        with cluster.ByHand(STEPS, servers=2, settings=SETTINGS) as job:
            job.wait_for("grad runs", "worker 1")
            port = job.watch_ports("server 0")[0]
            self.assertTrue(test_cuts.cut(job.pid("worker 1"), port))
            line = job.wait_for("the others take over its tensors", "scheduler", "err")
            job.open("end")
            ends = job.finish()
        text = cluster.show(ends)
        self.assertRegex(line, r"server 0 \(.*\) was lost for worker 1 \(", text)
        for part in ("worker 0", "worker 1"):  # one by its connection, the other mostly by the scheduler
            self.assertRegex(ends[part].err, r"server 0 \S.* was lost", text)
            self.assertEqual(ends[part].status, 0, text)
            self.assertIn("grad is right", ends[part].out, text)
        self.assertRegex(ends["server 0"].text, "was lost for worker 1", text)

    def test_the_last(self):
        """The clear end."""
        with cluster.ByHand(STEPS, servers=2, settings=SETTINGS) as job:
            job.wait_for("grad runs", "worker 0")
            job.kill_and_wait("server 1")
            job.wait_for("was lost", "worker 0", "err")
            job.kill_and_wait("server 0")
            ends = job.finish()
        for part in ("worker 0", "worker 1"):
            self.assertEqual(ends[part].status, 3, cluster.show(ends))
            self.assertRegex(ends[part].out, r"server 0 .* was lost", cluster.show(ends))

    def test_switched_off(self):
        with cluster.ByHand(STEPS, servers=2, settings=[*SETTINGS, "cluster.failover=false"]) as job:
            job.wait_for("grad runs", "worker 0")
            job.kill_and_wait("server 1")
            ends = job.finish()
        self.assertRegex(ends["worker 0"].out, r"server 1 .* was lost", cluster.show(ends))


@scripted.unwatched
class ByRun(unittest.TestCase):
    """The same with `byteps run`: its status is that of the workers."""

    def play(self, settings=(), servers=2, **how):
        """Kills the last server in the midst of rounds, and returns the ends and what `byteps run` has said."""
        with cluster.ByRun(STEPS, servers=servers, settings=[*SETTINGS, *settings], **how) as job:
            for part in ("worker 0", "worker 1"):
                job.wait_for("grad runs", part)
            job.kill(f"server {servers - 1}")
            for part in ("worker 0", "worker 1"):
                job.wait_for("was lost", part, "err")
            job.open("end")
            ends = job.finish()
        return ends, ends["byteps run"]

    def test_goes_on(self):
        cases = {
            "here": (None, 2, []),
            "hosts": ("localhost:1,127.0.0.1:1", 2, []),
            "two on a host": ("localhost:1,127.0.0.1:1", 4, []),
            "workers go on": (None, 1, ["cluster.colocated=all"]),
        }
        for name, (hosts, servers, settings) in cases.items():
            with self.subTest(name):
                ends, own = self.play(settings, servers=servers, hosts=hosts)
                text = cluster.show(ends)
                self.assertEqual(own.status, 0, text)
                for part in ("worker 0", "worker 1"):
                    for words in ("grad is right", "later: 3", "last: 2"):
                        self.assertIn(words, ends[part].out, text)
                line = (
                    rf"byteps run: server {servers - 1} \(pid \d+(, host \S+)?\) was killed by SIGKILL; "
                    r"the job goes on without it"
                )
                self.assertRegex(own.err, rf"\A{line}\Z", text)

    def test_expelled(self):
        """It is silent, and ends with an error as soon as it can."""
        with cluster.ByRun(STEPS, servers=2, settings=[*SETTINGS, "cluster.peer_timeout=2s"]) as job:
            for part in ("worker 0", "worker 1"):
                job.wait_for("grad runs", part)
            job.stop("server 1")
            job.wait_for("was lost", "scheduler", "err")
            job.go_on("server 1")
            job.wait_for("the job goes on without it", None, "err")
            job.open("end")
            ends = job.finish()
        own = ends["byteps run"]
        self.assertEqual(own.status, 0, cluster.show(ends))
        line = r"byteps run: server 1 \(pid \d+\) exited with status \d+; the job goes on without it"
        self.assertRegex(own.err, rf"\A{line}\Z", cluster.show(ends))

    def test_switched_off(self):
        for hosts in (None, "localhost:1,127.0.0.1:1"):
            with self.subTest(hosts):
                ends, own = self.play(["cluster.failover=false"], hosts=hosts)
                self.assertEqual(own.status, 137, cluster.show(ends))
                self.assertRegex(own.err, r"server 1 \(.*\) was killed by SIGKILL; ending the job", cluster.show(ends))


def script(name):
    return os.path.join(os.environ.get("top_srcdir", "."), "tests/jobs/scripts", name)


@scripted.unwatched
class Values(unittest.TestCase):
    """Tensors in mode async: each push is in the value once, whichever server has it."""

    def play(self, workers, servers, victims, settings=(), program="async_failover.py", says="after [0-9]+ steps"):
        small = ["worker.partition=256KiB", "worker.slice=32KiB", "worker.async=true", "cluster.colocated=none"]
        steps, python = [script(program)], (harness.python(),)
        with cluster.ByHand(steps, workers, servers, [*small, *settings], worker=python) as job:
            parts = [f"worker {i}" for i in range(workers)]
            for part in parts:
                job.wait_for("pushes", part)
            for victim in victims:
                job.kill_and_wait(victim)
                for part in parts:
                    job.wait_for(victim, part, "err")
            job.open("end")
            ends = job.finish()
        text = cluster.show(ends)
        for part in parts:
            self.assertEqual(ends[part].status, 0, text)
            self.assertRegex(ends[part].out, says, text)

    def test_rows(self):
        self.play(2, 2, ["server 1"], program="async_rows_lost.py", says="right after a loss")

    def test_one_lost(self):
        for workers in (2, 3):
            for attempt in range(2):
                with self.subTest(f"{workers} workers, {attempt}"):
                    self.play(workers, 2, [f"server {attempt}"])

    def test_two_lost(self):
        self.play(2, 3, ["server 2", "server 0"])

    def test_staleness(self):
        self.play(3, 2, ["server 1"], ["worker.staleness=1"])


@scripted.unwatched
class Late(unittest.TestCase):
    def test_what_nobody_else_has(self):
        """The job ends, and says why."""
        settings = ["server.quorum=n-1", "cluster.colocated=none"]
        with cluster.ByHand([script("rounds_lost.py")], 2, 2, settings, worker=(harness.python(),)) as job:
            for part in ("worker 0", "worker 1"):
                job.wait_for("pushes", part)
            job.kill_and_wait("server 1")
            for part in ("worker 0", "worker 1"):
                job.wait_for("lost: ", part)
            text = cluster.show(job.finish())
        self.assertIn("a server was lost that has ended rounds whose results have not reached late workers", text)


if __name__ == "__main__":
    unittest.main()
