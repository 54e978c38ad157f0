# SPDX-License-Identifier: Apache-2.0
"""Processes that do not belong here are refused, and both sides hear why: job, version, rank, settings.

Some of them are real processes with a wrong configuration, some are only bytes.
"""

import socket
import struct
import threading
import unittest

import cluster
import wire

QUICK = ["cluster.rendezvous_timeout=2s"]
PATIENT = ["cluster.rendezvous_timeout=1h"]
LOOP = ["init", "loop:grad:5000:enough", "leave"]
LATE = ["@1:gate:late", "init", "loop:grad:5000:enough", "leave"]


def port_of(job):
    return int(job.address.rpartition(":")[2])


def runs(job):
    for part in ("worker 0", "worker 1"):
        job.wait_for("grad runs", part)


class Stranger(unittest.TestCase):
    """A wrong process next to a job; the job must not notice."""

    def ends_well(self, job, strangers=("stranger",)):
        job.open("enough")
        for part, end in job.finish().items():
            text = cluster.show(job.now())
            if part in strangers:
                self.assertEqual(end.status, 3, text)
            else:
                self.assertEqual(end.status, 0, f"{part}\n{text}")
                if part.startswith("worker"):
                    self.assertIn("grad is right", end.out, text)

    def check_both(self, job, *parts):
        """The stranger and the scheduler have said all of this."""
        own = job.wait_for("error: ", "stranger")
        its = job.wait_for("refused ", "scheduler", "err")
        for text in parts:
            self.assertIn(text, own)
            self.assertIn(text, its)
        self.assertIn(f"refused by the scheduler at {job.address} (address from ", own)


class Processes(Stranger):
    def refused(self, *parts, part="worker 1", settings=(), gathered=True):
        with cluster.ByHand(LOOP if gathered else LATE) as job:
            if gathered:
                runs(job)
            else:
                job.wait_for("at late", "worker 1")
            job.start(part, name="stranger", settings=settings, steps=["init"])
            self.check_both(job, *(text.format(job=job) for text in parts))
            if not gathered:
                job.open("late")
            self.ends_well(job)

    def test_other_job(self):
        words = ("this scheduler is for job '{job.id}'", "belongs to job 'another'; check cluster.job")
        for gathered in (False, True):
            self.refused(*words, settings=["cluster.job=another"], gathered=gathered)

    def test_other_configuration(self):
        for setting, ours, theirs in (
            ("worker.partition=1MiB", 'worker.partition = "4 MiB"', 'worker.partition = "1 MiB"'),
            ("worker.slice=64KiB", 'worker.slice = "48 KiB"', 'worker.slice = "64 KiB"'),
            ("cluster.workers=3", "cluster.workers = 2", "cluster.workers = 3"),
        ):
            with self.subTest(setting):
                self.refused("the configurations differ: ", ours, theirs, settings=[setting], gathered=False)

    def test_rank_taken_while_gathering(self):
        with cluster.ByHand(LATE, settings=["log.level=debug"]) as job:
            job.wait_joined("worker 0")
            job.start("worker 0", name="stranger", steps=["init"])
            taken = f"rank 0 is taken by worker 0 (host {socket.gethostname()[:60]}"
            self.check_both(job, taken, "requests it, too")
            job.open("late")
            self.ends_well(job)

    def test_one_more_in_a_complete_job(self):
        self.refused("job '{job.id}' is already complete")

    def test_one_more_where_the_job_may_go_on(self):
        with cluster.ByHand(LOOP, settings=["cluster.stay=true"]) as job:
            runs(job)
            job.start("worker 1", name="stranger", steps=["init"])
            self.check_both(job, "rank 1 is taken by worker 1 (host ", "requests it, too; check cluster.rank")
            job.open("enough")
            for part in ("worker 0", "worker 1"):
                job.wait_for("left", part)


