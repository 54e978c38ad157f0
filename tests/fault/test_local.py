# SPDX-License-Identifier: Apache-2.0
"""The bad days of the other files once more where the workers of a host sum among themselves first.

And what can happen only then: hosts of which one has several workers, and strangers at the socket by which
workers of a host meet. The words must be the same as without the hierarchy.
"""

import contextlib
import ctypes
import fcntl
import mmap
import os
import random
import re
import socket
import struct
import subprocess
import sys
import time
import unittest

import cluster
import test_disagreement
import test_hosting
import test_kills
import test_leaks
import test_stops
import wire

sys.path.append(os.path.join(os.environ["top_srcdir"], "bench"))

from testbed import Testbed, Unavailable  # noqa: E402  (it lies in the folder that was just added)

cluster.HIERARCHY = "on"
PIDFD_GETFD = 438  # the system call, which Python has no name for
GATHERED = "workers of this host sum among themselves through 'local'"


class ThereIsOne(unittest.TestCase):
    """Else the tests below would test what the other files do."""

    def test_group(self):
        with cluster.ByHand(["init", "push:t:100:float32:sum:1", "leave"], 3, 0, ["log.level=info"]) as job:
            for part, end in job.finish().items():
                self.assertEqual(end.status, 0, cluster.show(job.now()))
                if part.startswith("worker"):
                    self.assertIn(f"3 {GATHERED}; nothing crosses the network", end.err)


class Transport(unittest.TestCase):
    """The transport between the workers of a host cannot be used, and what `worker.hierarchy` makes of it."""

    def ends(self, hierarchy, *more):
        settings = [f"worker.hierarchy={hierarchy}", *more]
        with cluster.ByHand(["init", "push:t:100:float32:sum:1", "leave"], 2, 0, settings) as job:
            ends = job.finish()
        return [ends[f"worker {rank}"] for rank in range(2)], cluster.show(ends)

    def refused(self, hierarchy, setting, words):
        ends, text = self.ends(hierarchy, setting, "cluster.rendezvous_timeout=1s")  # the scheduler waits for it
        for end in ends:
            self.assertEqual(end.status, 3, text)
            self.assertRegex(end.out, words, text)

    def works(self, hierarchy, setting, words):
        ends, text = self.ends(hierarchy, setting)
        for end in ends:
            self.assertEqual((end.status, end.out), (0, "joined\nt: 3\nleft\n"), text)
            self.assertRegex(end.err, words, text)

    def test_that_is_not_there(self):
        setting = "transports.local.plugin=nowhere"
        reason = "BYTEPS_SET: transports.local: there is no transport 'nowhere'"
        self.refused("on", setting, f"error: worker.hierarchy = on, but .*: {reason}")
        self.works("auto", setting, f"WARN .* workers of this host do not sum among themselves first: {reason}")
        self.works("off", setting, "^$")

    def test_with_a_wrong_option(self):
        setting = "transports.local.ringg=3"
        reason = "BYTEPS_SET: transports.local.ringg: unknown key; did you mean transports.local.ring"
        self.refused("on", setting, f"error: .*{reason}")
        self.refused("auto", setting, f"error: {reason}")


