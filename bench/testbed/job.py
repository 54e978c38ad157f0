# SPDX-License-Identifier: Apache-2.0
"""Jobs on a test bed: which process runs on which host, how they are started, how they end."""

import os
import secrets
import signal
import subprocess
import threading
import time
import uuid

from .bed import SWITCH

DEADLINE = 600.0
"""Seconds after which waiting is given up: far more than anything takes, since machines may be slow."""
GRACE = 10.0


class Shape:
    """Which process runs on which host.

    `workers` are the numbers of ranks of hosts 0, 1, ...; 0 is a host without any. `servers` more processes
    sum, each on a host of its own after those, or on the hosts that `server_hosts` lists. With `beside` there
    is one more beside the workers of each host. Which workers host servers themselves is a setting of the
    job.
    """

    def __init__(self, workers, servers=0, beside=False, server_hosts=None):
        self.ranks = [host for host, count in enumerate(workers) for _ in range(count)]
        if not self.ranks:
            raise ValueError("a job needs a worker")
        if server_hosts is None:
            server_hosts = range(len(workers), len(workers) + servers)
        elif servers not in (0, len(server_hosts)):
            raise ValueError(f"{servers} servers, but hosts for {len(server_hosts)} of them")
        self.servers = (sorted(set(self.ranks)) if beside else []) + list(server_hosts)
        self.hosts = 1 + max([len(workers) - 1, *self.servers])

    def parts(self):
        """[(part, host)] of servers and workers, such as ("worker 0", 2)."""
        return [
            *((f"server {rank}", host) for rank, host in enumerate(self.servers)),
            *((f"worker {rank}", host) for rank, host in enumerate(self.ranks)),
        ]


class End:
    """How a part ended: its status (None: not yet; negative: killed by that signal) and what it wrote."""

    def __init__(self, host, status, out, err):
        self.host, self.status, self.out, self.err = host, status, out, err

    def __repr__(self):
        return f"on {self.host}, status {self.status}\n{self.out}--\n{self.err}"


class _Stream(threading.Thread):
    """Collects what a part writes, line by line, and hands each to `tell`."""

    def __init__(self, pipe, tell):
        super().__init__(daemon=True)
        self.pipe, self.tell, self.lines = pipe, tell, []
        self.start()

    def run(self):
        with self.pipe:
            for line in self.pipe:
                text = line.decode(errors="replace").rstrip("\n")
                self.lines.append(text)
                self.tell(text)

    def text(self):
        return "".join(f"{line}\n" for line in list(self.lines))


class _Part:
    def __init__(self, bed, name, host, command, env, tell, **how):
        self.name, self.host = name, bed.hostname(host)
        pipe = subprocess.PIPE
        self.process = bed.popen(
            host, command, env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, **how
        )
        self.streams = {
            stream: _Stream(getattr(self.process, f"std{stream}"), lambda line, s=stream: tell(self, s, line))
            for stream in ("out", "err")
        }

    def end(self):
        return End(self.host, self.process.poll(), self.streams["out"].text(), self.streams["err"].text())

    def signal(self, number):
        """To the part and whatever it has started, unless that has left its session."""
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass


class Job:
    """A running job. Its parts are called "scheduler", "server 0", "worker 0" and so on.

    `settings` are lines key=value for all parts, `host_settings` {host: lines} for those of some hosts, `env` is
    added to the environment of the workers. The scheduler runs on the switch, whose link is never cut, or on
    `scheduler_host`. `tell(part, stream, line)` hears every line at once. Leaving the `with` block ends what is
    still running.
    """

    def __init__(
        self,
        bed,
        shape,
        command,
        settings=(),
        host_settings=None,
        env=None,
        scheduler_host=SWITCH,
        cwd=None,
        tell=None,
    ):
        if shape.hosts > bed.hosts:
            raise ValueError(f"the job needs {shape.hosts} hosts, the bed has {bed.hosts}")
        self.id, self.bed, self.shape, self.parts = uuid.uuid4().hex[:16], bed, shape, {}
        self._how = {"tell": tell or (lambda part, stream, line: None), "cwd": cwd}
        self._env = {"BYTEPS_SECRET": secrets.token_hex(32), **os.environ}
        self._common = [*filter(None, [self._env.get("BYTEPS_SET")]), *settings, f"cluster.job={self.id}"]
        self._common += [f"cluster.workers={len(shape.ranks)}", f"cluster.servers={len(shape.servers)}"]
        self._program, self._scheduler_host = os.environ.get("BYTEPS_PROGRAM", "byteps"), scheduler_host
        try:
            self.address = self.start_scheduler("scheduler", f"{bed.address(scheduler_host)}:0")
            for name, host in shape.parts():
                role, rank = name.split()
                lines = [f"cluster.scheduler={self.address}", f"cluster.role={role}", f"cluster.rank={rank}"]
                lines += (host_settings or {}).get(host, [])
                self._start(name, host, [self._program, "server"] if role == "server" else command, lines, env)
        except BaseException:
            self.close()
            raise

    def _start(self, name, host, command, lines, env=None, **how):
        full = dict(self._env, **(env or {}), BYTEPS_SET="\n".join([*self._common, *lines]))
        self.parts[name] = _Part(self.bed, name, host, command, full, **self._how, **how)

    def start_scheduler(self, name, address):
        """Starts a scheduler that is called `name` here, and returns its address. One in the place of another one that
        was lost has the address of that."""
        reading, writing = os.pipe()
        with open(reading, encoding="ascii") as announced:
            try:
                lines = ["cluster.role=scheduler", f"cluster.scheduler={address}"]
                command = [self._program, "scheduler", "--announce", str(writing)]
                self._start(name, self._scheduler_host, command, lines, pass_fds=[writing])
            finally:
                os.close(writing)
            announcement = announced.readline().strip()
        if not announcement:
            self.parts[name].process.wait()
            self._join(name)
            raise OSError(f"{name} did not start\n{self.show()}")
        return announcement

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.close()

    def _join(self, *names):
        for name in names:
            for stream in self.parts[name].streams.values():
                stream.join(10)

    # ---- looking at it

    def pid(self, part):
        return self.parts[part].process.pid

    def now(self):
        """{part: End} as it is by now."""
        return {name: part.end() for name, part in self.parts.items()}

    def show(self):
        """All that is known by now, as text for a message."""
        return "\n".join(f"=== {name} {end!r}" for name, end in self.now().items())

    def wait_for(self, text, part, stream="out", timeout=DEADLINE):
        """Waits until a line of this part contains text, and returns it. The stream "any" is both."""
        own = self.parts[part]
        streams = [own.streams[s] for s in (("out", "err") if stream == "any" else (stream,))]
        end = time.monotonic() + timeout
        while True:
            over = not any(each.is_alive() for each in streams)
            found = [line for each in streams for line in list(each.lines) if text in line]
            if found:
                return found[0]
            if over or time.monotonic() > end:
                why = "it has ended" if over else f"{timeout:g} s are over"
                raise AssertionError(f"no {text!r} from {part}, and {why}\n{self.show()}")
            time.sleep(0.01)

    # ---- its end

    def finish(self, timeout=DEADLINE):
        """Waits until every part has ended by itself, however it does, and returns {part: End}."""
        end = time.monotonic() + timeout
        for name, part in self.parts.items():
            try:
                part.process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{name} did not end within {timeout:g} s\n{self.show()}") from None
        self._join(*self.parts)
        return self.now()

    def run(self, timeout=None, grace=GRACE):
        """Waits like a launcher: a part that fails ends the others, after a grace; so does the time-out. When
        the last worker has succeeded, servers and scheduler must end soon.

        Returns (status, why): 0 and "" if all parts have succeeded, else that of the part that failed first.
        """
        status, why, end = 0, "", None if timeout is None else time.monotonic() + timeout
        running = dict(self.parts)
        while running:
            for name, part in list(running.items()):
                if part.process.poll() is None:
                    continue
                del running[name]
                if status == 0 and part.process.returncode != 0:
                    status, why = describe(name, part)
                    end = min(end or float("inf"), time.monotonic() + grace)
                elif not any(other.startswith("worker") for other in running) and name.startswith("worker"):
                    end = min(end or float("inf"), time.monotonic() + GRACE)
            if end is not None and time.monotonic() > end:
                break
            time.sleep(0.01)
        if running and status == 0:
            status, why = 124, f"{', '.join(running)} did not end in time"
        self.close()
        return status, why

    def close(self, patience=2.0):
        """Ends what still runs, children of the parts included: by SIGTERM, then by force."""
        rest = [part for part in self.parts.values() if part.process.poll() is None]
        for part in rest:
            part.signal(signal.SIGTERM)
        end = time.monotonic() + patience
        for part in rest:
            try:
                part.process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
        for part in self.parts.values():
            part.signal(signal.SIGKILL)
            part.process.wait()
        self._join(*self.parts)


def describe(name, part):
    """(status for a shell, text) of a part that failed."""
    code = part.process.returncode
    if code < 0:
        names = {number.value: number.name for number in signal.Signals}
        return 128 - code, f"{name} on {part.host} was killed by {names.get(-code, f'signal {-code}')}"
    return code, f"{name} on {part.host} exited with status {code}"