class Restarted(unittest.TestCase):
    """A worker that was killed and comes again."""

    def test_while_gathering(self):
        """Those who wait hear of it at once, so that it comes too late, as do those who were still missing."""
        extra = {"worker 1": QUICK}
        with cluster.ByHand(LATE, settings=[*PATIENT, "log.level=debug"], extra=extra) as job:
            for part in ("worker 0", "server 0"):
                job.wait_joined(part)
            job.kill("worker 0")
            job.wait_for("was lost", "scheduler", "err")
            job.start("worker 0", name="worker 0 again", settings=QUICK)
            job.open("late")
            ends = job.finish()
            text = cluster.show(ends)
            for part in ("scheduler", "server 0"):
                self.assertRegex(ends[part].text, r"worker 0 \(host .*\) was lost", text)
            for part in ("worker 0 again", "worker 1"):
                self.assertEqual(ends[part].status, 3, text)
                self.assertRegex(ends[part].out, "is over|did not start within 2 s: waiting for the scheduler", text)

    def test_server_before_the_first_worker(self):
        """Nobody waits for it yet, so that its successor is let in."""
        late = ("worker 0", "worker 1")
        with cluster.ByHand(LOOP, settings=["log.level=debug"], late=late) as job:
            job.wait_joined("server 0")
            job.kill("server 0")
            job.wait_for("still waiting for the job to start", "scheduler", "err")
            job.start("server 0", name="server 0 again")
            for part in late:
                job.start(part)
            job.open("enough")
            for part, end in job.finish().items():
                self.assertEqual(end.status, -9 if part == "server 0" else 0, cluster.show(job.now()))

    def test_while_it_runs(self):
        """Its successor comes before anybody has noticed."""
        with cluster.ByHand(LOOP, settings=[*QUICK, "cluster.peer_timeout=30s"]) as job:
            runs(job)
            job.stop("scheduler")
            job.kill("worker 1")
            job.start("worker 1", name="worker 1 again")
            job.go_on("scheduler")
            ends = job.finish()
            text = cluster.show(ends)
            for part in ("scheduler", "server 0", "worker 0"):
                self.assertGreater(ends[part].status, 0, text)
                self.assertRegex(ends[part].text, r"worker 1 \(host .*\) was lost", text)
            self.assertEqual(ends["worker 1 again"].status, 3, text)
            self.assertRegex(ends["worker 1 again"].out, "is already complete|is over|did not start", text)

    def test_that_is_let_in_as_the_job_ends(self):
        """It hears that, although all others have hung up before it says who it is."""
        with cluster.ByHand(LOOP) as job, wire.connect(port_of(job)) as sock:
            runs(job)
            sock.sendall(wire.hello(wire.nonce(sock), wire.MEMBER, wire.NO_SECRET))
            self.assertEqual(wire.read_frame(sock)[0], wire.WELCOME)
            job.kill("worker 1")
            for part in ("server 0", "worker 0"):
                job.wait_for("was lost", part, "any")
                job.parts[part].process.wait()
            sock.sendall(wire.frame(wire.JOIN, wire.join(job.id)))
            self.assertRegex(wire.refusal(sock), "^job .* is over")
            job.finish()


class Bytes(Stranger):
    """Handshakes that no process of this version makes."""

    def test_other_library(self):
        """The wire may be the same, and the sums not."""
        with cluster.ByHand(LATE) as job:
            job.wait_for("at late", "worker 1")
            with wire.connect(port_of(job)) as sock:
                loaded = f"library byteps\t8.7.6 format {wire.VERSION}\t/opt/lib/libbyteps.so\n"
                wire.enter(sock, wire.join(job.id, loaded=loaded))
                text = wire.refusal(sock)
            ours = rf"library byteps is \d\S+ format {wire.VERSION} on host \S+ \(/\S+\)"
            theirs = rf"8.7.6 format {wire.VERSION} on host elsewhere \(/opt/lib/libbyteps.so\)"
            self.assertRegex(text, f"^the versions differ: {ours}, but {theirs}; install the same on all hosts$")
            job.open("late")
            self.ends_well(job, ())

    def test_no_proof(self):
        with cluster.ByHand(LOOP, settings=["server.shards=1"]) as job:
            runs(job)
            (port,) = job.watch_ports("server 0")
            for rest, words in (
                (wire.data(0, 1, 1), wire.FOREIGN),
                (wire.data(7, 0, 1), wire.FOREIGN),
                (wire.data(0, 0, 0), wire.FOREIGN),
                (wire.data(0, 64, 1), ""),
                (wire.MEMBER, ""),
            ):
                with self.subTest(rest), wire.connect(port) as sock:
                    sock.sendall(wire.hello(wire.nonce(sock), rest))
                    text = wire.refusal(sock)
                    self.assertTrue(text.startswith(words) if words else text == "", text)
            with wire.connect(port_of(job)) as sock:
                sock.sendall(wire.hello(wire.nonce(sock), wire.MEMBER, b"another secret"))
                self.assertTrue(wire.refusal(sock).startswith(wire.FOREIGN))
            self.ends_well(job, ())

    def test_wrong_nonce(self):
        with cluster.ByHand(LOOP, settings=["server.shards=1"]) as job:
            runs(job)
            for port in [port_of(job), *job.watch_ports("server 0")]:
                with self.subTest(port), wire.connect(port) as sock:
                    wire.nonce(sock)
                    sock.sendall(wire.hello(bytes(16), wire.MEMBER, wire.NO_SECRET))
                    self.assertEqual(wire.refusal(sock), "")
            self.ends_well(job, ())