class Apart(unittest.TestCase):
    """Workers of one machine that cannot share memory."""

    def test_containers_of_one_name(self):
        """Each has a network of its own: they are hosts of their own."""
        rename = ["sh", "-c", 'hostname same && exec "$@"', "sh"]
        steps = ["init", "push:t:100:float32:sum:1", "leave"]
        with contextlib.ExitStack() as stack:
            try:
                bed = stack.enter_context(Testbed(2))
            except Unavailable as reason:
                raise unittest.SkipTest(str(reason)) from None
            command = [*rename, cluster.WORKER, *steps]
            job = stack.enter_context(bed.job(command, [1, 1], settings=["log.level=info"]))
            for part, end in job.finish().items():
                self.assertEqual(end.status, 0, job.show())
                if part.startswith("worker"):
                    self.assertIn("t: 3\n", end.out, job.show())
            self.assertIn("(host same, ", job.now()["scheduler"].err, job.show())

    def ends_of_users(self, steps, servers, settings=()):
        """Two workers, of which the second belongs to another user."""
        other = {"user": 65534, "group": 65534, "extra_groups": []}
        if os.geteuid() != 0:
            self.skipTest("only root starts processes of other users")
        if subprocess.run(["test", "-x", cluster.WORKER], **other).returncode != 0:
            self.skipTest("other users cannot start what was built here")
        with cluster.ByHand(steps, 2, servers, settings, late=["worker 1"]) as job:
            job.start("worker 1", **other)
            return job.finish()

    def test_server_of_another_user(self):
        """The worker says so once, however many shards the server has, and goes through the network."""
        steps = ["init", "push:t:100:float32:sum:1", "leave"]
        settings = ["worker.hierarchy=off", "server.local=true", "server.shards=2", "log.level=info"]
        ends = self.ends_of_users(steps, 1, settings)
        text = cluster.show(ends)
        for rank, way in enumerate(("local", "net")):
            self.assertEqual(ends[f"worker {rank}"].status, 0, text)
            self.assertIn("t: 3\n", ends[f"worker {rank}"].out, text)
            self.assertIn(f"server 0 is reached through '{way}'", ends[f"worker {rank}"].err, text)
        said = "WARN .*server 0 is on this host, but is reached through 'net', not 'local': ."
        self.assertEqual([len(re.findall(said, ends[f"worker {rank}"].err)) for rank in range(2)], [0, 1], text)

    def test_users(self):
        ends = self.ends_of_users(["init", "leave"], 0)
        text = cluster.show(ends)
        for rank in range(2):
            self.assertEqual(ends[f"worker {rank}"].status, 3, text)
            self.assertRegex(
                ends[f"worker {rank}"].out,
                r'worker 0 \(.*\) is on this host, but cannot share memory with this worker: .* "off" to run without',
                text,
            )


def cut_local_links(pid):
    """Ends the connections over which a process shares memory with others, as both ends see it."""
    libc, handle = ctypes.CDLL(None, use_errno=True), os.pidfd_open(pid)
    for number in cluster.sockets(pid):
        descriptor = libc.syscall(PIDFD_GETFD, handle, number, 0)
        if descriptor >= 0:  # else it has been closed meanwhile
            with socket.socket(fileno=descriptor) as copy:
                if copy.family == socket.AF_UNIX and not copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    copy.shutdown(socket.SHUT_RDWR)
    os.close(handle)


class Kills(test_kills.ByHand):
    """Each role in each phase, on one host."""

    def strike_on_hosts(self, phase, victim):
        """
        Workers 0 and 1 on one host, worker 2 on another: the network carries a partial sum. As workers sum for the
        network, too, the job would go on without the server.
        """
        steps, settings = test_kills.STEPS[phase], [*test_kills.SETTINGS, *test_kills.GATHER, "cluster.failover=false"]
        with cluster.ByHand(steps, 3, 1, settings, hosts="aabc") as job:
            test_kills.strike(job, phase, victim)
            test_kills.check(self, job, job.finish(), phase, victim, False)

    def result_after_the_loss(self):
        """Sums come back from the network to a worker whose link to another one of its host is lost, and with it
        the memory that had been lent; nobody has judged that yet."""
        with cluster.ByHand(test_kills.STEPS["push"], 3, 1, test_kills.SETTINGS, hosts="aabc") as job:
            test_kills.reach(job, "push")
            job.stop("worker 2")
            time.sleep(1)  # for the sums of host a to be on their way; else there is nothing to see
            cut_local_links(job.pid("worker 0"))
            job.go_on("worker 2")
            ends = job.finish()
        for part, end in ends.items():
            self.assertGreater(end.status, 0, f"{part}\n{cluster.show(ends)}")
            self.assertRegex(end.text, r"worker [01] \(host a, pid \d+\) was lost", f"{part}\n{cluster.show(ends)}")

    def test_two_hosts(self):
        test_hosting.namespaces()
        cases = {"result after the loss": self.result_after_the_loss}
        for phase in ("push", "pull", "idle"):
            for victim in ("scheduler", "server 0", "worker 0", "worker 1", "worker 2"):
                cases[f"{victim} in {phase}"] = lambda p=phase, v=victim: self.strike_on_hosts(p, v)
        cluster.side_by_side(self, cases)


class TooLong(test_stops.TooLong):
    pass


class NotTooLong(test_stops.NotTooLong):
    pass


