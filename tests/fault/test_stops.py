# SPDX-License-Identifier: Apache-2.0
"""Stopped processes: too long, and they are lost; shorter than the time-out, and nothing happens."""

import contextlib
import ctypes
import os
import pathlib
import time
import unittest

import cluster

LOOP = ["init", "loop:grad:5000:enough", "leave"]
IDLE = ["init", "push:warm:8:float32:sum:1", "gate:idle", "loop:grad:5000:enough"]
GATHERING = ["@1:gate:late", "init", "leave"]


def members(job):
    return [part for part in job.parts if part.startswith("worker")]


class TooLong(unittest.TestCase):
    """The others say who gives no sign of life; the stopped process ends, too, once it goes on."""

    def stop(self, steps, victim, servers=1, timeout=2):
        settings = [f"cluster.peer_timeout={timeout}s", "log.level=debug", "server.shards=1"]
        if victim == "scheduler":
            settings.append("cluster.rendezvous_timeout=20s")  # the others wait for another one
        with cluster.ByHand(steps, servers=servers, settings=settings) as job:
            if steps is GATHERING:
                job.wait_joined("worker 0")
            else:
                for part in members(job):
                    job.wait_for("at idle" if steps is IDLE else "grad runs", part)
            job.stop(victim)
            name = "the scheduler at" if victim == "scheduler" else f"{victim} (host"
            for part in job.parts:
                if part != victim and not (steps is GATHERING and part == "worker 1"):
                    line = job.wait_for("no heartbeat", part, "any")
                    self.assertIn(name, line)
                    self.assertIn(f"was lost: no heartbeat for {timeout} s (cluster.peer_timeout)", line)
            job.open(*(gate for gate in ("idle", "late") if f"gate:{gate}" in " ".join(steps)))
            if steps is GATHERING:
                job.kill("worker 1")
            job.go_on(victim)
            for part, end in job.finish().items():
                self.assertNotEqual(end.status, 0, f"{part}\n{cluster.show(job.now())}")
                if part in members(job) and steps is not GATHERING:
                    # Who was stopped may find first that another one is gone.
                    words = "tensor 'grad'( was in flight|: worker . was lost: )"
                    self.assertRegex(end.out, words, cluster.show(job.now()))

    def test_all_roles(self):
        cases = {
            "worker 0 while it gathers": lambda: self.stop(GATHERING, "worker 0"),
            "worker 1 idle, 1 s": lambda: self.stop(IDLE, "worker 1", timeout=1),
            "scheduler idle, 1 s": lambda: self.stop(IDLE, "scheduler", timeout=1),
            "server in worker 0": lambda: self.stop(LOOP, "worker 0", servers=0),
        }
        for victim in ("scheduler", "server 0", "worker 0", "worker 1"):
            cases[f"{victim} at work"] = lambda v=victim: self.stop(LOOP, v)
            cases[f"{victim} idle"] = lambda v=victim: self.stop(IDLE, v)
        cluster.side_by_side(self, cases)


@contextlib.contextmanager
def seized(pid, name):
    """Return a context in which one thread of a process stands still, as in a page fault on a dead disk."""
    libc = ctypes.CDLL(None, use_errno=True)
    tasks = f"/proc/{pid}/task"
    (thread,) = (int(t) for t in os.listdir(tasks) if pathlib.Path(tasks, t, "comm").read_text().strip() == name)

    def ptrace(request):
        if libc.ptrace(request, thread, None, None) != 0:
            error = ctypes.get_errno()
            raise OSError(error, f"ptrace {request:#x} of {name}: {os.strerror(error)}")

    ptrace(0x4206)  # PTRACE_SEIZE
    ptrace(0x4207)  # PTRACE_INTERRUPT
    os.waitpid(thread, 0x40000000)  # __WALL
    try:
        yield
    finally:
        try:
            ptrace(17)  # PTRACE_DETACH
        except ProcessLookupError:  # the process has ended, which nobody can see before its tracer has seen this thread
            os.waitpid(thread, 0x40000000)


class OneThread(unittest.TestCase):
    """The thread of a shard stands still, and the others of its process do not."""

    def test_shard(self):
        settings = ["cluster.peer_timeout=2s", "server.shards=1"]
        with cluster.ByHand(LOOP, settings=settings) as job:
            for part in members(job):
                job.wait_for("grad runs", part)
            # It may have stopped in a plugin, which is then named.
            why = (r"server 0 \(.*\) gave up: thread bps-shard \(\d+, stopped\) "
                   r"has not returned to its event loop\b.*, for")
            with seized(job.pid("server 0"), "bps-shard"):
                for part in members(job):
                    self.assertRegex(job.wait_for("gave up", part, "any"), why)
            for part, end in job.finish().items():
                self.assertNotEqual(end.status, 0, f"{part}\n{cluster.show(job.now())}")


class LossAndSignal(unittest.TestCase):
    def test_both_at_once(self):
        """Who ends a job may do so before a server has read that it has failed: it says why nevertheless."""
        with cluster.ByHand(IDLE, settings=["server.shards=1"]) as job:
            for part in members(job):
                job.wait_for("at idle", part)
            job.stop("server 0")
            job.kill("worker 1")
            job.wait_for("worker 1 (host", "worker 0", "any")
            job.parts["server 0"].process.terminate()
            job.go_on("server 0")
            job.open("idle")
            end = job.finish()["server 0"]
        self.assertNotEqual(end.status, 0, end)
        self.assertRegex(end.err, r"worker 1 \(host .* was lost")


class NotTooLong(unittest.TestCase):
    """A second is less than the time-out."""

    def pause(self, job, part):
        job.stop(part)
        time.sleep(1)
        job.go_on(part)

    def check(self, job):
        job.open("enough")
        for part, end in job.finish().items():
            text = cluster.show(job.now())
            self.assertEqual(end.status, 0, f"{part}\n{text}")
            self.assertNotIn("lost", end.text, text)
            if part in members(job):
                self.assertIn("grad is right", end.out, text)

    def at_work(self, servers):
        with cluster.ByHand(LOOP, servers=servers) as job:
            for part in members(job):
                job.wait_for("grad runs", part)
            for part in job.parts:
                self.pause(job, part)
            self.check(job)

    def gathering(self):
        with cluster.ByHand(["@1:gate:late", *LOOP], settings=["log.level=debug"]) as job:
            job.wait_joined("worker 0")
            for part in ("worker 0", "server 0"):
                self.pause(job, part)
            job.stop("scheduler")
            job.open("late")
            time.sleep(1)
            job.go_on("scheduler")
            job.open("enough")
            for part, end in job.finish().items():
                self.assertEqual(end.status, 0, f"{part}\n{cluster.show(job.now())}")

    def test_nothing_happens(self):
        cases = {
            "own server": lambda: self.at_work(1),
            "server in worker 0": lambda: self.at_work(0),
            "gathering": self.gathering,
        }
        cluster.side_by_side(self, cases)


if __name__ == "__main__":
    unittest.main()