class Impostor(unittest.TestCase):
    """What a worker finds at the scheduler's address is no scheduler of its version."""

    def meet(self, answer, *words, welcomed=False):
        """One worker dials a listener that says `answer`, perhaps after a proper welcome."""
        listener = socket.create_server(("127.0.0.1", 0))
        listener.settimeout(wire.TIMEOUT)

        def serve():
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=talk, args=(sock,), daemon=True).start()

        def talk(sock):
            try:
                if welcomed:
                    wire.let_in(sock)
                sock.sendall(answer)
                wire.drain(sock)
            except (OSError, EOFError):
                pass

        threading.Thread(target=serve, daemon=True).start()
        port = listener.getsockname()[1]
        try:
            with cluster.ByHand(["init"], settings=QUICK, late=("worker 0", "worker 1", "server 0")) as job:
                job.kill("scheduler")
                job.start("worker 0", scheduler=f"127.0.0.1:{port}")
                end = job.finish()["worker 0"]
            self.assertEqual(end.status, 3, end)
            for text in words:
                self.assertIn(text.format(port=port), end.out)
        finally:
            listener.close()

    def test_other_version(self):
        """Its headers may have any size."""
        other = wire.VERSION + 1
        words = (f" uses wire version {wire.VERSION}, byteps 7.0.0 uses {other}", "install the same version on all")
        for header_bytes in (80, 96, 128):
            with self.subTest(header_bytes):
                self.meet(wire.challenge(other, "7.0.0", header_bytes), *words)

    def test_web_server(self):
        words = ("did not start within 2 s", "waiting for the scheduler at 127.0.0.1:{port}")
        self.meet(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" * 3, *words)

    def test_silence(self):
        words = "did not start within 2 s: waiting for the scheduler at 127.0.0.1:{port}: the process that listens"
        self.meet(b"", words)

    def test_wrong_messages(self):
        book = wire.book_head(4_000_000_000)
        book_of_two = wire.book_head(1)
        book_of_two += wire.book_member(host="x" * 64) + wire.book_shards("127.0.0.1:1")
        cases = {
            "cut ASSIGN": wire.frame(wire.ASSIGN, b"\0\0\0"),
            "huge BOOK": wire.frame(wire.BOOK, book),
            "BOOK with a long name": wire.frame(wire.BOOK, book_of_two),
            "longer than any message": wire.header(wire.BOOK, 0xFFFFFFFF),
            "a slice": wire.frame(wire.RESULT, bytes(64), bytes=64, epoch=1),
            "DECLARED unasked": wire.frame(wire.DECLARED, struct.pack("<I", 1)),
            "a second WELCOME": wire.frame(wire.WELCOME),
            "unknown type": wire.frame(99),
        }
        text = "the scheduler at 127.0.0.1:{port} was lost: it sent "
        meetings = {}
        for name, answer in cases.items():
            meetings[name] = lambda a=answer: self.meet(a, text, welcomed=True)
        cluster.side_by_side(self, meetings)

    def test_assigned_and_ended(self):
        """A scheduler that only says LEFT, or gives a rank that its book does not have."""
        book = wire.book_head(1) + wire.book_member() + wire.book_shards("127.0.0.1:1")
        rank_9 = wire.frame(wire.ASSIGN, struct.pack("<IIIBB", 9, 0, 1, 0, 0)) + wire.frame(wire.BOOK, book)
        cluster.side_by_side(
            self,
            {
                "END": lambda: self.meet(wire.frame(15), "the scheduler ended the job", welcomed=True),
                "rank 9": lambda: self.meet(rank_9, "membership", welcomed=True),
                "no such shard": lambda: self.meet(
                    wire.frame(wire.ASSIGN, struct.pack("<IIIBB", 0, 0, 1, 0, 0)) + wire.frame(wire.BOOK, book),
                    "the server of worker 0 at 127.0.0.1:1 was lost: ",
                    welcomed=True,
                ),
            },
        )


class Views(unittest.TestCase):
    """A server whose shard is gone in the second view, as a scheduler and a worker of ours tell it."""

    def book(self, view, keys, address):
        """A worker, the server, and another one that has all of the weight in the second view."""
        worker, server, other = keys
        book = wire.book_head(3, view) + wire.book_member(public_key=worker)
        book += wire.book_member(role=1, public_key=server)
        book += wire.book_member(role=1, rank=1, group=1, public_key=other)
        gone = view > 1
        book += struct.pack("<IIIIB", 2, 1, not gone, not gone, gone) + wire.string(address) + wire.string("")
        book += struct.pack("<IIIB", 2, 1, 1, 0) + wire.string("127.0.0.1:1") + wire.string("")
        return wire.frame(wire.BOOK, book)

    def serve(self, scheduler, own):
        """Lets the server in. Returns the keys of all, and the port of its shard."""
        wire.let_in(scheduler)
        kind, join = wire.read_frame(scheduler)
        self.assertEqual(kind, wire.JOIN)
        at = struct.calcsize("<IiiiiQIII")
        for _ in range(3):
            at += 4 + struct.unpack_from("<I", join, at)[0]
        scheduler.sendall(wire.frame(wire.ASSIGN, struct.pack("<IIIBB", 0, 0, 1, 1, 0)))
        kind, endpoints = wire.read_frame(scheduler)
        self.assertEqual(kind, wire.ENDPOINTS)
        (length,) = struct.unpack_from("<I", endpoints, 4)
        return (own.public, join[at : at + 32], wire.Identity().public), endpoints[8 : 8 + length].decode()

    def work(self, address, own, server):
        """A worker at the shard."""
        sock = wire.connect(int(address.rpartition(":")[2]))
        sock.sendall(wire.hello(wire.nonce(sock), wire.data(0, 0, 1), own.key(server)))
        self.assertEqual(wire.read_frame(sock)[0], wire.WELCOME)
        return sock

    def push(self, sock, number, view):
        fields = {"dtype": 4, "epoch": 1, "tensor": 1, "bytes": 8, "size": 8, "round": number, "view": view}
        sock.sendall(wire.frame(wire.PUSH, bytes(8), **fields))

    def check_summed(self, sock, number, view):
        self.push(sock, number, view)
        self.assertEqual(wire.read_frame(sock), (wire.RESULT, bytes(8)))

    def check_ended(self, sock):
        with self.assertRaises((EOFError, ConnectionError)):
            wire.read_frame(sock)
        sock.close()

    def test_a_round_of_a_view_without_the_shard(self):
        own = wire.Identity()
        with socket.create_server(("127.0.0.1", 0)) as listener, cluster.ByHand(
            ["init"], settings=["server.shards=1", "log.level=info"], late=("worker 0", "worker 1", "server 0")
        ) as job:
            job.kill("scheduler")
            job.start("server 0", scheduler=f"127.0.0.1:{listener.getsockname()[1]}")
            with listener.accept()[0] as scheduler:
                keys, address = self.serve(scheduler, own)
                scheduler.sendall(self.book(1, keys, address))
                sock = self.work(address, own, keys[1])
                self.check_summed(sock, 0, 1)
                self.check_summed(sock, 1, 2)  # nobody has told the shard of this one
                scheduler.sendall(self.book(2, keys, address))
                job.wait_for("view 2", "server 0", "err")
                self.check_summed(sock, 2, 1)
                self.push(sock, 3, 2)
                self.check_ended(sock)
                with self.work(address, own, keys[1]) as sock:
                    sock.sendall(wire.frame(wire.POISON, b"no", epoch=1, tensor=1, round=3, bytes=8, size=8, view=7))
                    self.check_ended(sock)
                for view in (2, 7):
                    text = f"worker 0 sent a round of view {view}, but this shard has no tensors since view 2"
                    job.wait_for(text, "server 0", "err")
                scheduler.sendall(wire.frame(15))
                self.assertEqual(job.finish()["server 0"].status, 0)


if __name__ == "__main__":
    unittest.main()
