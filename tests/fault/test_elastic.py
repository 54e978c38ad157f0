# SPDX-License-Identifier: Apache-2.0
"""Workers of an elastic job are killed, and others come, while it trains: the others go on, and all have the same."""

import re
import unittest

import cluster
import harness
import random_kills

STEPS = ["20000", "end", "1"]
SETTINGS = ["cluster.peer_timeout=10s", "cluster.min_workers=1", "cluster.max_workers=4", "worker.hierarchy=auto"]
WAYS = {
    "servers": (2, ["cluster.colocated=none"]),
    "workers serve": (0, ["cluster.colocated=all"]),
    "the first serves": (1, ["cluster.colocated=first"]),
}


class Elastic(unittest.TestCase):
    def job(self, servers, settings, workers=3, **how):
        return cluster.ByHand(
            STEPS, workers=workers, servers=servers, settings=SETTINGS + settings, worker=(random_kills.TRAINER,), **how
        )

    def check(self, ends, workers):
        """All of these have learned the same."""
        text = cluster.show(ends)
        said = set()
        for part in workers:
            self.assertEqual(ends[part].status, 0, f"{part}\n{text}")
            said.add(re.search(r"is at (\d+ after \d+ steps), as \d of (\d)", ends[part].out).groups())
        self.assertEqual(len(said), 1, text)
        self.assertEqual(said.pop()[1], str(len(workers)), text)

    def test_one_is_killed(self):
        for name, (servers, settings) in WAYS.items():
            for victim in ("worker 2", "worker 0"):
                with self.subTest(name, victim=victim), self.job(servers, settings) as job:
                    others = [part for part in ("worker 0", "worker 1", "worker 2") if part != victim]
                    job.wait_for("trains", others[0])
                    job.kill_and_wait(victim)
                    for part in others:
                        job.wait_for("reforms", part)
                    job.open("end")
                    self.check(job.finish(), others)

    def test_newcomers(self):
        """Two come while it trains, one of them in the place of one that was killed."""
        for name, (servers, settings) in WAYS.items():
            with self.subTest(name), self.job(servers, settings) as job:
                job.wait_for("trains", "worker 0")
                job.start("worker 3")
                job.wait_for("joins as 3 of 4", "worker 3")
                job.wait_for("reforms as 0 of 4", "worker 0")
                job.kill_and_wait("worker 0")
                job.wait_for("reforms as 0 of 3", "worker 1")
                job.start("worker 0", name="another")
                job.wait_for("joins as 3 of 4", "another")
                job.wait_for("trains", "another")
                job.open("end")
                self.check(job.finish(), ["worker 1", "worker 2", "worker 3", "another"])

    def refused(self, job):
        return [part for part in job.parts if "already has its 4 workers" in job.parts[part].text("out")]

    def test_too_many(self):
        with self.job(1, [], workers=2) as job:
            job.wait_for("trains", "worker 0")
            for name in ("worker 2", "worker 3", "another"):
                job.start("worker 3", name=name)
            refused = harness.until(lambda: self.refused(job), "refusal")
            job.open("end")
            others = [part for part in job.parts if part.startswith(("worker", "another")) and part not in refused]
            job.wait_for("of 4", others[-1])
            self.check(job.finish(), others)

    def test_with_a_server(self):
        """Worker and server at once, and then another server."""
        for order in ("arrival", "rank"):
            with self.subTest(order), self.job(3, ["cluster.colocated=none", f"server.order={order}"]) as job:
                job.wait_for("trains", "worker 0")
                job.kill("server 1")
                job.kill_and_wait("worker 1")
                job.wait_for("reforms as 1 of 2", "worker 2")
                job.kill_and_wait("server 0")
                job.wait_for("server 0", "worker 2", "err")
                job.kill_and_wait("worker 2")
                job.wait_for("reforms as 0 of 1", "worker 0")
                job.open("end")
                self.check(job.finish(), ["worker 0"])

    def test_silent(self):
        """It is stopped, sent away, and says so when it goes on."""
        settings = [*SETTINGS[1:], "cluster.peer_timeout=2s"]
        with cluster.ByHand(STEPS, workers=2, servers=1, settings=settings, worker=(random_kills.TRAINER,)) as job:
            job.wait_for("trains", "worker 1")
            job.stop("worker 0")
            job.wait_for("reforms as 0 of 1", "worker 1")
            job.go_on("worker 0")
            job.open("end")
            ends = job.finish()
        self.check({**ends}, ["worker 1"])
        self.assertEqual(ends["worker 0"].status, 3, cluster.show(ends))
        self.assertRegex(ends["worker 0"].out, "error: worker 0 .* was lost: no heartbeat for 2 s")

    def test_too_few(self):
        settings = [*SETTINGS, "cluster.min_workers=2", "cluster.rendezvous_timeout=2s"]
        with cluster.ByHand(STEPS, workers=2, servers=1, settings=settings, worker=(random_kills.TRAINER,)) as job:
            job.wait_for("trains", "worker 1")
            job.kill_and_wait("worker 0")
            ends = job.finish()
        self.assertEqual(ends["worker 1"].status, 3, cluster.show(ends))
        self.assertRegex(ends["worker 1"].out, "error: the job did not start within 2 s: missing 1 of 2 workers")

    def test_none_is_left(self):
        with self.job(1, ["cluster.colocated=none"], workers=2) as job:
            job.wait_for("trains", "worker 1")
            job.kill("worker 0")
            job.kill_and_wait("worker 1")
            ends = job.finish()
        self.assertRegex(ends["server 0"].text, "no worker is left|was lost", cluster.show(ends))
        self.assertGreater(ends["server 0"].status, 0, cluster.show(ends))

    def test_scheduler_too(self):
        """It is lost while one waits, and another one after it."""
        with self.job(1, ["cluster.colocated=none", "cluster.rendezvous_timeout=10s"]) as job:
            job.wait_for("trains", "worker 0")
            job.stop("worker 2")  # so that nobody reforms
            job.start("worker 0", name="newcomer")
            job.kill_and_wait("scheduler")
            job.start_scheduler("another", address=job.address)
            job.kill_and_wait("worker 2")
            job.wait_for("joins as 2 of 3", "newcomer")
            job.wait_for("reforms as 0 of 3", "worker 0")
            job.open("end")
            self.check(job.finish(), ["worker 0", "worker 1", "newcomer"])

    def test_random(self):
        """Seeds of random_kills.py, each of another kind."""
        for seed in (500, 501, 505, 510):
            with self.subTest(seed):
                random_kills.Job(seed).run(6)


if __name__ == "__main__":
    unittest.main()
