# SPDX-License-Identifier: Apache-2.0
"""Foreign bytes on every port of a running job change nothing: all sums stay right, and nothing grows."""

import contextlib
import os
import random
import socket
import struct
import time
import unittest

import cluster
import wire

LOOP = ["init", "loop:grad:50000:enough", "leave"]
SLACK = 48 * 1024
"""KiB that strangers may take for a while: 256 with a message of 64 KiB each, and what malloc keeps."""


def noise(numbers, n):
    return numbers.getrandbits(8 * n).to_bytes(n, "little")


def random_bytes(sock):
    sock.sendall(noise(random.Random(5), 100_000))


def random_after_a_header(sock):
    """Headers whose length is right, but not what follows."""
    numbers = random.Random(6)
    for _ in range(50):
        sock.sendall(wire.frame(numbers.choice((2, 3, 7, 9, 10, 32, 34)), noise(numbers, 200)))


def truncated_hello(sock):
    sock.sendall(wire.hello(wire.nonce(sock), wire.MEMBER, wire.NO_SECRET)[:-7])
    sock.shutdown(socket.SHUT_WR)


def truncated_header(sock):
    sock.sendall(wire.header(wire.HELLO, 10)[:33])
    sock.shutdown(socket.SHUT_WR)


def oversized(sock):
    sock.sendall(wire.header(wire.HELLO, 0xFFFFFFFF) + bytes(100_000))


def just_too_long(sock):
    sock.sendall(wire.header(wire.HELLO, 65537) + bytes(65537))


def long_join(sock):
    """Where that is the scheduler, who says so knows the secret."""
    sock.sendall(wire.hello(wire.nonce(sock), wire.MEMBER, wire.NO_SECRET))
    sock.sendall(wire.frame(wire.JOIN, wire.join("default")[:36] + struct.pack("<I", 0xFFFFFFF0) + b"host"))


def every_type(sock):
    """One stranger for each type of frame, known or not."""
    port = sock.getpeername()[1]
    for kind in range(64):
        with wire.connect(port) as other:
            other.sendall(wire.frame(kind, b"x" * 20, bytes=20, epoch=1, tensor=1))
            wire.drain(other)


def empty_hello(sock):
    sock.sendall(wire.header(wire.HELLO))


def future_epoch(sock):
    """A worker that is ahead waits for its generation; to say hello again and again must cost nothing."""
    port = sock.getpeername()[1]
    for _ in range(40):
        with wire.connect(port) as other:
            text = wire.hello(wire.nonce(other), wire.data(0, 0, 99))
            with contextlib.suppress(OSError):
                other.sendall(text * 10_000)
                other.shutdown(socket.SHUT_WR)
                wire.drain(other)