class Mismatch(test_disagreement.Mismatch):
    def test_on_two_hosts(self):
        """
        The odd one may be in a group or alone. If the others were declared first, those of each host may
        find the difference by themselves, in words of their own.
        """
        test_hosting.namespaces()

        def disagree(hosts, odd, rank):
            declared = " ".join(odd.split(":")[2:4])
            steps = ["init", *(f"@{r}:?{odd if r == rank else 'push:t:3000:float32:sum:1'}" for r in range(3))]
            steps += ["push:after:3000:float32:sum:1"] * 2 + ["leave"]
            settings = test_disagreement.PARTITIONS
            with cluster.ByHand(steps, 3, 1, settings, hosts=hosts) as job:
                ends = job.finish()
            text = cluster.show(ends)
            lines = [ends[f"worker {r}"].out.splitlines() for r in range(3)]
            self.assertEqual([end.status for end in ends.values()], [0] * 5, text)
            for own in lines:
                self.assertEqual(own[2:], ["after: 6", "after: 6", "left"], text)
                names_it = rf"\b{rank} pushed|{declared}"
                self.assertRegex(own[1], rf"^error: tensor 't': worker.*({names_it})", text)

        odds = {
            "length": "push:t:2000:float32:sum:1",
            "type": "push:t:3000:int32:sum:1",
            "operation": "push:t:3000:float32:max:1",
            "postscale": "push:t:3000:float32:sum:0.5",
            "broadcast": "cast:t:3000:0",
        }
        cases = {}
        for name, odd in odds.items():
            for hosts, rank in (("aabc", 0), ("aabc", 1), ("aabc", 2), ("abbc", 2)):
                cases[f"{name}, worker {rank} on {hosts}"] = lambda h=hosts, o=odd, r=rank: disagree(h, o, r)
        cluster.side_by_side(self, cases)


class Change(test_disagreement.Change):
    blamed = "worker [01]"  # whoever is led by one that has left needs no other reason

    def test_on_two_hosts(self):
        """All have changed; then a worker of a host, or the one of the other, has not."""
        test_hosting.namespaces()
        forms = ((3000, "float64"), (100, "float64"), (100, "int32"), (9000, "float64"))

        def check(hosts, late):
            steps = [test_disagreement.push("t", count, dtype) for count, dtype in forms for _ in range(2)]
            old, new = (test_disagreement.push("t", count, "float64") for count in (9000, 2000))
            steps += [f"@{r}:?{old if r == late else new}" for r in range(3)] + [new, new]
            settings = test_disagreement.PARTITIONS
            with cluster.ByHand(["init", *steps, "leave"], 3, 1, settings, hosts=hosts) as job:
                ends = job.finish()
            text = cluster.show(ends)
            for rank in range(3):
                own = ends[f"worker {rank}"].out.splitlines()
                self.assertEqual(own[1:9], ["t: 6"] * 8, text)
                self.assertRegex(own[9], rf"^error: tensor 't': worker {late} pushed 9000 float64, ", text)
                self.assertEqual(own[10:], ["t: 6", "t: 6", "left"], text)

        cases = {f"worker {late} on {hosts}": (hosts, late) for hosts in ("aabc", "abbc") for late in range(3)}
        cluster.side_by_side(self, {name: lambda c=case: check(*c) for name, case in cases.items()})

    def test_forgotten_where_it_is_led(self):
        """The servers' word about a round comes to a leader that does not know the tensor at that moment."""
        test_hosting.namespaces()

        def check(leader):
            others = [rank for rank in range(3) if rank != leader]
            new = test_disagreement.push("t", 50)
            steps = ["init", test_disagreement.push("t"), *(f"@{rank}:gate:change" for rank in others)]
            steps += [*(f"@{rank}:{new}" for rank in others), f"@{leader}:gate:forget", f"@{leader}:forget:t"]
            steps += [f"@{leader}:gate:again", f"@{leader}:{new}", "leave"]
            settings = ["cluster.colocated=none"]
            with cluster.ByHand(steps, 3, 1, settings, hosts="abbc") as job:
                for rank in range(3):
                    job.wait_for("at ", f"worker {rank}")
                job.stop("server 0")
                job.open("change")
                time.sleep(0.3)  # the leader passes on that the others have changed
                job.open("forget")
                job.wait_for("at again", f"worker {leader}")
                job.go_on("server 0")
                time.sleep(0.3)  # the answer arrives
                job.open("again")
                ends = job.finish()
            for rank in range(3):
                self.assertIn("t: 6\n", ends[f"worker {rank}"].out.replace("t: 6\n", "", 1), cluster.show(ends))

        cluster.side_by_side(self, {f"worker {r}": lambda r=r: check(r) for r in (1, 2)})


