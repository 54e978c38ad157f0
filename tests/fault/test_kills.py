# SPDX-License-Identifier: Apache-2.0
"""Each role is killed in each phase of a job: the others say who was lost, and which tensor waited.

Nobody starts the scheduler again here but `byteps run`, once all have joined; test_scheduler_lost.py has more of that.

A job is brought into a phase by gates and by stopping a process whose answer the others then wait for.
"""

import re
import unittest

import cluster
import scripted

SETTINGS = ["cluster.peer_timeout=30s", "log.level=debug", "server.shards=1", "worker.partition=1MiB"]
GATHER_TIME = 60 if cluster.TRANSPORT == "verbs" else 20 if cluster.COMPUTES else 5
"""Seconds; enough to bring the job into the phase."""
GATHER = [f"cluster.rendezvous_timeout={GATHER_TIME}s"]
GRAD = "loop:grad:1000000:never"  # as a rule, a connection's buffers hold less than these 4 MB
IN_FLIGHT = "tensor 'grad' was in flight"

STEPS = {
    "rendezvous": ["@1:gate:late", "init", "leave"],
    "connect": ["@1:gate:late", "init", "leave"],
    "declare": ["init", "gate:declare", "gate:begun", GRAD],
    "push": ["init", GRAD],
    "pull": ["init", GRAD],
    "idle": ["init", "push:warm:8:float32:sum:1", "gate:idle", GRAD],
    "shutdown": ["init", "push:warm:8:float32:sum:1", "gate:idle", "leave"],
}
JOINING = ("rendezvous", "connect")
"""Without the last worker; and with all of them, but a server that has not opened its ports yet."""


def others(job, victim):
    return [part for part in job.parts if part != victim]


def workers(job, victim=None):
    return [part for part in others(job, victim) if part.startswith("worker")]


def held(job, phase, victim):
    """The part that is stopped, so that the others' requests to it are under way."""
    if phase in ("declare", "shutdown"):
        return "scheduler"
    if phase in ("connect", "push"):
        return "server 0" if "server 0" in job.parts else "worker 0"
    if phase == "pull":
        return "worker 1" if victim != "worker 1" else "worker 0"
    return None


def reach(job, phase):
    """Waits until the job is where the phase begins."""
    if phase in JOINING:
        job.wait_joined("worker 0")
        job.wait_for("at late", "worker 1")
        if "server 0" in job.parts:
            job.wait_joined("server 0")
        return
    marks = {"declare": "at declare", "push": "grad runs", "pull": "grad runs"}
    for part in workers(job):
        job.wait_for(marks.get(phase, "at idle"), part)


def is_in(phase, victim):
    """Whether it has joined, before all have."""
    return phase == "connect" or (phase == "rendezvous" and victim != "worker 1")


def strike(job, phase, victim):
    """Kills the victim in the phase and lets the others go on."""
    reach(job, phase)
    if phase not in JOINING:
        job.watch_ports("scheduler", "server 0" if "server 0" in job.parts else "worker 0")
    stopped = held(job, phase, victim)
    if stopped:
        job.stop(stopped)
    if phase == "connect":
        job.open("late")
        job.wait_joined("worker 1")
    elif phase == "declare":
        job.open("begun", "declare")
        for part in workers(job):
            job.wait_for("at begun", part)
    elif phase == "shutdown":
        job.open("idle")
    if phase in JOINING:
        job.kill_and_wait(victim)  # else the others may be through before its connection is closed
    else:
        job.kill(victim)
    if is_in(phase, victim) and victim != "scheduler":
        job.wait_for("was lost", "scheduler", "err")
    if stopped and stopped != victim:
        job.go_on(stopped)
    if phase == "rendezvous":
        job.open("late")
    elif phase == "idle":
        for part in workers(job, victim):
            job.wait_for("was lost", part, "err")  # it is said at once, not at the next call
        job.open("idle")


def who(victim, hosted):
    """What the others call the victim."""
    if victim == "scheduler":
        return r"the scheduler at [0-9.]+:\d+ was lost"
    if hosted and victim == "worker 0":
        return r"(worker 0 \(host \S+, pid \d+\)|the server of worker 0 at \S+) was lost"
    return rf"{victim} (\(host \S+, pid \d+\)|at \S+) was lost"


def missing(victim):
    role, _, rank = victim.partition(" ")
    return rf"(?m)the job did not start within {GATHER_TIME} s: missing 1 of \d {role}s( \(rank {rank}( on \S+)?\)|$)"


