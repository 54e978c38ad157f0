# SPDX-License-Identifier: Apache-2.0
"""A server comes into a job that runs, takes its share, and the job can do without those that were there before."""

import re
import unittest

import cluster

SETTINGS = ["server.shards=2", "worker.partition=1MiB", "cluster.colocated=none", "log.level=debug"]
STEPS = ["init", "loop:grad:1000000:end", "push:later:1000:float32:sum:1", "cast:last:1000:1", "leave"]
WORKERS = ("worker 0", "worker 1")
JOINS = {"arguments": ["--join"], "settings": ["cluster.rank=-1"]}
SETTLED = "survives the loss of any of them"
SHARE = "this server has its share of job"


class ServerJoins(unittest.TestCase):
    def check(self, ends):
        text = cluster.show(ends)
        for part in WORKERS:
            self.assertEqual(ends[part].status, 0, text)
            for words in ("grad is right", "later: 3", "last: 2"):
                self.assertIn(words, ends[part].out, text)
        return text

    def run_until_steady(self, job):
        for part in WORKERS:
            job.wait_for("grad runs", part)

    def test_replaces_the_only_one(self):
        with cluster.ByHand(STEPS, settings=SETTINGS) as job:
            self.run_until_steady(job)
            job.start("server 1", **JOINS)
            line = job.wait_for(SHARE, "server 1", "err")
            for part in WORKERS:
                job.wait_for(SETTLED, part, "err")
            job.kill_and_wait("server 0")
            for part in WORKERS:
                job.wait_for("was lost", part, "err")
            job.open("end")
            ends = job.finish()
        text = self.check(ends)
        self.assertAlmostEqual(float(re.search(r"(\S+) % of the bytes", line)[1]), 50, delta=1, msg=text)
        self.assertIn("server 1", ends["scheduler"].err, text)
        self.assertEqual(ends["server 1"].status, 0, text)

    def test_after_a_loss(self):
        """And it is lost itself."""
        with cluster.ByHand(STEPS, servers=2, settings=SETTINGS) as job:
            self.run_until_steady(job)
            job.kill_and_wait("server 1")
            job.wait_for("the others take over its tensors", "scheduler", "err")
            job.start("server 2", **JOINS)
            job.wait_for(SHARE, "server 2", "err")
            job.kill_and_wait("server 2")
            for part in WORKERS:
                job.wait_for("server 2 ", part, "err")
            job.open("end")
            ends = job.finish()
        self.check(ends)

    def test_early(self):
        """It waits for the job to gather."""
        with cluster.ByHand(STEPS, settings=SETTINGS, late=["worker 1"]) as job:
            job.start("server 1", **JOINS)
            job.start("worker 1")
            job.wait_for(SHARE, "server 1", "err")
            job.open("end")
            ends = job.finish()
        self.check(ends)

    def test_next_generation(self):
        """Which gathers with those who have come in the place of others."""
        steps = ["init", "loop:grad:1000000:end", "leave", "init", "loop:more:1000:over", "leave"]
        with cluster.ByHand(steps, settings=[*SETTINGS, "cluster.stay=true"]) as job:
            self.run_until_steady(job)
            job.start("server 1", **JOINS)
            for part in WORKERS:
                job.wait_for(SETTLED, part, "err")
            job.kill_and_wait("server 0")
            job.open("end")
            for part in WORKERS:
                job.wait_for("more runs", part)
            job.open("over")
            for part in WORKERS:
                job.wait_for("more is right", part)

    def test_another_waits(self):
        """Without --join it does so, for the next generation; it is not missed when it is silent."""
        settings = [*SETTINGS, "cluster.stay=true", "cluster.peer_timeout=2s"]
        with cluster.ByHand(STEPS, servers=2, settings=settings) as job:
            self.run_until_steady(job)
            job.kill_and_wait("server 1")
            job.wait_for("the others take over its tensors", "scheduler", "err")
            job.start("server 1", name="another")
            job.wait_for("asks the scheduler", "another", "err")
            job.stop("another")
            job.wait_for("no heartbeat for 2 s", "scheduler", "err")
            job.go_on("another")
            job.open("end")
            for part in WORKERS:
                job.wait_for("last: 2", part)
            job.wait_for("no heartbeat", "another", "any")

    def test_refused(self):
        with cluster.ByHand(STEPS, settings=[*SETTINGS, "cluster.failover=false"]) as job:
            self.run_until_steady(job)
            job.start("server 1", **JOINS)
            job.wait_for("has cluster.failover = false", "server 1", "err")
            job.open("end")
            ends = job.finish()
        self.check(ends)
        self.assertGreater(ends["server 1"].status, 0, cluster.show(ends))

    def test_no_job(self):
        with cluster.ByHand(STEPS, settings=SETTINGS, late=[*WORKERS, "server 0"]) as job:
            job.start("server 0", arguments=["--join"], settings=["cluster.rank=-1", "cluster.rendezvous_timeout=1s"])
            words = "this server did not join the job within 1 s (cluster.rendezvous_timeout)"
            job.wait_for(words, "server 0", "err")


if __name__ == "__main__":
    unittest.main()