def http(sock):
    sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: stranger\r\nAccept: */*\r\n\r\n")


def tls(sock):
    body = b"\x03\x03" + bytes(range(32)) + b"\0" + b"\0\x02\x13\x01" + b"\x01\0" + b"\0\0"
    handshake = b"\x01" + struct.pack(">I", len(body))[1:] + body
    sock.sendall(b"\x16\x03\x01" + struct.pack(">H", len(handshake)) + handshake)


def reset(sock):
    sock.sendall(wire.header(wire.HELLO, 5000))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


ATTACKS = [
    random_bytes,
    random_after_a_header,
    truncated_hello,
    truncated_header,
    oversized,
    just_too_long,
    long_join,
    every_type,
    empty_hello,
    future_epoch,
    http,
    tls,
    reset,
]


class Case(unittest.TestCase):
    @contextlib.contextmanager
    def running(self, servers=1, proxy=False):
        """A job at work, with `ports`; at the end its sums must have been right and nothing have grown."""
        late = ("worker 1",) if proxy else ()
        settings = ["server.shards=1", "cluster.peer_timeout=60s"]
        with cluster.ByHand(LOOP, servers=servers, settings=settings, late=late) as job:
            if proxy:
                job.proxy = wire.Proxy(int(job.address.rpartition(":")[2]))
                self.addCleanup(job.proxy.close)
                job.start("worker 1", scheduler=f"127.0.0.1:{job.proxy.port}")
            for part in ("worker 0", "worker 1"):
                job.wait_for("grad runs", part)
            self.hosts = ("scheduler", "server 0" if servers else "worker 0")
            job.ports = job.watch_ports(*self.hosts)
            before = self.measure(job)
            yield job
            self.check_size(job, before)
            job.open("enough")
            for part, end in job.finish().items():
                text = cluster.show(job.now())
                self.assertEqual(end.status, 0, f"{part}\n{text}")
                if part.startswith("worker"):
                    self.assertIn("grad is right", end.out, text)

    def measure(self, job):
        pids = {part: job.pid(part) for part in self.hosts}
        return {part: (cluster.descriptors(pid), cluster.resident(pid)) for part, pid in pids.items()}

    def check_size(self, job, before):
        """Descriptors come back to what they were; memory has at most the slack."""

        def all_closed():
            return all(self.measure(job)[part][0] <= before[part][0] for part in self.hosts)

        cluster.harness.until(all_closed, "end of the strangers' connections")
        if not os.environ.get("SANITIZER"):
            for part, (_, memory) in self.measure(job).items():
                self.assertLess(memory, before[part][1] + SLACK, part)


class Attacks(Case):
    def attack(self, servers):
        with self.running(servers) as job:
            for port in job.ports:
                for attack in ATTACKS:
                    with self.subTest(f"{attack.__name__} at {port}"), wire.connect(port) as sock:
                        with contextlib.suppress(ConnectionError):
                            attack(sock)
                    for part, process in job.parts.items():
                        self.assertIsNone(process.process.poll(), f"{attack.__name__} has ended {part}")

    def test_own_server(self):
        self.attack(1)

    def test_server_in_worker_0(self):
        self.attack(0)


class Crowds(Case):
    def test_a_thousand_idle_connections(self):
        with self.running() as job:
            for port in job.ports:
                crowd = []
                try:
                    for _ in range(1000):
                        crowd.append(wire.connect(port))
                    held = max(cluster.descriptors(job.pid(part)) for part in self.hosts)
                    self.assertLess(held, 400, "strangers hold more connections than the lobby has room")
                finally:
                    for sock in crowd:
                        sock.close()

    def test_slow_writers_are_shown_out(self):
        """They write a byte now and then, or nothing, and never end; the time for a handshake ends them."""
        with self.running() as job:
            crowd = [wire.connect(port) for port in job.ports for _ in range(20)]
            text = wire.header(wire.HELLO, 200) + bytes(200)
            end = time.monotonic() + wire.TIMEOUT
            at = 0
            while crowd:
                self.assertLess(time.monotonic(), end, "slow strangers are never shown out")
                for sock in list(crowd)[::2]:
                    with contextlib.suppress(OSError):
                        sock.send(text[at : at + 1])
                crowd = [sock for sock in crowd if not self.is_closed(sock)]
                at += at < len(text) - 2
                time.sleep(0.2)

    @staticmethod
    def is_closed(sock):
        sock.setblocking(False)
        try:
            while sock.recv(4096):
                pass
        except BlockingIOError:
            return False
        except OSError:
            pass
        sock.close()
        return True

    def test_readers_that_do_not_read(self):
        """Many hellos that are refused, and nobody takes the answers."""
        with self.running() as job:
            crowd = []
            for port in job.ports:
                for _ in range(300):
                    sock = wire.connect(port)
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
                    crowd.append(sock)
                    with contextlib.suppress(OSError):
                        sock.sendall(wire.hello(wire.nonce(sock), wire.MEMBER))
            for sock in crowd:
                sock.close()


class Replay(Case):
    def test_conversation_with_the_scheduler(self):
        """What worker 1 has said to the scheduler, once more: whole, cut, and behind a fresh nonce."""
        with self.running(proxy=True) as job:
            sent = bytes(job.proxy.sent)
            self.assertIn(job.id.encode(), sent)
            length = wire.HEADER.unpack_from(sent)[0]
            for port in job.ports:
                for text in (sent, sent[: wire.HEADER.size + length], sent[:100], sent * 20):
                    with wire.connect(port) as sock, contextlib.suppress(ConnectionError):
                        sock.sendall(text)
                        sock.shutdown(socket.SHUT_WR)
                        wire.drain(sock)
            with wire.connect(job.ports[0]) as sock:
                fresh = bytearray(sent[: wire.HEADER.size + length])
                fresh[wire.HEADER.size : wire.HEADER.size + 16] = wire.nonce(sock)
                sock.sendall(fresh)
                self.assertIn(wire.FOREIGN, wire.refusal(sock))
            with wire.connect(job.ports[0]) as sock:
                wire.enter(sock, wire.join(job.id))
                self.assertIn("already complete", wire.refusal(sock))

    def test_conversation_with_a_shard(self):
        """Who has read the whole book, and even knows the secret, is not a member: it has the private key of none."""
        with self.running(proxy=True) as job:
            book = wire.book_of(bytes(job.proxy.received))
            (epoch,), keys = struct.unpack_from("<I", book), wire.public_keys(book)
            for public in (keys[-1], keys[1]):  # the server's, and that of the worker that it speaks for
                with wire.connect(job.ports[1]) as sock:
                    hello = wire.hello(wire.nonce(sock), wire.data(1, 1, epoch), wire.Identity().key(public))
                    sock.sendall(hello + wire.frame(wire.LEAVE, epoch=epoch))
                    self.assertIn(wire.FOREIGN, wire.refusal(sock))


if __name__ == "__main__":
    unittest.main()
