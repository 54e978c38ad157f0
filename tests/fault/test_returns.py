# SPDX-License-Identifier: Apache-2.0
"""Workers that have left come back: to a scheduler that stays, to one that does not, and to a new one."""

import socket
import unittest

import cluster
import harness
import wire

TWICE = ["init", "push:grad:9:float32:sum:1", "leave"] * 2
REMEDY = "set cluster.stay = true for the scheduler"


class Stays(unittest.TestCase):
    def test_all_return_at_once(self):
        for workers in (1, 2, 3):
            with self.subTest(workers=workers):
                steps = TWICE * 10 + ["gate:end"]
                with cluster.ByHand(steps, workers=workers, extra={"scheduler": ["cluster.stay=true"]}) as job:
                    for rank in range(workers):
                        job.wait_for("at end", f"worker {rank}")

    def test_next_job_of_another_scheduler(self):
        """The one before it was lost between two jobs: the servers wait for nobody of the last one."""
        steps = [*TWICE[:3], "gate:next", *TWICE[:3], "gate:end"]
        with cluster.ByHand(steps, servers=2, extra={"scheduler": ["cluster.stay=true"]}) as job:
            for rank in range(2):
                job.wait_for("at next", f"worker {rank}")
            job.kill_and_wait("scheduler")
            job.start_scheduler("scheduler 2", address=job.address)
            for rank in range(2):
                job.wait_for("waits for another scheduler", f"server {rank}", "err")
            job.open("next")
            for rank in range(2):
                job.wait_for("at end", f"worker {rank}")


class CannotReturn(unittest.TestCase):
    """A worker that has left dies, which `byteps run` sees: nobody waits for it to come back."""

    def test_others_hear_why(self):
        steps = ["init", "@2:gate:stay", "leave", "@1:gate:late", "init"]
        settings = ["log.level=debug", "cluster.rendezvous_timeout=1h"]
        with cluster.ByRun(steps, workers=3, settings=settings) as job:
            job.wait_for("at late", "worker 1")
            harness.until(lambda: said(job, "asks the scheduler") == 2, "second JOIN of worker 0")
            pid = job.pid("worker 1")
            job.kill("worker 1")
            job.wait_for("error: ", "worker 0")  # worker 2 is still in the first generation
            job.open("stay")
            ends = job.finish()
        for rank in (0, 2):
            why = f"the job cannot start: worker 1 (pid {pid}) was killed by SIGKILL"
            self.assertIn(why, ends[f"worker {rank}"].out)


def said(job, text):
    """How often worker 0 has."""
    return sum(text in line for line in job.job.result().lines("worker 0", "err"))


class Ends(unittest.TestCase):
    """The scheduler ends with its job, so that a worker that returns hears at once what to do.

    It waits nevertheless, as for any scheduler, since somebody may start that again.
    """

    def told(self, job, part, text):
        line = job.wait_for(REMEDY, part, "any")
        self.assertIn(text, line)
        if "waiting for it to come back" in line:
            job.kill(part)

    def refused(self, end, text):
        self.assertEqual(end.status, 3, end)
        self.assertIn("error: ", end.out)
        self.assertIn(text, end.out)
        self.assertIn(REMEDY, end.out)

    def test_all_return_at_once(self):
        for workers in (1, 2, 3):
            with self.subTest(workers=workers), cluster.ByHand(TWICE, workers=workers) as job:
                for rank in range(workers):
                    self.told(job, f"worker {rank}", job.address)
                ends = job.finish()
                self.assertEqual([ends[part].status for part in ("scheduler", "server 0")], [0, 0])

    def test_one_returns_before_the_others_leave(self):
        with cluster.ByHand(["init", "@1:gate:late", "leave", "init"]) as job:
            job.wait_for("error: ", "worker 0")
            job.open("late")
            self.told(job, "worker 1", job.address)
            self.refused(job.finish()["worker 0"], "is already complete, and its scheduler ends with it")

    def test_scheduler_is_gone(self):
        with cluster.ByHand(["init", "leave", "gate:gone", "init"]) as job:
            job.parts["scheduler"].process.wait(harness.DEADLINE)
            job.open("gone")
            for rank in range(2):
                self.told(job, f"worker {rank}", f"the scheduler at {job.address} has ended with its last job")

    def test_scheduler_ends_after_the_handshake(self):
        """Its process is over when the JOIN arrives: to the worker it is the same as one that is gone."""
        with cluster.ByHand(["init", "leave", "gate:gone", "init"], workers=1) as job:
            job.parts["scheduler"].process.wait(harness.DEADLINE)
            host, port = job.address.rsplit(":", 1)
            with socket.create_server((host, int(port))) as listener:
                job.open("gone")
                listener.settimeout(harness.DEADLINE)
                sock, _ = listener.accept()
                with sock:
                    wire.let_in(sock)
                    self.assertEqual(wire.read_frame(sock)[0], wire.JOIN)
                ends = job.finish()
            self.refused(ends["worker 0"], f"the scheduler at {job.address} has ended with its last job")

    def test_started_again(self):
        """Also by somebody who is slower than the workers."""
        with cluster.ByHand(["init", "leave", "gate:again", "init", "leave"]) as job:
            for part in ("scheduler", "server 0"):
                job.parts[part].process.wait(harness.DEADLINE)
            job.open("again")
            for rank in range(2):
                job.wait_for("waiting for it to come back", f"worker {rank}", "err")
            job.start_scheduler("scheduler again", address=job.address)
            job.start("server 0", "server 0 again")
            for part, end in job.finish().items():
                self.assertEqual(end.status, 0, f"{part}\n{cluster.show(job.now())}")


if __name__ == "__main__":
    unittest.main()
