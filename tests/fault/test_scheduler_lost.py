# SPDX-License-Identifier: Apache-2.0
"""The scheduler is killed in the midst of training, and another one takes its place: the job goes on.

Rounds do not wait for it; what is declared, forgotten or changed meanwhile does, and leaving as well. `byteps run`
starts it again by itself.
"""

import contextlib
import os
import signal
import socket
import struct
import time
import unittest

import cluster
import harness
import scripted

SETTINGS = ["log.level=debug", "server.shards=2", "cluster.peer_timeout=30s"]
QUICK = ["cluster.rendezvous_timeout=3s"]
LATER = ["push:new:70000:float32:sum:1", "push:grad:8:float32:sum:1", "forget:warm", "push:warm:9:float32:sum:1"]
"""Of "grad" the scheduler knows another form."""
STEPS = ["init", "push:warm:8:float32:sum:1", "loop:grad:100000:enough", "gate:later", *LATER, "leave"]
IP_LOCAL_PORT_RANGE = 51
"""For the socket alone; kernels before 6.3 do not know it."""
ROUNDS = 0.5
"""Seconds of rounds without a scheduler."""


def workers(job):
    return [part for part in job.parts if part.startswith("worker")]


def members(job):
    return [part for part in job.parts if not part.startswith("scheduler")]


def all_unread(ports):
    """Whether something unread is in all connections of these ports: they are reset when the process is killed."""
    with open("/proc/net/tcp", encoding="ascii") as file:
        rows = [line.split() for line in file][1:]
    queues = [row[4].split(":")[1] for row in rows if int(row[1].split(":")[1], 16) in ports and row[3] == "01"]
    return all(int(queue, 16) > 0 for queue in queues)


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
            job.start_scheduler("scheduler 2", address=job.address)
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
            job.start_scheduler("scheduler 2", address=job.address)
            self.ends_well(job)

    def all_have_left(self, servers):
        """It knew that all wanted to leave, and did not tell them any more: the next one does."""
        with cluster.ByHand(["init", *OVER], servers=servers, settings=[*SETTINGS, *QUICK]) as job:
            self.wait_for_all(job, "at end", workers(job))
            self.lose(job)
            job.open("end")
            time.sleep(ROUNDS)
            job.start_scheduler("scheduler 2", address=job.address, arguments=["--left", "0,1"])
            self.ends_well(job)

    def twice(self):
        with cluster.ByHand(STEPS, workers=3, servers=2, settings=SETTINGS) as job:
            self.wait_for_all(job, "grad runs", workers(job))
            self.lose(job)
            job.start_scheduler("scheduler 2", address=job.address)
            self.wait_for_all(job, "is back", members(job), "err")
            job.kill_and_wait("scheduler 2")
            job.start_scheduler("scheduler 3", address=job.address)
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
            words = f"the scheduler at {job.address} was lost: .*; no other one has replaced it within 3 s"
            for part in members(job):
                self.assertNotEqual(ends[part].status, 0, f"{part}\n{cluster.show(ends)}")
                self.assertRegex(ends[part].text, words, cluster.show(ends))

    def one_does_not_come(self):
        """A worker that dies meanwhile is missed by the next scheduler."""
        with cluster.ByHand(STEPS, workers=3, settings=[*SETTINGS, "cluster.rendezvous_timeout=8s"]) as job:
            self.wait_for_all(job, "grad runs", workers(job))
            self.lose(job)
            job.kill_and_wait("worker 1")
            job.start_scheduler("scheduler 2", address=job.address)
            ends = job.finish()
            for part in ("worker 0", "worker 2", "server 0", "scheduler 2"):
                self.assertNotEqual(ends[part].status, 0, f"{part}\n{cluster.show(ends)}")
                words = r"worker 1 \(host \S+, pid \d+\) was lost: it did not reconnect after the scheduler was lost"
                self.assertRegex(ends[part].text, words, cluster.show(ends))

    def test_all(self):
        cluster.side_by_side(
            self,
            {
                "own server": lambda: self.goes_on(1),
                "servers in workers": lambda: self.goes_on(0),
                "several": lambda: self.goes_on(2, workers=3),
                "asked meanwhile": self.asked_meanwhile,
                "all have left": lambda: self.all_have_left(1),
                "all have left, servers in workers": lambda: self.all_have_left(0),
                "twice": self.twice,
                "it does not come": self.does_not_come,
                "one does not come": self.one_does_not_come,
            },
        )


