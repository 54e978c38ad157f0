# SPDX-License-Identifier: Apache-2.0
"""Jobs for bad days: started part by part as by hand, or by `byteps run`; with gates to stand at.

    with cluster.ByHand(["init", "gate:here", "leave"], workers=2, servers=1) as job:
        job.wait_for("at here", "worker 0")
        job.kill("server 0")
        job.open("here")
        ends = job.finish()          # {"worker 0": End, ...}

The workers are tests/fault/worker.c and do the steps they are given. ByRun has the same methods for a job of
`byteps run`. Both watch what a job could leave behind: leaving the `with` block fails if a process, a
listening port, or a file in the job's own temporary folder or in /dev/shm has stayed.

The workers are on one host, but neither sum among themselves first nor share memory with the servers, as what goes
wrong on the way through the network is most of the subject here; test_local.py changes HIERARCHY for itself, and
test_near.py LOCAL.
"""

import concurrent.futures
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "jobs"))

import harness  # noqa: E402  (it lies in the folder that was just added)
import stacks  # noqa: E402

WORKER = os.path.join(os.environ.get("top_builddir", "."), "tests", "fault", "worker")
DEADLINE = harness.DEADLINE
TRANSPORT = os.environ.get("CLUSTER_TRANSPORT", "tcp")
ADDRESS = os.environ.get("CLUSTER_ADDRESS", "127.0.0.1")
"""Between all processes, and where the scheduler listens: tests/verbs has other ones."""
if not ADDRESS.startswith("127."):
    os.environ.setdefault("BYTEPS_SECRET", uuid.uuid4().hex)
HIERARCHY = "off"
"""worker.hierarchy of all jobs."""
LOCAL = "false"
"""server.local of all jobs."""
COMPUTES = os.environ.get("SANITIZER") == "thread" or TRANSPORT == "verbs"
"""Whether a job's time goes into computing: ThreadSanitizer and emulated devices are slow on every byte. Else most of
it is waiting."""
AT_ONCE = 2 if COMPUTES else 4
"""Jobs that run side by side."""


class End:
    """How a part ended: its status (None where only `byteps run` knows it) and all that it wrote."""

    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err
        self.text = out + err

    def __repr__(self):
        return f"status {self.status}\n{self.out}--\n{self.err}"


def show(ends):
    """All ends as text for a message."""
    return "\n".join(f"=== {part}: {end!r}" for part, end in ends.items())


def _checked(ends):
    """The ends, unless a sanitizer has had something to say in one of the parts."""
    for part, end in ends.items():
        if "Sanitizer: " in end.err or "runtime error: " in end.err:
            raise AssertionError(f"{part}\n{show(ends)}")
    return ends


def side_by_side(test, cases):
    """Runs {name: function} some at a time; each failure is one of the test's, under its name."""
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        running = {name: pool.submit(function) for name, function in cases.items()}
    for name, future in running.items():
        with test.subTest(name):
            future.result()


# ---- what a process has open


def sockets(pid):
    """{descriptor: inode} of a process's sockets. It may be over, and may open and close others meanwhile."""
    found = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                link = os.readlink(f"/proc/{pid}/fd/{name}")
                if link.startswith("socket:["):
                    found[int(name)] = link[8:-1]
    return found


def _host(text):
    """An address of /proc/net/tcp, which has words of four bytes in the machine's order."""
    words = bytes.fromhex(text)
    step = 1 if sys.byteorder == "big" else -1
    address = b"".join(words[i : i + 4][::step] for i in range(0, len(words), 4))
    return socket.inet_ntop(socket.AF_INET if len(words) == 4 else socket.AF_INET6, address)


def listening():
    """{inode: (host, port)} of everything that listens on TCP here."""
    found = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as file:
                rows = [line.split() for line in file][1:]
        except OSError:
            continue
        for row in rows:
            host, _, port = row[1].partition(":")
            if row[3] == "0A":
                found[row[9]] = (_host(host), int(port, 16))
    return found


def listens(pid):
    """{inode: (host, port)} of what this process listens on."""
    own = sockets(pid).values()
    return {inode: where for inode, where in listening().items() if inode in own}


def ports(pid):
    """{inode: port} of what this process listens on."""
    return {inode: port for inode, (_, port) in listens(pid).items()}


def abstract_names(pid=None):
    """Unix sockets that listen under an abstract name; of this process or of all."""
    own = None if pid is None else sockets(pid).values()
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as file:
        rows = [line.split() for line in file][1:]
    return {row[7] for row in rows if len(row) > 7 and row[7].startswith("@") and (own is None or row[6] in own)}


def descriptors(pid):
    """How many descriptors a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident(pid):
    """KiB of memory that a process has."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


# ---- jobs