def expected(phase, victim, hosted, part):
    """The words of one who stays."""
    if phase == "rendezvous" and victim == "worker 1":
        return missing(victim)
    if phase == "rendezvous" and part == "worker 1":
        return f"is over|did not start within {GATHER_TIME} s: waiting for the scheduler at"
    return who(victim, hosted)


def check(test, job, ends, phase, victim, hosted):
    """Everybody else has ended, with an error that names the victim."""
    text = cluster.show(ends)
    for part in others(job, victim):
        end = ends[part]
        silent = "error: " not in end.text and " ERROR " not in end.text
        if phase == "shutdown" and end.status in (0, None) and silent:
            continue  # it was through before it could have noticed
        test.assertRegex(end.text, expected(phase, victim, hosted, part), f"{part}\n{text}")
        if end.status is not None:
            test.assertGreater(end.status, 0, f"{part}\n{text}")
        if part.startswith("worker"):
            test.assertRegex(end.out, r"(?m)^error: ", f"{part}\n{text}")
            if phase not in (*JOINING, "shutdown"):
                test.assertIn(IN_FLIGHT, end.out, f"{part}\n{text}")


class ByHand(unittest.TestCase):
    """Scheduler, server and workers as commands of their own."""

    def strike(self, phase, victim, servers):
        settings = SETTINGS + (GATHER if phase in JOINING or victim == "scheduler" else [])
        with cluster.ByHand(STEPS[phase], servers=servers, settings=settings) as job:
            strike(job, phase, victim)
            check(self, job, job.finish(), phase, victim, servers == 0)

    def test_own_server(self):
        cases = {}
        for phase in STEPS:
            for victim in ("scheduler", "server 0", "worker 0", "worker 1"):
                cases[f"{victim} in {phase}"] = lambda p=phase, v=victim: self.strike(p, v, 1)
        cluster.side_by_side(self, cases)

    def test_server_in_worker_0(self):
        cases = {}
        for phase in STEPS:
            for victim in ("scheduler", "worker 0", "worker 1"):
                cases[f"{victim} in {phase}"] = lambda p=phase, v=victim: self.strike(p, v, 0)
        cluster.side_by_side(self, cases)


@scripted.unwatched
class ByRun(unittest.TestCase):
    """The same with `byteps run`, which ends and says who died; a scheduler it starts again."""

    def goes_on(self, phase, servers):
        steps = STEPS[phase] + ["leave"] * (phase != "shutdown")
        with cluster.ByRun(steps, servers=servers, settings=SETTINGS) as job:
            strike(job, phase, "scheduler")
            job.wait_for("starting it again", None, "err")
            job.open("never")
            ends = job.finish()
            self.assertEqual(ends["byteps run"].status, 0, cluster.show(ends))
            for part in workers(job):
                words = "left" if phase == "shutdown" else "grad is right"
                self.assertIn(words, ends[part].out, cluster.show(ends))

    def strike(self, phase, victim, servers):
        if victim == "scheduler" and phase not in JOINING:
            self.goes_on(phase, servers)
            return
        settings = SETTINGS + (GATHER if phase in JOINING or victim == "scheduler" else [])
        with cluster.ByRun(STEPS[phase], servers=servers, settings=settings) as job:
            strike(job, phase, victim)
            ends = job.finish()
            check(self, job, ends, phase, victim, servers == 0)
            own = ends["byteps run"]
            words = rf"{re.escape(victim)} \(pid \d+\) was killed by SIGKILL"
            if phase == "shutdown" and victim == "server 0" and own.status == 0:
                words += "; no worker needs it any more"  # all workers had closed their links to it
            else:
                self.assertNotEqual(own.status, 0, cluster.show(ends))
            self.assertRegex(own.err, words, cluster.show(ends))

    def test_own_server(self):
        cases = {}
        for phase in STEPS:
            if phase == "connect":
                continue  # while a part has not joined all others are ended at once, the stopped one too
            for victim in ("scheduler", "server 0", "worker 0", "worker 1"):
                if phase == "rendezvous" and (not is_in(phase, victim) or cluster.TRANSPORT == "verbs"):
                    continue  # `byteps run` knows of it first, or may: test_run_absent.py
                cases[f"{victim} in {phase}"] = lambda p=phase, v=victim: self.strike(p, v, 1)
        cluster.side_by_side(self, cases)

    def test_server_in_worker_0(self):
        cases = {}
        for phase in ("push", "idle", "shutdown"):
            for victim in ("scheduler", "worker 0", "worker 1"):
                cases[f"{victim} in {phase}"] = lambda p=phase, v=victim: self.strike(p, v, 0)
        cluster.side_by_side(self, cases)


if __name__ == "__main__":
    unittest.main()