class Busy(unittest.TestCase):
    """A name that is in flight on this worker already: only that is refused."""

    def test_twice_in_flight(self):
        push = "push:u:100:float32:sum:1"
        steps = ["init", "start:t:100", "?push:t:100:float32:sum:1", push, push, "leave"]
        with cluster.ByHand(steps, 3, 0) as job:
            ends = job.finish()
        text = cluster.show(ends)
        for rank in range(3):
            self.assertEqual(ends[f"worker {rank}"].status, 0, text)
            lines = ends[f"worker {rank}"].out.splitlines()
            self.assertRegex(lines[1], "^error: .*'t'.* in flight", text)
            self.assertEqual(lines[2:], ["u: 6", "u: 6", "left"], text)


def graph(*stages):
    return "worker.graph=(" + ", ".join(f'{{ stage = "{stage}"; }}' for stage in stages) + ")"


class Stage(test_disagreement.Stage):
    """A stage fails on one worker, before the sum of its host."""

    GRAPH = graph("nanguard", "local_reduce", "push_pull", "local_broadcast")


class StageOnTwoHosts(Stage):
    HOSTS = "aabc"

    @classmethod
    def setUpClass(cls):
        test_hosting.namespaces()


class StageOfTheLeader(test_disagreement.Stage):
    """It fails on the sum of a host: only on the worker that leads the partition."""

    GRAPH = graph("local_reduce", "nanguard", "push_pull", "local_broadcast")
    WHO = "worker [012]"


class StageOfTheLeaderOnTwoHosts(StageOnTwoHosts):
    GRAPH, WHO = StageOfTheLeader.GRAPH, "worker [01]"


class StageAfterTheNetwork(test_disagreement.Stage):
    """It fails on the result: on the leader, who then has none for the others either."""

    GRAPH = graph("local_reduce", "push_pull", "nanguard", "local_broadcast")
    WHO = "worker [012]"


class StageAtTheEnd(test_disagreement.Stage):
    """It fails on each worker by itself."""

    GRAPH = graph("local_reduce", "push_pull", "local_broadcast", "nanguard")
    WHO = "worker [012]"


class Leaving(test_disagreement.Leaving):
    GONE = "worker [012]"  # those who were told leave, too, and may be gone when the last one comes


class Stall(test_disagreement.Stall):
    pass


class Leaks(test_leaks.Leaks):
    pass


# ---- strangers at the socket between workers: what transports/ipc/layout.h describes, as far as it goes here

MESSAGE = struct.Struct("<6I4Q8x")
RECORD = struct.Struct("<IHH6I2Q")
MAGIC, VERSION = 0x49535042, 4
HELLO, WELCOME, READY, REGION = 1, 2, 3, 4
INLINE, STREAM, MORE, MAPPED, REMOTE, RETURN = 2, 3, 4, 5, 6, 7
PAGE, RING, LINE, HEAD = 4096, 65536, 64, 192
TAIL, PEER_TAIL = 0, 512
"""Of the dialler's and of the acceptor's side, in the page of indices."""
F_SEAL_SHRINK, F_ADD_SEALS = 2, 1033
LIBC = ctypes.CDLL(None, use_errno=True)


def message(kind, ring=RING, magic=MAGIC, version=VERSION):
    return MESSAGE.pack(magic, version, kind, ring, 0, 1, 0, 0, 0, 0)


def memory(size=PAGE + 2 * RING, seal=True):
    fd = os.memfd_create("stranger", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    if seal:
        fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)
    return fd


def event():
    return LIBC.eventfd(0, os.O_CLOEXEC | os.O_NONBLOCK)


def null():
    return os.open("/dev/null", os.O_RDWR)


