# SPDX-License-Identifier: Apache-2.0
"""Whole jobs for tests: `byteps run` with a deadline, its output sorted by role, its processes and leftovers.

    with harness.Job(["python3", "script.py"], workers=2, servers=1) as job:
        job.wait_for("step 3", "worker 0")
        os.kill(job.pid("worker 1"), signal.SIGKILL)
        result = job.wait()
    result.status, result.out, result.err        # of byteps run, the texts with their prefixes
    result.lines("worker 0")                     # what this part wrote to stdout, without prefix
    result.lines("worker 0", "err")              # and to stderr

or, where nothing happens in between:

    result = harness.run(["python3", "script.py"], workers=2, servers=1)

Leaving the `with` block ends what is still running and fails if a process of the job was left behind.
Programs come from the environment: BYTEPS_PROGRAM, and PYTHON for the scripts (default: this interpreter).

Whatever does not end in time shows where each thread of each of its processes is, and what is queued, before it is
ended: see stacks.py.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
import unittest
import uuid

import imported
import stacks
from stacks import command, state

DEADLINE = 300.0 * (3 if os.environ.get("SANITIZER") else 1)
"""Seconds after which a test gives up: far more than anything takes, since machines may be slow."""


def program():
    """The path of the program byteps; skips the test where there is none."""
    path = os.environ.get("BYTEPS_PROGRAM")
    if not path:
        raise unittest.SkipTest("BYTEPS_PROGRAM is not set: run the tests by 'make check' or ./byteps-env")
    return path


def python():
    """The interpreter for scripts of a test."""
    return os.environ.get("PYTHON") or sys.executable


def framework_python(name):
    """The interpreter for scripts that use a framework, which has a virtual environment of its own."""
    own = os.path.join(os.environ.get("top_srcdir", "."), f".venv-{name}", "bin", "python")
    variable = f"{name.upper()}_PYTHON"
    path = os.environ.get(variable) or (own if os.access(own, os.X_OK) else python())
    if not has_module(path, name):
        raise unittest.SkipTest(f"{name} is not installed for {path}; {variable} names another Python")
    return path


def has_module(python, name):
    """Whether an interpreter finds a module, which is not imported."""
    script = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
    return subprocess.run([python, "-c", script, name], check=False).returncode == 0


def until(condition, what, timeout=DEADLINE, show=lambda: ""):
    """Returns the first true value of condition(); fails the test when there is none in time, with what show() says."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"after {timeout:g} s still no {what}\n{show()}")
        time.sleep(0.01)


