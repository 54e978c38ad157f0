# SPDX-License-Identifier: Apache-2.0
"""`byteps run` under a shell at a terminal: Ctrl-Z stops the whole job, and after fg or bg it goes on as if nothing had
been."""

import contextlib
import os
import pty
import re
import shlex
import signal
import stat
import sys
import textwrap
import threading
import time
import unittest
import uuid

import cluster
import harness
import stacks
import test_run_hosts

PEER_TIMEOUT = 3
"""Seconds; the jobs here are stopped for longer than this."""
CTRL_Z = b"\x1a"
HERE = ["-n", "2", "-s", "1"]
STEPS = ["init", "loop:grad:5000:enough", "leave"]


class Shell(cluster._Gated):
    """A shell with job control at a pseudo-terminal of its own, in which a job of worker.c is started."""

    def __init__(self, options):
        env = {**os.environ, **self._prepare(), "PS1": "", "NO_COLOR": "1", "SSH_LOG": os.devnull}
        env.pop("ENV", None)  # a file that the shell would read
        self.id = uuid.uuid4().hex[:16]
        settings = [*cluster._ways(), f"cluster.peer_timeout={PEER_TIMEOUT}s", f"cluster.job={self.id}"]
        words = [harness.program(), "run", *options, "--ssh", self.ssh(), "--env", "GATES"]
        words += ["--", cluster.WORKER, *STEPS]
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execvpe("sh", ["sh", "-im"], env)
        self.raw = bytearray()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.type(f"BYTEPS_SET={shlex.quote(chr(10).join(settings))} {shlex.join(words)}\n".encode())

    def ssh(self):
        """A stand-in that starts everything here."""
        path = os.path.join(self.folder, "ssh")
        with open(path, "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(test_run_hosts.SSH).format(python=sys.executable))
        os.chmod(path, stat.S_IRWXU)
        return path

    def _read(self):
        with contextlib.suppress(OSError):  # this is how the end of a terminal shows
            while chunk := os.read(self.terminal, 65536):
                self.raw += chunk

    def type(self, keys):
        os.write(self.terminal, keys)

    def text(self):
        """What is on the terminal, without what only moves and colours."""
        return re.sub(r"\x1b\[[0-9;]*[mK]", "", bytes(self.raw).decode(errors="replace"))

    def wait_for(self, text):
        harness.until(lambda: text in self.text(), repr(text), show=self.show)

    def show(self):
        states = [f"{stacks.state(pid)} {pid} {stacks.command(pid)}" for pid in harness.processes(self.id)]
        return "\n".join([self.text(), *states])

    def processes(self):
        """All of the job, from the launcher on."""
        return list(harness.processes(self.id))

    def parts(self):
        """The scheduler, servers and workers alone."""
        found = harness.processes(self.id).items()
        return [pid for pid, env in found if "cluster.role=" in env["BYTEPS_SET"]]

    def wait_for_states(self, whom, right, what):
        """Waits until right(states of all threads) is true of each process of whom()."""
        harness.until(lambda: all(right(harness.thread_states(pid)) for pid in whom()), what, show=self.show)

    def wait_for_standstill(self, whom):
        self.wait_for_states(whom, lambda states: states == {"T"}, "standstill of the job")

    def wait_for_going_on(self, whom):
        self.wait_for_states(whom, lambda states: "T" not in states, "going on of the job")

    def wait_for_work(self):
        for rank in (0, 1):
            self.wait_for(f"[worker {rank}] grad runs")

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        for pid in [self.pid, *stacks.children(self.pid), *(self.processes() if kind else ())]:
            harness._kill(pid)
        os.waitpid(self.pid, 0)
        self.reader.join(10)
        os.close(self.terminal)
        self._close(kind is not None)


class CtrlZ(unittest.TestCase):
    def stop(self, job, whom):
        job.wait_for_work()
        job.type(CTRL_Z)
        job.wait_for_standstill(whom)

    def end(self, job):
        """Ends the job, which the shell waits for."""
        job.open("enough")
        job.wait_for("status 0\r\n")
        for rank in (0, 1):
            self.assertIn(f"[worker {rank}] grad is right", job.text())
        self.assertNotIn("lost", job.text())

    def check(self, job, whom, count):
        """Stops the job for long, and lets it go on."""
        self.stop(job, whom)
        self.assertEqual(len(whom()), count, job.show())
        time.sleep(PEER_TIMEOUT + 1)
        job.type(b"fg; echo status $?\n")
        job.wait_for_going_on(whom)
        self.end(job)

    def test_on_this_host(self):
        """The launcher's three processes and four parts."""
        with Shell(HERE) as job:
            self.check(job, job.processes, 7)

    def test_on_other_hosts(self):
        """What reaches them stays awake."""
        with Shell(["--hosts", "a,b", "-s", "1", "--address", "127.0.0.1"]) as job:
            self.check(job, job.parts, 4)

    def test_background(self):
        with Shell(HERE) as job:
            self.stop(job, job.processes)
            job.type(b"bg; wait $!; echo status $?\n")
            job.wait_for_going_on(job.processes)
            self.end(job)

    def test_killed_meanwhile(self):
        """The launcher's first process: all others end, though they are stopped."""
        with Shell(HERE) as job:
            self.stop(job, job.processes)
            os.kill(stacks.children(job.pid)[0], signal.SIGKILL)
            harness.until(lambda: not job.processes(), "end of all processes", show=job.show)


class NoTerminal(unittest.TestCase):
    """Without a shell the kernel does not stop the launcher's first process by SIGTSTP, but all others stop."""

    def send(self, job, number, parts):
        job.signal(number)
        stopped = number == signal.SIGTSTP
        harness.until(
            lambda: all(("T" in harness.thread_states(pid)) == stopped for pid in parts),
            f"effect of {number!r}",
            show=job.stacks,
        )

    def test_by_signal(self):
        with cluster.ByRun(STEPS) as job:
            for rank in (0, 1):
                job.wait_for("grad runs", f"worker {rank}")
            parts = [job.pid(part) for part in job.parts]
            self.send(job.job, signal.SIGTSTP, parts)
            self.send(job.job, signal.SIGCONT, parts)
            job.open("enough")
            ends = job.finish()
            self.assertEqual(job.status, 0, cluster.show(ends))

    def late(self, steps, at, hosted):
        """A worker comes late to what the job waits for, which would be over long ago but for the stop."""
        limit = 10
        settings = [f"cluster.stall_timeout={limit}s", f"cluster.rendezvous_timeout={limit}s", "log.level=debug"]
        with cluster.ByRun(steps, servers=0 if hosted else 1, settings=settings) as job:
            job.wait_for(*at)
            parts = [job.pid(part) for part in job.parts]
            self.send(job.job, signal.SIGTSTP, parts)
            time.sleep(limit)
            self.send(job.job, signal.SIGCONT, parts)
            time.sleep(1)  # in which they would say that it is over
            job.open("late")
            ends = job.finish()
            self.assertEqual(job.status, 0, cluster.show(ends))

    def test_waits(self):
        """Of cluster.stall_timeout and cluster.rendezvous_timeout."""
        push = ["init", "push:warm:8:float32:sum:1", "@1:gate:late", "push:t:8:float32:sum:1", "leave"]
        gather = ["@1:gate:late", "init", "leave"]
        cluster.side_by_side(self, {
            "tensor": lambda: self.late(push, ("at late", "worker 1"), False),
            "tensor, hosted": lambda: self.late(push, ("at late", "worker 1"), True),
            "gathering": lambda: self.late(gather, ("has joined: worker 0 (", "scheduler", "err"), False),
        })

    def test_timeout(self):
        """It is of the time in which the job may run."""
        timeout = 10
        began = time.monotonic()
        with harness.Job(["sleep", "1000"], options=["--timeout", f"{timeout}s"]) as job:
            parts = [job.pid("worker 0")]
            self.send(job, signal.SIGTSTP, parts)
            stopped = time.monotonic()
            time.sleep(2)
            stopped = time.monotonic() - stopped
            self.send(job, signal.SIGCONT, parts)
            result = job.wait()
        self.assertEqual(result.status, 124, result)
        self.assertGreaterEqual(time.monotonic() - began - stopped, timeout, result)


if __name__ == "__main__":
    unittest.main()