class Visitor:
    """A process of the same user at a worker's socket."""

    OWN, ITS = (TAIL, PAGE), (PEER_TAIL, PAGE + RING)
    """Where the index and the bytes of each ring are."""

    def __init__(self, name):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(wire.TIMEOUT)
        self.sock.connect("\0" + name[1:])
        self.fds, self.shared = [], None
        self.head = self.tail = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()
        for fd in self.fds:
            os.close(fd)
        if self.shared is not None:
            self.shared.close()

    def send(self, data, *fds):
        """A message with descriptors, which are closed at the end."""
        self.fds += fds
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(fds)}i", *fds))] if fds else []
        with contextlib.suppress(ConnectionError):
            self.sock.sendmsg([data], rights)

    def open(self):
        """The whole handshake of the transport: frames may travel now."""
        fd = memory()
        self.shared = mmap.mmap(fd, PAGE + 2 * RING)
        self.send(message(HELLO), fd, event())
        _, rights, _, _ = self.sock.recvmsg(MESSAGE.size, socket.CMSG_SPACE(4))
        (self.bell,) = struct.unpack("i", rights[0][2])
        self.fds.append(self.bell)
        self.send(message(READY))
        return self

    def put(self, frame, kind=INLINE, size=None, ahead=0, **fields):
        """Puts a record into the ring, as its owner would or nearly so."""
        if size is None:
            size = HEAD + (max(0, len(frame) - wire.HEADER.size) + LINE - 1) // LINE * LINE
        names = ("bytes", "ticket", "serial", "region", "answer_region", "verdict", "at", "answer")
        fields = {"bytes": max(0, len(frame) - wire.HEADER.size), **fields}
        record = RECORD.pack(size, kind, fields.get("flags", 0), *(fields.get(name, 0) for name in names))
        record += frame[: wire.HEADER.size]
        record = record.ljust(HEAD, b"\0") + frame[wire.HEADER.size :]
        index, ring = self.OWN
        at = ring + self.tail % RING
        self.shared[at : at + len(record)] = record
        self.tail += (size if 0 < size < RING else LINE) + ahead
        self.shared[index : index + 8] = struct.pack("<Q", self.tail)
        os.write(self.bell, struct.pack("<Q", 1))

    def get_frame(self):
        """(fields of the header, payload) of the next frame of the worker's."""
        index, ring = self.ITS
        cluster.harness.until(
            lambda: struct.unpack_from("<Q", self.shared, index)[0] != self.head, "frame from a worker"
        )
        at = ring + self.head % RING
        fields = wire.HEADER.unpack_from(self.shared, at + RECORD.size)
        start = at + HEAD
        self.head += RECORD.unpack_from(self.shared, at)[0]
        return fields, bytes(self.shared[start : start + fields[0]])

    def get(self):
        """(type, payload) of the next frame of the worker's."""
        fields, payload = self.get_frame()
        return fields[1], payload

    def nonce(self):
        kind, payload = self.get()
        if kind != wire.CHALLENGE:
            raise AssertionError(f"no challenge but {kind}: {payload!r}")
        return payload[:16]

    def wait_for_end(self):
        """Waits until the worker has closed its end; socket.timeout if it does not."""
        with contextlib.suppress(ConnectionError):
            while self.sock.recv(4096):
                pass