def environ(pid):
    """The environment that a process was started with, as a dict; {} if it is gone or not ours."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            entries = file.read().decode(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def thread_states(pid):
    """The state letters of all threads of a process, as a set; empty if there is none.

    Threads end and stop one by one: while one is left, a process whose first thread is a zombie still has its sockets.
    """
    letters = set()
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        tasks = []
    for task in tasks:
        letters.add(state(f"{pid}/task/{task}"))
    return letters - {""}


def processes(job):
    """{pid: environment} of the living processes whose BYTEPS_SET names the job."""
    mark = f"cluster.job={job}"
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            env = environ(name)
            if mark in env.get("BYTEPS_SET", "").split("\n") and state(name) not in ("", "Z", "X"):
                found[int(name)] = env
    return found


def execute(argv, data=None, timeout=DEADLINE, **how):
    """subprocess.run() for a command that must end in time: with `data` as its input, its output as text."""
    pipes = {"stdin": subprocess.DEVNULL if data is None else subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(argv, **{**pipes, "stderr": subprocess.PIPE, "encoding": "utf-8", **how}) as process:
        out, err = communicate(process, data, timeout)
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


def communicate(process, data=None, timeout=DEADLINE):
    """process.communicate(); when that takes longer, the test fails with where the process and its children are."""
    try:
        return process.communicate(data, timeout)
    except subprocess.TimeoutExpired:
        family = [process.pid, *stacks.children(process.pid)]
        where = stacks.of(family)
        for pid in family:
            _kill(pid)
        out, err = process.communicate()
        raise AssertionError(f"{process.args} did not end within {timeout:g} s\n{where}\n{out}\n{err}") from None


class Result:
    """How a job ended: status of `byteps run` (negative: killed by that signal), out and err as text."""

    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err

    def lines(self, part=None, stream="out"):
        """The lines of "worker 0", "server 1" or "scheduler" without prefix; None: those that have none."""
        return _lines(self.out if stream == "out" else self.err, part)

    def __str__(self):
        return f"status {self.status}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


def _lines(text, part):
    if part is None:
        return [
            line
            for line in text.splitlines()
            if not re.match(r"\[(worker|server) \d+\] |\[scheduler\] ", line)
        ]
    prefix = f"[{part}] "
    return [line[len(prefix) :] for line in text.splitlines() if line.startswith(prefix)]


class _Reader(threading.Thread):
    """Collects a pipe, so that the job never waits for the test."""

    def __init__(self, pipe):
        super().__init__(daemon=True)
        self.pipe, self.data = pipe, bytearray()
        self.start()

    def run(self):
        if self.pipe is None:
            return
        with self.pipe:
            while chunk := self.pipe.read1(65536):
                self.data += chunk

    def text(self):
        return bytes(self.data).decode(errors="replace")


class Job:
    """A running `byteps run`; see the module's text.

    `options` are further ones of `byteps run`, `env` is added to the environment, `before` is called
    in the new process. With output=False the test reads process.stdout itself.
    """

    def __init__(
        self, command, workers=1, servers=None, options=(), env=None, cwd=None, before=None, output=True
    ):
        self.id = uuid.uuid4().hex[:16]
        full = dict(os.environ, **(env or {}))
        full["BYTEPS_SET"] = "\n".join(filter(None, [full.get("BYTEPS_SET"), f"cluster.job={self.id}"]))
        argv = [program(), "run"]
        argv += [] if workers is None else ["-n", str(workers)]
        argv += [] if servers is None else ["-s", str(servers)]
        self.process = subprocess.Popen(
            argv + [*options, "--", *command],
            cwd=cwd,
            env=full,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=before,
        )
        self._out = _Reader(self.process.stdout if output else None)
        self._err = _Reader(self.process.stderr)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        ended = self.process.poll() is not None
        self.end()
        if ended and kind is None and self.leftovers:
            raise AssertionError(f"left behind: {self.leftovers}\n{self.result()}")

    def result(self):
        """What there is by now; status None while it runs."""
        return Result(self.process.returncode, self._out.text(), self._err.text())

    def raw(self, stream="out"):
        """The bytes of stdout or stderr by now."""
        return bytes((self._out if stream == "out" else self._err).data)

    def wait(self, timeout=DEADLINE):
        """Waits for the end; ends the job and fails when it takes longer."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            where = self.stacks()
            self.end()
            raise AssertionError(f"byteps run did not end within {timeout:g} s\n{where}\n{self.result()}") from None
        self._join()
        return self.result()

    def wait_for(self, text, part=None, stream="out", timeout=DEADLINE):
        """Waits until a line of this part (None: of anyone) contains text, and returns it."""

        def look():
            reader = self._out if stream == "out" else self._err
            lines = reader.text().splitlines() if part is None else _lines(reader.text(), part)
            found = [line for line in lines if text in line]
            if not found and self.process.poll() is not None and not reader.is_alive():
                raise AssertionError(f"ended without {text!r} from {part or 'anyone'}\n{self.result()}")
            return found[0] if found else None

        return until(look, f"{text!r} from {part or 'anyone'}", timeout, lambda: f"{self.stacks()}\n{self.result()}")

    def pid(self, part, timeout=DEADLINE):
        """The process of "worker 1", "server 0" or "scheduler" that byteps run started, once it is there."""
        role, _, rank = part.partition(" ")
        want = {f"cluster.role={role}"} | ({f"cluster.rank={rank}"} if rank else set())

        def look():
            found = [
                pid for pid, env in processes(self.id).items() if want <= set(env["BYTEPS_SET"].split("\n"))
            ]
            return min(found, key=_start_time, default=None)

        return until(look, f"process of {part}", timeout, self.stacks)

    def signal(self, number):
        """Sends a signal to byteps run itself."""
        self.process.send_signal(number)

    def end(self):
        """Kills byteps run and every process of the job; `leftovers` are those that outlived it."""
        self.leftovers = (
            {} if self.process.poll() is None else {pid: command(pid) for pid in processes(self.id)}
        )
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for _ in range(100):
            rest = processes(self.id)
            if not rest:
                break
            for pid in rest:
                _kill(pid)
            time.sleep(0.01)
        self._join()

    def stacks(self):
        """Where all processes of the job are."""
        forked = [pid for server in imported.servers() for pid in stacks.children(server)]
        return stacks.of([self.process.pid, *stacks.children(self.process.pid), *processes(self.id), *forked])

    def _join(self):
        for reader in (self._out, self._err):
            reader.join(10)


def _start_time(pid):
    """Of a process and its descendants, the eldest is the one that byteps run has started."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[19]), pid
    except OSError:
        return 1 << 62, pid


def _kill(pid, number=signal.SIGKILL):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def run(command, timeout=DEADLINE, **how):
    """Starts a job, waits for its end, fails if it left a process behind; returns the Result."""
    with Job(command, **how) as job:
        return job.wait(timeout)
