# SPDX-License-Identifier: Apache-2.0
"""The scheduler is killed in the midst of training, and another one takes its place: the job goes on.

Rounds do not wait for it; what is declared, forgotten or changed meanwhile does, and leaving as well.
"""

import time
import unittest

import cluster

SETTINGS = ["log.level=debug", "server.shards=2", "cluster.peer_timeout=30s"]
QUICK = ["cluster.rendezvous_timeout=3s"]
LATER = ["push:new:70000:float32:sum:1", "push:grad:8:float32:sum:1", "forget:warm", "push:warm:9:float32:sum:1"]
"""Of "grad" the scheduler knows another form."""
STEPS = ["init", "push:warm:8:float32:sum:1", "loop:grad:100000:enough", "gate:later", *LATER, "leave"]
ROUNDS = 0.5
"""Seconds of rounds without a scheduler."""


def workers(job):
    return [part for part in job.parts if part.startswith("worker")]


def members(job):
    return [part for part in job.parts if not part.startswith("scheduler")]


class Lost(unittest.TestCase):
    def wait_for_all(self, job, text, parts, stream="out"):
        for part in parts:
            job.wait_for(text, part, stream)

    def lose(self, job):
        job.kill_and_wait("scheduler")
        self.wait_for_all(job, f"the scheduler at {job.address} was lost", members(job), "err")

    def ends_well(self, job):
        ends = job.finish()
        for part, end in ends.items():
            if part != "scheduler":
                self.assertEqual(end.status, 0, f"{part}\n{cluster.show(ends)}")
        return ends

    def goes_on(self, servers, **shape):
        """While it is away rounds go on, and another one knows what the first one knew."""
        with cluster.ByHand(STEPS, servers=servers, settings=SETTINGS, **shape) as job:
            self.wait_for_all(job, "grad runs", workers(job))
            self.lose(job)
            time.sleep(ROUNDS)
            job.open("enough")
            self.wait_for_all(job, "grad is right", workers(job))
            job.start_scheduler("scheduler 2", job.address)
            self.wait_for_all(job, f"the scheduler at {job.address} is back", members(job), "err")
            job.open("later")
            ends = self.ends_well(job)
            for part in workers(job):
                for name in ("new", "grad", "warm"):
                    self.assertIn(f"{name}: ", ends[part].out, cluster.show(ends))
            self.assertIn("has taken over job", ends["scheduler 2"].err)
            self.assertIn("view 2", ends["scheduler 2"].err)

    def asked_meanwhile(self):
        """Tensors that are declared, and one that has changed, wait for it; so does who leaves."""
        with cluster.ByHand(STEPS, settings=SETTINGS) as job:
            self.wait_for_all(job, "grad runs", workers(job))
            self.lose(job)
            job.open("enough", "later")
            self.wait_for_all(job, "at later", workers(job))
            time.sleep(ROUNDS)
            for part in workers(job):
                self.assertNotIn("new: ", job.now()[part].out)
            job.start_scheduler("scheduler 2", job.address)
            self.ends_well(job)

    def twice(self):
        with cluster.ByHand(STEPS, workers=3, servers=2, settings=SETTINGS) as job:
            self.wait_for_all(job, "grad runs", workers(job))
            self.lose(job)
            job.start_scheduler("scheduler 2", job.address)
            self.wait_for_all(job, "is back", members(job), "err")
            job.kill_and_wait("scheduler 2")
            job.start_scheduler("scheduler 3", job.address)
            job.wait_for("has taken over job", "scheduler 3", "err")
            job.open("enough", "later")
            ends = job.finish()
            for part in members(job):
                self.assertEqual(ends[part].status, 0, f"{part}\n{cluster.show(ends)}")
            self.assertIn("view 3", ends["scheduler 3"].err)

    def does_not_come(self):
        """The job ends, and all say what was waited for."""
        with cluster.ByHand(STEPS, settings=[*SETTINGS, *QUICK]) as job:
            self.wait_for_all(job, "grad runs", workers(job))
            self.lose(job)
            ends = job.finish()
            words = f"the scheduler at {job.address} was lost: .*; none has taken its place within 3 s"
            for part in members(job):
                self.assertNotEqual(ends[part].status, 0, f"{part}\n{cluster.show(ends)}")
                self.assertRegex(ends[part].text, words, cluster.show(ends))

    def one_does_not_come(self):
        """A worker that dies meanwhile is missed by the next scheduler."""
        with cluster.ByHand(STEPS, workers=3, settings=[*SETTINGS, "cluster.rendezvous_timeout=8s"]) as job:
            self.wait_for_all(job, "grad runs", workers(job))
            self.lose(job)
            job.kill_and_wait("worker 1")
            job.start_scheduler("scheduler 2", job.address)
            ends = job.finish()
            for part in ("worker 0", "worker 2", "server 0", "scheduler 2"):
                self.assertNotEqual(ends[part].status, 0, f"{part}\n{cluster.show(ends)}")
                words = r"worker 1 \(host \S+, pid \d+\) was lost: it has not come back after the scheduler was lost"
                self.assertRegex(ends[part].text, words, cluster.show(ends))

    def test_all(self):
        cluster.side_by_side(
            self,
            {
                "own server": lambda: self.goes_on(1),
                "servers in workers": lambda: self.goes_on(0),
                "several": lambda: self.goes_on(2, workers=3),
                "asked meanwhile": self.asked_meanwhile,
                "twice": self.twice,
                "it does not come": self.does_not_come,
                "one does not come": self.one_does_not_come,
            },
        )


if __name__ == "__main__":
    unittest.main()
