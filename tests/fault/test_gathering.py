# SPDX-License-Identifier: Apache-2.0
"""Hundreds of members that come at once all get in, whoever else comes; one that cannot go on keeps nobody waiting.

Few of the hundreds are processes; the others are only sockets that speak the protocol as far as a member does until it
is in.
"""

import contextlib
import os
import resource
import struct
import unittest

import cluster
import harness
import wire

SANITIZED = bool(os.environ.get("SANITIZER"))
STRANGERS = 250
"""Almost as many as a lobby has room for."""
SETTINGS = ["cluster.colocated=none", "server.shards=1", "worker.threads=1", "cluster.peer_timeout=2 min"]


class Dialler:
    """A connection that comes again when it is closed without a word, as all of the job do."""

    def __init__(self, port, claim, key):
        self.port, self.claim, self.key = port, claim, key
        self.dials = 0
        self.dial()

    def dial(self):
        self.sock = wire.connect(self.port)
        self.dials += 1

    def say_hello(self):
        while True:
            with contextlib.suppress(EOFError, ConnectionError):
                self.sock.sendall(wire.hello(wire.nonce(self.sock), self.claim, self.key))
                kind, text = wire.read_frame(self.sock)
                if kind != wire.WELCOME:
                    raise AssertionError(f"not welcome, but frame {kind}: {text}")
                return
            self.sock.close()
            self.dial()


def wait_for(sock, kind):
    """The payload of the next frame of this type."""
    while True:
        found, payload = wire.read_frame(sock)
        if found == kind:
            return payload
        if found not in (wire.ASSIGN, wire.WAITING, wire.PING):
            raise AssertionError(f"not in, but frame {found}: {payload}")


def agreement_of(stream):
    """What a member that has joined must agree on with all others, near the end of its JOIN."""
    at = 0
    while wire.HEADER.unpack_from(stream, at)[1] != wire.JOIN:
        at += wire.HEADER.size + wire.HEADER.unpack_from(stream, at)[0]
    end = at + wire.HEADER.size + wire.HEADER.unpack_from(stream, at)[0]
    if end > len(stream):
        raise IndexError("more is to come")
    at += wire.HEADER.size + struct.calcsize("<IiiiiQIII")
    for _ in range(3):
        at += 4 + struct.unpack_from("<I", stream, at)[0]
    at += 32 + 4
    return bytes(stream[at : at + struct.unpack_from("<I", stream, at - 4)[0]])


def shard_of(book):
    """The port of the only shard in a BOOK, which is at its end."""
    text = book[book.rindex(b"127.0.0.1:") :]
    return int(text.partition(b":")[2][: struct.unpack_from("<I", book, book.rindex(text) - 4)[0] - 10])


class Gathering(unittest.TestCase):
    """Worker 0 and perhaps more are processes."""

    def strangers(self, port, count):
        """Connections that say nothing, until the end of the test."""
        for _ in range(count):
            self.addCleanup(wire.connect(port).close)

    def agreement(self, job, proxy):
        def look():
            with contextlib.suppress(IndexError, struct.error):
                return agreement_of(bytes(proxy.sent))

        job.start("worker 0", scheduler=f"127.0.0.1:{proxy.port}")
        return harness.until(look, "JOIN of worker 0")

    def let_in(self, port, claims, key, strangers):
        """All dial first, then the strangers, and then all say hello."""
        diallers = [Dialler(port, claim, key) for claim in claims]
        for dialler in diallers:
            self.addCleanup(dialler.sock.close)
        self.strangers(port, strangers)
        for dialler in diallers:
            dialler.say_hello()
        return diallers

    def gather(self, workers, real=1, strangers=STRANGERS):
        """How often the members, that are only sockets, have dialled the scheduler, and the shard."""
        steps, late = ["init", "gate:in"], [f"worker {rank}" for rank in range(workers)]
        with cluster.ByHand(steps, workers=workers, settings=SETTINGS, late=late) as job:
            (port,) = job.watch_ports("scheduler")
            proxy = wire.Proxy(port)
            self.addCleanup(proxy.close)
            agreement = self.agreement(job, proxy)
            for rank in range(1, real):
                job.start(f"worker {rank}")
            own = wire.Identity()
            members = self.let_in(port, [wire.MEMBER] * (workers - real), wire.NO_SECRET, strangers)
            for rank, member in enumerate(members, real):
                join = wire.join(job.id, agreement, rank=rank, public_key=own.public)
                member.sock.sendall(wire.frame(wire.JOIN, join))
            try:
                books = [wait_for(member.sock, wire.BOOK) for member in members]
            except OSError as error:
                raise AssertionError(f"no BOOK: {error}\n{cluster.show(job.now())}") from None
            claims = [wire.data(rank, 0, 1) for rank in range(real, workers)]
            key = own.key(wire.public_keys(books[0])[-1])
            lanes = self.let_in(shard_of(books[0]), claims, key, strangers)
            for rank in range(real):
                job.wait_for("at in", f"worker {rank}")
            return sum(member.dials for member in members), sum(lane.dials for lane in lanes)

    def test_three_hundred_that_are_slow(self):
        """None of them makes room."""
        self.assertEqual(self.gather(300), (299, 299))

    def test_three_hundred_among_more_strangers_than_there_is_room_for(self):
        at_scheduler, at_shard = self.gather(300, strangers=1200)
        self.assertGreater(at_scheduler, 299)
        self.assertGreater(at_shard, 299)

    def test_a_thousand(self):
        self.gather(1000, real=10 if SANITIZED else 100)


class CannotGoOn(unittest.TestCase):
    """Worker 0 has joined, and then may not have as many files open as it needs."""

    def check(self, servers):
        settings = ["server.shards=40", "cluster.rendezvous_timeout=1h"]
        steps = ["init", "loop:grad:1000:never"]
        with cluster.ByHand(steps, servers=servers, settings=settings, late=["worker 0"]) as job:
            job.start("worker 0", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)))
            ends = job.finish()
        reason = r"this process needs \d+ open files, but its limit is 100"
        for part, end in ends.items():
            words = "" if part == "worker 0" else r"worker 0 \(host \S+, pid \d+\) gave up: "
            self.assertRegex(end.text, words + reason, f"{part}\n{cluster.show(ends)}")
            self.assertGreater(end.status, 0, f"{part}\n{cluster.show(ends)}")

    def test_to_open_shards(self):
        self.check(servers=0)

    def test_to_reach_shards(self):
        self.check(servers=1)


if __name__ == "__main__":
    unittest.main()