class _Gated:
    """What both kinds of jobs share: the folder of gates and the traces that must not stay."""

    def _prepare(self):
        harness.program()
        if not os.path.exists(WORKER):
            raise unittest.SkipTest(f"{WORKER} has not been built")
        self.folder = tempfile.mkdtemp(prefix="byteps-fault-")
        self.gates, self.tmp = os.path.join(self.folder, "gates"), os.path.join(self.folder, "tmp")
        os.mkdir(self.gates)
        os.mkdir(self.tmp)
        self._shared_before = set(os.listdir("/dev/shm"))
        self._ports, self._names = {}, set()
        self._stopped = {}  # part -> process
        # The harness's own Python may leak; the parts of a job may not.
        return {"GATES": self.gates, "TMPDIR": self.tmp, "ASAN_OPTIONS": "detect_leaks=1"}

    def open(self, *gates):
        """Opens gates."""
        for gate in gates:
            with open(os.path.join(self.gates, gate), "x", encoding="ascii"):
                pass

    def wait_joined(self, part):
        """Waits until the scheduler knows this part; its log has to be at level debug."""
        self.wait_for(f"has joined: {part} (", "scheduler", "err")

    def watch_ports(self, *parts):
        """Returns the ports of these parts, if they are TCP's; they have to be closed at the end."""
        found = []
        if TRANSPORT != "tcp":
            return found
        for part in parts:
            pid = self.pid(part)
            new = harness.until(lambda: ports(pid), f"port of {part}")  # noqa: B023  (called at once)
            self._ports.update(new)
            found += new.values()
        return found

    def watch_name(self, part):
        """Returns the abstract name at which a part listens for others of its host; it has to be gone at the end."""
        pid = self.pid(part)
        (name,) = harness.until(lambda: abstract_names(pid), f"abstract name of {part}")
        self._names.add(name)
        return name

    def kill(self, part):
        os.kill(self.pid(part), signal.SIGKILL)

    def kill_and_wait(self, part):
        """Kills a part; its descriptors are closed when this returns."""
        pid = self.pid(part)
        self.kill(part)
        harness.until(lambda: harness.thread_states(pid) <= {"Z", "X"}, f"death of {part}")

    def stop(self, part):
        """Stops a part and waits until it stands still."""
        pid = self.pid(part)
        os.kill(pid, signal.SIGSTOP)
        harness.until(lambda: harness.thread_states(pid) <= {"T", "t"}, f"standstill of {part}")
        self._stopped[part] = pid

    def go_on(self, part):
        """Lets a stopped part go on. After a loss, byteps run may have done so, and the part may have ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._stopped.pop(part), signal.SIGCONT)

    def _check_traces(self):
        traces = []
        shared = set(os.listdir("/dev/shm")) - self._shared_before
        traces += [name for name in shared if "byteps" in name or "bps" in name or self.id in name]
        traces += os.listdir(self.tmp)
        traces += [f"port {port}" for inode, (_, port) in listening().items() if inode in self._ports]
        traces += self._names & abstract_names()
        traces += [harness.command(pid) for pid in harness.processes(self.id)]
        if traces:
            raise AssertionError(f"left behind: {traces}")

    def _close(self, failed):
        try:
            if not failed:
                self._check_traces()
        finally:
            shutil.rmtree(self.folder)


class ByRun(_Gated):
    """A job of `byteps run`; `hosts` is for its --hosts, with all workers, or a `script` names them; `worker` is what
    does the steps."""

    def __init__(
        self, steps, workers=2, servers=1, settings=(), address=ADDRESS, hosts=None, worker=(WORKER,), more=(),
        script=None,
    ):
        env = self._prepare()
        options = [word for setting in (*_ways(), *settings) for word in ("--set", setting)]
        options += ["--address", f"{address}:0"]
        options += ["--grace", "2 min"]  # a part that has to report may be slow on a busy machine
        options += more
        if script:
            options += ["--host-discovery-script", script]
        else:
            options += ["--hosts", hosts] if hosts else ["-n", str(workers)]
        self.job = harness.Job([*worker, *steps], workers=None, servers=servers, options=options, env=env)
        self.id, self.pid, self.wait_for = self.job.id, self.job.pid, self.job.wait_for
        self.parts = ["scheduler", *_members(workers, servers)]

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        try:
            self.job.__exit__(kind, error, trace)
        finally:
            self._close(kind is not None)

    def finish(self):
        """Waits for the end; `status` is that of `byteps run`."""
        result = self.job.wait()
        self.status = result.status
        ends = {}
        for part in self.parts:
            out, err = ("".join(f"{line}\n" for line in result.lines(part, s)) for s in ("out", "err"))
            ends[part] = End(None, out, err)
        ends["byteps run"] = End(result.status, *("\n".join(result.lines(None, s)) for s in ("out", "err")))
        return _checked(ends)


def _ways():
    return [f"transports.net.plugin={TRANSPORT}", f"worker.hierarchy={HIERARCHY}", f"server.local={LOCAL}"]


def _members(workers, servers):
    return [f"server {rank}" for rank in range(servers)] + [f"worker {rank}" for rank in range(workers)]


class _Part:
    """One process of a job started by hand."""

    def __init__(self, command, settings, env, **how):
        full = dict(os.environ, **env, BYTEPS_SET="\n".join(settings))
        self.process = subprocess.Popen(
            command,
            env=full,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            **how,
        )
        self.readers = {
            "out": harness._Reader(self.process.stdout),
            "err": harness._Reader(self.process.stderr),
        }

    def text(self, stream):
        return self.readers[stream].text()

    def end(self):
        """How it is by now."""
        return End(self.process.poll(), self.text("out"), self.text("err"))


class ByHand(_Gated):
    """A job whose parts are commands of their own.

    `late` are members that start() starts, `extra` settings of single parts. `hosts` has a name for each worker and
    then for each server: a host is a namespace. `worker` is what does the steps.
    """

    def __init__(
        self, steps, workers=2, servers=1, settings=(), late=(), extra=None, hosts=None, worker=(WORKER,)
    ):
        members = _members(workers, 0) + _members(0, servers)
        self.hosts = dict(zip(members, hosts or ()))
        self.env, self.worker = self._prepare(), worker
        self.id, self.steps, self.extra, self.parts = uuid.uuid4().hex[:16], steps, extra or {}, {}
        self.common = [*_ways(), *settings, f"cluster.job={self.id}"]
        self.common += [f"cluster.workers={workers}", f"cluster.servers={servers}"]
        try:
            self.address = self.start_scheduler(address=self._hold_address())
            for part in _members(workers, servers):
                if part not in late:
                    self.start(part)
        except BaseException:
            self._end()
            raise

    def _hold_address(self):
        """Nobody else gets this port while the scheduler is gone, unless the job chooses ports of its own."""
        self.hold = socket.socket(socket.AF_INET6 if ":" in ADDRESS else socket.AF_INET)
        if TRANSPORT != "tcp" or any(setting.startswith("cluster.ports") for setting in self.common):
            return f"{ADDRESS}:0"
        self.hold.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.hold.bind((ADDRESS.strip("[]"), 0))
        return f"{ADDRESS}:{self.hold.getsockname()[1]}"

    def start_scheduler(self, name="scheduler", *, address, arguments=()):
        """Starts a scheduler that is called `name` here, and returns its address; `arguments` are more of its own."""
        reading, writing = os.pipe()
        extra = self.extra.get("scheduler", ())
        self.parts[name] = _Part(
            [harness.program(), "scheduler", "--announce", str(writing), *arguments],
            [*self.common, *extra, "cluster.role=scheduler", f"cluster.scheduler={address}"],
            self.env,
            pass_fds=[writing],
        )
        os.close(writing)
        with open(reading, encoding="ascii") as announced:
            return announced.readline().strip()

    def start(self, part, name=None, settings=(), steps=None, scheduler=None, arguments=(), **how):
        """Starts a member; `name` is what it is called here if the part exists already, `arguments` are more of a
        server's, `how` is for Popen."""
        role, _, rank = part.partition(" ")
        lines = [*self.common, *self.extra.get(part, ()), f"cluster.role={role}", f"cluster.rank={rank}"]
        lines += [f"cluster.scheduler={scheduler or self.address}", *settings]
        command = [harness.program(), "server", *arguments]
        if role == "worker":
            command = [*self.worker, *(steps or self.steps)]
        if part in self.hosts:
            enter = f"hostname {self.hosts[part]} && exec \"$@\""
            command = ["unshare", "--uts", "sh", "-c", enter, "sh", *command]
        self.parts[name or part] = _Part(command, lines, self.env, **how)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self._end()
        self._close(kind is not None)

    def _end(self):
        for part in self.parts.values():
            if part.process.poll() is None:
                part.process.kill()
            part.process.wait()
            for reader in part.readers.values():
                reader.join(10)
        self.hold.close()

    def pid(self, part):
        return self.parts[part].process.pid

    def wait_for(self, text, part, stream="out"):
        """Waits until a line of this part contains text, and returns it. The stream "any" is both."""
        streams = ("out", "err") if stream == "any" else (stream,)

        def look():
            own = self.parts[part]
            over = own.process.poll() is not None and not any(own.readers[s].is_alive() for s in streams)
            found = [line for s in streams for line in own.text(s).splitlines() if text in line]
            if over and not found:
                raise AssertionError(f"{part} ended without {text!r}\n{show(self.now())}")
            return found[0] if found else None

        try:
            return harness.until(look, repr(text), show=self.stacks)
        except AssertionError as error:
            raise AssertionError(f"{part}: {error}\n{show(self.now())}") from None

    def stacks(self):
        """Where all processes of the job are."""
        return stacks.of(harness.processes(self.id))

    def now(self):
        """{part: End} as it is by now."""
        return {name: part.end() for name, part in self.parts.items()}

    def finish(self):
        """Waits until every part has ended."""
        end = time.monotonic() + DEADLINE
        for name, part in self.parts.items():
            try:
                part.process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{name} did not end\n{self.stacks()}\n{show(self.now())}") from None
            for reader in part.readers.values():
                reader.join(10)
        return _checked(self.now())