PIECE = 1000000
"""Elements of a tensor whose bytes are more than a connection's buffers hold."""
OVER = ["push:warm:8:float32:sum:1", "gate:end", "leave"]
AGAIN = r"byteps run: scheduler \(pid \d+\) was killed by SIGKILL; starting it again"
WITHOUT = r"byteps run: server 0 \(pid \d+\) was killed by SIGKILL; the job goes on without it"
KILLED = r"byteps run: scheduler \(pid \d+\) was killed by SIGKILL"
UNNEEDED = r"byteps run: \w+( \d)? \(pid \d+\) was killed by SIGKILL; no worker needs it any more"


@scripted.unwatched
class ByRun(unittest.TestCase):
    """`byteps run` starts it again, and has the status of the workers."""

    def kill(self, job, times=1):
        for _ in range(times):
            job.kill_and_wait("scheduler")
            for part in members(job):
                job.wait_for("is back", part, "err")

    def check(self, job, lines):
        """The workers have ended well, and `byteps run` has said only this."""
        ends = job.finish()
        text = cluster.show(ends)
        self.assertEqual(ends["byteps run"].status, 0, text)
        self.assertRegex(ends["byteps run"].err, rf"\A{lines}\Z", text)
        return ends

    def idle(self, servers=1, **how):
        with cluster.ByRun(["init", "push:new:9:float32:sum:1", "gate:idle", *OVER], servers=servers, **how) as job:
            for part in workers(job):
                job.wait_for("at idle", part)
            self.kill(job)
            job.open("idle", "end")
            ends = self.check(job, AGAIN)
            for part in workers(job):
                self.assertIn("warm: ", ends[part].out, cluster.show(ends))

    def port_kept(self):
        """The kernel gives the port to nobody who asks for any, while no scheduler listens there."""
        with cluster.ByRun(["init", "gate:idle", *OVER]) as job:
            for part in workers(job):
                job.wait_for("at idle", part)
            found = job.watch_ports("scheduler")
            run = job.job.process.pid
            os.kill(run, signal.SIGSTOP)
            harness.until(lambda: harness.thread_states(run) <= {"T"}, "standstill of byteps run")
            job.stop("scheduler")
            harness.until(lambda: all_unread(found), "words for the scheduler")
            job.kill_and_wait("scheduler")
            for port in found:
                with socket.socket() as other, contextlib.suppress(OSError):
                    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    other.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, struct.pack("=HH", port, port))
                    other.bind((cluster.ADDRESS, 0))
                    self.assertNotEqual(other.getsockname()[1], port)
            os.kill(run, signal.SIGCONT)
            job.open("idle", "end")
            self.check(job, AGAIN)

    def held(self, part):
        """Rounds wait for this one meanwhile."""
        with cluster.ByRun(["init", f"loop:grad:{PIECE}:enough", *OVER], settings=SETTINGS) as job:
            self.wait_for_rounds(job)
            job.stop(part)
            job.kill_and_wait("scheduler")
            job.wait_for("starting it again", None, "err")
            job.go_on(part)
            for other in members(job):
                job.wait_for("is back", other, "err")
            job.open("enough", "end")
            ends = self.check(job, AGAIN)
            for worker in workers(job):
                self.assertIn("grad is right", ends[worker].out, cluster.show(ends))

    def wait_for_rounds(self, job):
        for part in workers(job):
            job.wait_for("grad runs", part)

    def twice(self):
        with cluster.ByRun(["init", "loop:grad:70000:enough", *OVER], workers=3, servers=2, settings=SETTINGS) as job:
            self.wait_for_rounds(job)
            self.kill(job)
            first = job.pid("scheduler")
            job.kill_and_wait("scheduler")
            job.wait_for("view 3", "scheduler", "err")
            self.assertNotEqual(job.pid("scheduler"), first)
            job.open("enough", "end")
            self.check(job, rf"{AGAIN}\n{AGAIN}")

    def with_server(self, *victims):
        """Another scheduler does not wait for the server: it is told."""
        with cluster.ByRun(["init", "loop:grad:70000:enough", *OVER], servers=2, settings=SETTINGS) as job:
            self.wait_for_rounds(job)
            for victim in victims:
                job.kill(victim)
            job.wait_for("the job goes on without it", None, "err")
            job.wait_for("has taken over", "scheduler", "err")
            job.open("enough", "end")
            self.check(job, rf"({AGAIN}\n{WITHOUT}|{WITHOUT}\n{AGAIN})")

    def too_often(self):
        with cluster.ByRun(["init", "loop:grad:70000:never"], settings=[*SETTINGS, *QUICK]) as job:
            self.wait_for_rounds(job)
            for _ in range(3):
                job.kill_and_wait("scheduler")
                time.sleep(ROUNDS)
            own = job.finish()["byteps run"]
            self.assertEqual(own.status, 137, own)
            self.assertIn("the scheduler was killed 3 times in a row", own.err)

    def is_there(self, job, worker):
        want = {"cluster.role=worker", f"cluster.rank={worker}"}
        return any(want <= set(env["BYTEPS_SET"].split("\n")) for env in harness.processes(job.id).values())

    def last_leaves(self, servers):
        """The others have left already, and do not come back: it is told."""
        with cluster.ByRun(["init", *OVER[:1], "@1:gate:end", "leave"], servers=servers) as job:
            job.wait_for("at end", "worker 1")
            if servers:  # else it hosts shards, and waits for the other
                harness.until(lambda: not self.is_there(job, 0), "end of worker 0")
            began = time.monotonic()
            job.stop("scheduler")
            job.open("end")
            time.sleep(ROUNDS)
            job.kill("scheduler")
            self.check(job, AGAIN)
            self.assertLess(time.monotonic() - began, 30)

    def between(self, servers):
        """Between two generations; the processes that have left are the members of the next."""
        steps = ["init", *OVER[:1], "leave", "gate:next", "init", "push:grad:9:float32:sum:1", "leave"]
        with cluster.ByRun(steps, servers=servers) as job:
            for part in workers(job):
                job.wait_for("at next", part)
            job.kill_and_wait("scheduler")
            job.wait_for("starting it again", None, "err")
            job.open("next")
            ends = self.check(job, AGAIN)
            for part in workers(job):
                self.assertIn("grad: 3", ends[part].out, cluster.show(ends))

    def at_end(self, victim, servers, delay):
        """Just as all leave."""
        with cluster.ByRun(["init", *OVER], servers=servers) as job:
            for part in workers(job):
                job.wait_for("at end", part)
            pid = job.pid(victim)
            job.open("end")
            time.sleep(delay)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self.check(job, rf"({AGAIN}|{UNNEEDED}|{KILLED})?")

    def server_at_end(self):
        with cluster.ByRun(["init", *OVER, "gate:gone"]) as job:
            for part in workers(job):
                job.wait_for("at end", part)
            job.open("end")
            for part in workers(job):
                job.wait_for("at gone", part)
            job.kill_and_wait("server 0")
            job.open("gone")
            self.check(job, UNNEEDED)

    def test_at_end(self):
        cases = {"server": self.server_at_end}
        for servers in (0, 1):
            cases[f"last leaves, {servers}"] = lambda s=servers: self.last_leaves(s)
            cases[f"between, {servers}"] = lambda s=servers: self.between(s)
            for delay in (0, 2, 5, 10, 20, 40):
                cases[f"{delay} ms, {servers}"] = lambda s=servers, d=delay: self.at_end("scheduler", s, d / 1000)
        cluster.side_by_side(self, cases)

    def test_all(self):
        cluster.side_by_side(
            self,
            {
                "idle": self.idle,
                "idle, servers in workers": lambda: self.idle(0),
                "idle, hosts": lambda: self.idle(2, hosts="localhost:1,127.0.0.1:1"),
                "port": self.port_kept,
                "push": lambda: self.held("server 0"),
                "pull": lambda: self.held("worker 1"),
                "twice": self.twice,
                "with a server": lambda: self.with_server("scheduler", "server 0"),
                "after a server": lambda: self.with_server("server 0", "scheduler"),
                "too often": self.too_often,
            },
        )


if __name__ == "__main__":
    unittest.main()