# Messages of the handshake, each with the descriptors that come along.
MESSAGES = {
    "noise": lambda: [(random.Random(7).getrandbits(512).to_bytes(64, "little"),)],
    "a byte": lambda: [(b"x",)],
    "long": lambda: [(bytes(60_000),)],
    "HTTP": lambda: [(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",)],
    "other magic": lambda: [(message(HELLO, magic=1), memory(), event())],
    "other version": lambda: [(message(HELLO, version=VERSION + 1), memory(), event())],
    "no descriptors": lambda: [(message(HELLO),)],
    "one descriptor": lambda: [(message(HELLO), memory())],
    "not memory": lambda: [(message(HELLO), null(), event())],
    "not an event": lambda: [(message(HELLO), memory(), null())],
    "memory twice": lambda: [(message(HELLO), memory(), memory())],
    "not sealed": lambda: [(message(HELLO), memory(seal=False), event())],
    "too short": lambda: [(message(HELLO), memory(PAGE), event())],
    "no ring": lambda: [(message(HELLO, 0), memory(), event())],
    "uneven ring": lambda: [(message(HELLO, RING + 64), memory(), event())],
    "huge ring": lambda: [(message(HELLO, 1 << 31), memory(), event())],
    "READY at once": lambda: [(message(READY),)],
    "WELCOME at once": lambda: [(message(WELCOME), event())],
    "REGION at once": lambda: [(message(REGION), memory())],
    "HELLO twice": lambda: [(message(HELLO), memory(), event()) for _ in range(2)],
}
PUSH = wire.frame(wire.PUSH, bytes(256), dtype=4, epoch=1, tensor=1, bytes=256, size=256)

# Records after the handshake of the transport.
RECORDS = {
    "no size": lambda v: v.put(PUSH, size=0),
    "huge": lambda v: v.put(PUSH, size=1 << 31),
    "not a multiple": lambda v: v.put(PUSH, size=100),
    "tail ahead": lambda v: v.put(PUSH, ahead=1 << 40),
    "tail behind": lambda v: v.put(PUSH, ahead=-(1 << 20) % (1 << 64) - 1),
    "unknown kind": lambda v: v.put(PUSH, kind=99),
    "more than there is": lambda v: v.put(PUSH, bytes=1 << 20),
    "MORE of nothing": lambda v: v.put(PUSH, kind=MORE),
    "a region that is not there": lambda v: v.put(PUSH, kind=MAPPED, region=77),
    "memory that is not there": lambda v: v.put(PUSH, kind=REMOTE, at=8),
    "a loan that is not there": lambda v: v.put(PUSH, kind=RETURN, ticket=5),
    "PUSH before HELLO": lambda v: v.put(PUSH),
    "unknown frame": lambda v: v.put(wire.frame(99)),
    "RETURNED": lambda v: v.put(wire.frame(37)),
    "a shard's HELLO": lambda v: v.put(wire.hello(v.nonce(), wire.data(1, 0, 1))),
    "a member's HELLO": lambda v: v.put(wire.hello(v.nonce(), wire.MEMBER, wire.NO_SECRET)),
    "a short HELLO": lambda v: v.put(wire.hello(v.nonce(), wire.local(1, 1)[:-1])),
    "a false nonce": lambda v: v.put(wire.hello(bytes(16), wire.local(1, 1))),
}


class Strangers(unittest.TestCase):
    """Processes of the same user at the workers' sockets: nothing changes, and nothing of them stays."""

    SERVERS, LISTENERS = 0, "worker"

    @contextlib.contextmanager
    def running(self, idle=False):
        """A job that sums meanwhile, or, where that would only make the machine busy, afterwards."""
        settings = ["transports.local.timeout=2s", "cluster.peer_timeout=60s", "server.shards=1"]
        steps = ["init", *["gate:enough"] * idle, "loop:grad:50000:enough", "leave"]
        with cluster.ByHand(steps, 3, self.SERVERS, settings) as job:
            for rank in range(3):
                job.wait_for("at enough" if idle else "grad runs", f"worker {rank}")
            listeners = [part for part in job.parts if part.startswith(self.LISTENERS)]
            job.names = {part: job.watch_name(part) for part in listeners}
            before = {part: cluster.descriptors(job.pid(part)) for part in listeners}
            yield job

            def all_closed():
                return all(cluster.descriptors(job.pid(part)) <= n for part, n in before.items())

            cluster.harness.until(all_closed, "end of the strangers' connections")
            job.open("enough")
            for part, end in job.finish().items():
                self.assertEqual(end.status, 0, f"{part}\n{cluster.show(job.now())}")
                if part.startswith("worker"):
                    self.assertIn("grad is right", end.out, cluster.show(job.now()))

    def test_messages(self):
        with self.running() as job:
            for part, name in job.names.items():
                for what, messages in MESSAGES.items():
                    with self.subTest(f"{what} at {part}"), Visitor(name) as visitor:
                        for data, *fds in messages():
                            visitor.send(data, *fds)
                        visitor.wait_for_end()

    def test_records(self):
        with self.running() as job:
            for part, name in job.names.items():
                for what, attack in RECORDS.items():
                    with self.subTest(f"{what} at {part}"), Visitor(name) as visitor:
                        attack(visitor.open())
                        visitor.wait_for_end()

    def test_no_proof(self):
        """Who speaks properly, but does not belong to the group, hears that it has no proof."""
        with self.running() as job:
            for part, name in job.names.items():
                own = int(part[-1])
                for rank, epoch in ((own, 1), (2, 1), (7, 1), (2, 9)):
                    with self.subTest(f"worker {rank} at {part}"), Visitor(name) as visitor:
                        nonce = visitor.open().nonce()
                        visitor.put(wire.hello(nonce, wire.local(rank, epoch), wire.Identity().private))
                        kind, text = visitor.get()
                        self.assertEqual(kind, wire.REFUSE)
                        self.assertTrue(text.decode().startswith(wire.FOREIGN), text)
                        visitor.wait_for_end()

    def test_silence(self):
        """Before the handshake of the transport, which waits for 2 s, and behind it, where the lobby waits for 10 s."""
        with self.running(idle=True) as job, contextlib.ExitStack() as crowd:
            visitors = [crowd.enter_context(Visitor(name)) for name in job.names.values() for _ in range(21)]
            for visitor in visitors[::21]:
                visitor.open()
            for visitor in visitors:
                visitor.wait_for_end()


if __name__ == "__main__":
    unittest.main()
