# SPDX-License-Identifier: Apache-2.0
"""What the workers of a host say to each other about their devices, said wrong: by the wrong one, at the wrong time,
of something that is not there, cut, too long, twice.

One worker is real, with stand-ins for the driver and for NCCL (tests/gpu/standin); the other one is this file, which
belongs to the job and can do all that a worker does. Whatever it says, the real one ends with an error, or goes on
through the host.
"""

import contextlib
import ctypes
import mmap
import os
import socket
import struct
import unittest

import cluster
import scripted
import test_cuda_group
import test_local
import wire

if os.environ.get("SANITIZER") == "thread":
    raise unittest.SkipTest("the real worker ends without leaving, and a thread that has ended counts as a leak")
cluster.HIERARCHY = "on"
scripted.require("numpy")
os.environ.update(test_cuda_group.environment())
SETTINGS = ["worker.use=cuda", "log.level=info", "cluster.peer_timeout=60s", "cluster.colocated=none"]
SETTINGS += ["server.shards=1"]
EPOCH, TENSOR, BYTES = 1, 1, 400_000
"""Of the only tensor, which `lose_a_batch` pushes: one partition of float32."""
FLOAT32 = 0
REDUCE, CAST, ALL_REDUCE = 0, 1, 2
BREACH = "was lost: it sent (a message|bytes) that the protocol does not allow"
DISORDER = "the coordinator sent an invalid order"


# ---- a worker by hand


def join(job, real, rank, local, identity, host=None):
    """Joins the job as a worker, on the same host as the real one or on another; returns the socket."""

    def said():
        stream, at = bytes(job.proxy.sent), 0
        while at + wire.HEADER.size <= len(stream):
            length, kind = wire.HEADER.unpack_from(stream, at)[:2]
            at += wire.HEADER.size + length
            if kind == wire.JOIN and at <= len(stream):
                return stream[at - length : at]
        return None

    text = cluster.harness.until(said, f"JOIN of {real}")
    numbers = struct.Struct("<IiiiiQIII")
    role, _, *rest = numbers.unpack_from(text)
    rest[3] += host is not None  # the number of the host
    at, strings = numbers.size, []
    for number in range(5):
        at += 32 * (number == 3)  # the public key
        (length,) = struct.unpack_from("<I", text, at)
        strings.append(text[at + 4 : at + 4 + length])
        at += 4 + length
    sock = wire.connect(job.proxy.target)
    own = numbers.pack(role, rank, *rest) + b"".join(map(wire.string, (host or strings[0], strings[1], local)))
    wire.enter(sock, own + identity.public + b"".join(map(wire.string, strings[3:])))
    job.by_hand.append(sock)
    return sock


def keys_from(sock):
    """The public keys of all members, when all have joined."""
    kind, book = wire.read_frame(sock)
    while kind != wire.BOOK:
        kind, book = wire.read_frame(sock)
    return wire.public_keys(book)


class Follower(test_local.Visitor):
    """Worker 1, which has dialled worker 0, the coordinator."""

    REAL, RANK = "worker 0", 1

    def __init__(self, job):
        identity = wire.Identity()
        self.member = join(job, self.REAL, self.RANK, f"@byteps-test-{job.id}", identity)  # which nobody dials
        key = identity.key(keys_from(self.member)[0])
        super().__init__(job.watch_name(self.REAL))
        nonce = self.open().nonce()
        self.put(wire.hello(nonce, wire.local(1, EPOCH), key))
        self.expect(wire.WELCOME)

    def __exit__(self, *args):
        super().__exit__(*args)
        self.member.close()

    def say(self, kind, payload=b"", **fields):
        """A frame that fits the tensor's first round, but for the fields."""
        known = {"epoch": EPOCH, "tensor": TENSOR, "bytes": BYTES, "dtype": FLOAT32, "op": 0}
        self.put(wire.frame(kind, payload, **{**known, **fields}))

    def expect(self, kind):
        """The payload of the next frame, which is of this kind."""
        found = wire.PING
        while found == wire.PING:
            found, payload = self.get()
        if found != kind:
            raise AssertionError(f"frame {found} instead of {kind}: {payload!r}")
        return payload


class Coordinator(Follower):
    """Worker 0, which worker 1 has dialled."""

    REAL, RANK = "worker 1", 0
    OWN, ITS = test_local.Visitor.ITS, test_local.Visitor.OWN

    def __init__(self, job):
        name = f"@byteps-test-{job.id}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.settimeout(wire.TIMEOUT)
            listener.bind("\0" + name[1:])
            listener.listen()
            identity = wire.Identity()
            self.member = join(job, self.REAL, self.RANK, name, identity)
            self.sock, _ = listener.accept()
        key = identity.key(keys_from(self.member)[1])
        self.sock.settimeout(wire.TIMEOUT)
        self.fds, self.shared = [], None
        self.head = self.tail = 0
        self.welcome(key)

    def welcome(self, key):
        """The handshakes, as who is dialled; and the first READY."""
        _, rights, _, _ = self.sock.recvmsg(test_local.MESSAGE.size, socket.CMSG_SPACE(8))
        memory, self.bell = struct.unpack("ii", rights[0][2])
        self.shared = mmap.mmap(memory, test_local.PAGE + 2 * test_local.RING)
        self.fds += [memory, self.bell]
        self.send(test_local.message(test_local.WELCOME), test_local.event())
        self.sock.recv(test_local.MESSAGE.size)
        self.put(wire.challenge())
        self.put(wire.welcome(key, bytes(16), self.expect(wire.HELLO)))
        self.expect(wire.READY)


# ---- a device by hand


class Name(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


class Config(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("blocking", ctypes.c_int),
    ]


class Communicator:
    """The place of the worker by hand among the devices, where it takes part in nothing."""

    def __init__(self, rank):
        folder = os.path.join(test_cuda_group.STANDINS, "%s.libs", "lib%s")
        self.cuda = ctypes.CDLL(folder % ("", "cuda.so.1"), ctypes.RTLD_GLOBAL)
        self.nccl = ctypes.CDLL(folder % ("nccl/", "nccl.so.2"))
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.cuda.cuInit(0)
        self.cuda.cuDeviceGet(ctypes.byref(device), rank)
        self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        self.cuda.cuCtxPushCurrent_v2(context)
        self.rank, self.communicator = rank, ctypes.c_void_p()

    @property
    def identity(self):
        text = ctypes.create_string_buffer(16)
        self.cuda.cuDeviceGetUuid(text, self.rank)
        return text.raw

    def name(self):
        name = Name()
        self.nccl.ncclGetUniqueId(ctypes.byref(name))
        return bytes(name)

    def join(self, name):
        config = Config(ctypes.sizeof(Config), 0xCAFEBEEF, 21400, 0)
        arguments = (ctypes.byref(self.communicator), 2, Name.from_buffer_copy(name), self.rank, ctypes.byref(config))
        self.nccl.ncclCommInitRankConfig(*arguments)

    def abort(self):
        if self.communicator:
            self.nccl.ncclCommAbort(self.communicator)


class Case(unittest.TestCase):
    def setUp(self):
        if not os.path.exists(os.path.join(test_cuda_group.STANDINS, "nccl", ".libs")):
            self.skipTest("the stand-ins have not been built")

    @contextlib.contextmanager
    def meet(self, kind, workers=2):
        """A job of a real worker and one by hand, and of a third one on another host that never says a word."""
        how = {"workers": workers, "settings": SETTINGS, "worker": scripted.script("cuda_ops.py")}
        late = [f"worker {rank}" for rank in range(workers)]
        with cluster.ByHand(["lose_a_batch"], late=late, **how) as job:
            job.proxy, job.by_hand = wire.Proxy(int(job.address.rpartition(":")[2])), []
            # Where there are sanitizers: their library first, which an import has removed; and Python itself leaks.
            preload = cluster.harness.environ(os.getpid()).get("LD_PRELOAD", "")
            job.env.update(LD_PRELOAD=preload, ASAN_OPTIONS="detect_leaks=0")
            device = Communicator(kind.RANK)
            with contextlib.ExitStack() as at_end:
                at_end.callback(job.proxy.close)
                at_end.callback(device.abort)
                job.start(kind.REAL, scheduler=f"127.0.0.1:{job.proxy.port}")
                if workers == 3:
                    at_end.enter_context(join(job, kind.REAL, 2, "", wire.Identity(), host="elsewhere"))
                peer = at_end.enter_context(kind(job))
                peer.device = device
                yield job, peer

    def check_end(self, kind, attack, words, workers):
        """The real worker has heard it, and says so as the error of its operation."""
        with self.meet(kind, workers) as (job, peer):
            attack(peer)
            line = job.wait_for("failed: ", kind.REAL)
            self.assertIn("'byteps.batch'", line)
            self.assertRegex(line, words)
            for sock in job.by_hand:
                sock.close()  # else the scheduler waits for those who do not hang up
            ends = job.finish()
            self.assertEqual(ends[kind.REAL].status, 3, cluster.show(ends))

    def check_ends(self, kind, attacks, words, workers=2):
        def case(attack):
            return lambda: self.check_end(kind, attack, words, workers)

        cluster.side_by_side(self, {name: case(attack) for name, attack in attacks.items()})


# ---- at the coordinator


def ready(peer, **fields):
    """READY of the round that worker 0 has begun, or is about to."""
    peer.say(wire.READY, peer.device.identity, **fields)


def forming(peer):
    """Both have said READY, and worker 0 has named the group."""
    ready(peer)
    return peer.expect(wire.FORM)


def together(peer):
    """There is a group, and the first batch has been ordered."""
    peer.device.join(forming(peer))
    peer.say(wire.JOINED)
    peer.expect(wire.ORDER)


AT_ANY_TIME = {
    "HOST": lambda p: p.say(wire.HOST),
    "FORM": lambda p: p.say(wire.FORM, bytes(128)),
    "ORDER": lambda p: p.say(wire.ORDER, struct.pack("<BIII", ALL_REDUCE, TENSOR, 0, 0)),
    "READY of five bytes": lambda p: p.say(wire.READY, b"12345"),
    "READY of 17 bytes": lambda p: p.say(wire.READY, bytes(17)),
    "READY twice": lambda p: (p.say(wire.READY, round=7), p.say(wire.READY, round=7)),
    "READY of no tensor": lambda p: ready(p, tensor=0),
    "READY of a barrier": lambda p: ready(p, tensor=0xC0000001),
    "READY of an unknown type": lambda p: ready(p, dtype=77),
    "READY of an unknown operation": lambda p: ready(p, op=77),
    "READY of too many bytes": lambda p: ready(p, bytes=1 << 60),
    "READY of half an element": lambda p: ready(p, bytes=BYTES + 1),
    "READY of another epoch": lambda p: ready(p, epoch=EPOCH + 1),
    "READY of an exchange": lambda p: ready(p, flags=4),
    "JOINED": lambda p: p.say(wire.JOINED),
    "JOINED with a text": lambda p: p.say(wire.JOINED, b"no device"),
    "FETCHED": lambda p: p.say(wire.FETCHED),
    "FETCHED of an unknown tensor": lambda p: p.say(wire.FETCHED, tensor=99),
    "FETCHED of an unknown partition": lambda p: p.say(wire.FETCHED, partition=1 << 31),
    "FETCHED of another epoch": lambda p: p.say(wire.FETCHED, epoch=0),
    "SEPARATE of another epoch": lambda p: p.say(wire.SEPARATE, b"no device", epoch=9),
}
WHILE_FORMING = {
    "JOINED twice": lambda p: (p.say(wire.JOINED), p.say(wire.JOINED)),
    "READY twice": ready,
    "FORM": lambda p: p.say(wire.FORM, bytes(128)),
    "FETCHED": lambda p: p.say(wire.FETCHED),
}
TOGETHER = {
    "SEPARATE": lambda p: p.say(wire.SEPARATE, b"no device"),
    "JOINED": lambda p: p.say(wire.JOINED),
    "JOINED with a text": lambda p: p.say(wire.JOINED, b"no device"),
    "FETCHED": lambda p: p.say(wire.FETCHED),
    "FETCHED with a payload": lambda p: p.say(wire.FETCHED, b"x"),
    "ORDER": lambda p: p.say(wire.ORDER, struct.pack("<BIII", ALL_REDUCE, TENSOR, 0, 0)),
}


BEHIND_A_REDUCE = {
    "FETCHED": lambda p: p.say(wire.FETCHED),
    "FAILED": lambda p: p.say(wire.FAILED, b"no network", root=8),
    "STALLED": lambda p: p.say(wire.STALLED, b"no network"),
}
"""What only the leader of the partition may say, which is worker 0."""


class AtTheCoordinator(Case):
    def test_at_any_time(self):
        self.check_ends(Follower, AT_ANY_TIME, BREACH)

    def test_while_the_group_forms(self):
        attacks = {name: lambda p, a=attack: (forming(p), a(p)) for name, attack in WHILE_FORMING.items()}
        self.check_ends(Follower, attacks, BREACH)

    def test_when_there_is_a_group(self):
        attacks = {name: lambda p, a=attack: (together(p), a(p)) for name, attack in TOGETHER.items()}
        self.check_ends(Follower, attacks, BREACH)

    def test_what_a_leader_says(self):
        attacks = {name: lambda p, a=attack: (together(p), a(p)) for name, attack in BEHIND_A_REDUCE.items()}
        self.check_ends(Follower, attacks, BREACH, workers=3)

    def test_no_group(self):
        """Who cannot join says so in any words, and all go through the host. READY is answered from then on."""
        words = b"no\ndevice" + bytes([127]) + b"x" * 5000
        for name, attack in {
            "SEPARATE": lambda p: p.say(wire.SEPARATE, words),
            "JOINED": lambda p: (forming(p), p.say(wire.JOINED, words)),
        }.items():
            with self.subTest(name), self.meet(Follower) as (job, peer):
                attack(peer)
                line = job.wait_for(test_cuda_group.ON_HOST, Follower.REAL, "err")
                self.assertIn(f"{test_cuda_group.ON_HOST}worker 1: no?device?xxx", line)
                peer.expect(wire.SEPARATE)
                peer.say(wire.READY, round=1)
                self.assertTrue(peer.expect(wire.SEPARATE).startswith(b"worker 1: no?device?xxx"))
                peer.say(wire.SEPARATE, words)
                peer.say(wire.JOINED)
                peer.say(wire.HOST)
                self.assertRegex(job.wait_for("failed: ", Follower.REAL), BREACH)

    def test_other_rounds(self):
        """A round of another size goes through the host, and an unknown one waits for nobody."""
        with self.meet(Follower) as (job, peer):
            ready(peer, tensor=4000)
            ready(peer, round=4000)
            ready(peer, bytes=BYTES - 4)
            peer.expect(wire.HOST)
            peer.say(wire.FETCHED)
            self.assertRegex(job.wait_for("failed: ", Follower.REAL), BREACH)


# ---- at another worker


def order(*steps):
    return b"".join(struct.pack("<BIII", *step) for step in steps)


FIRST = (ALL_REDUCE, TENSOR, 0, 0)
FROM_A_FOLLOWER = {
    "READY": ready,
    "JOINED": lambda p: p.say(wire.JOINED),
    "FETCHED": lambda p: p.say(wire.FETCHED),
    "FORM of 127 bytes": lambda p: p.say(wire.FORM, bytes(127)),
    "FORM of 129 bytes": lambda p: p.say(wire.FORM, bytes(129)),
    "FORM twice": lambda p: [p.say(wire.FORM, p.device.name()) for _ in range(2)],
    "FORM of another epoch": lambda p: p.say(wire.FORM, bytes(128), epoch=0),
    "HOST with a payload": lambda p: p.say(wire.HOST, b"x"),
    "ORDER before FORM": lambda p: p.say(wire.ORDER, order(FIRST)),
    "ORDER before all have joined": lambda p: (p.say(wire.FORM, p.device.name()), p.say(wire.ORDER, order(FIRST))),
}
EMPTY_ORDERS = {
    "empty": b"",
    "twelve bytes": order(FIRST)[:12],
    "65 steps": order(*[FIRST] * 65),
}
ORDERS = {
    "cut": order(FIRST, FIRST)[:20],
    "too long": order(FIRST) + b"x",
    "unknown step": order((77, TENSOR, 0, 0)),
    "step of other jobs": order((REDUCE, TENSOR, 0, 0)),
    "broadcast first": order((CAST, TENSOR, 0, 0)),
    "broadcast behind": order(FIRST, (CAST, TENSOR, 0, 0)),
    "no tensor": order((ALL_REDUCE, 0, 0, 0)),
    "unknown tensor": order((ALL_REDUCE, 99, 0, 0)),
    "unnamed tensor": order((ALL_REDUCE, 0x80000001, 0, 0)),
    "barrier": order((ALL_REDUCE, 0xC0000001, 0, 0)),
    "unknown partition": order((ALL_REDUCE, TENSOR, 1, 0)),
    "huge partition": order((ALL_REDUCE, TENSOR, 0xFFFFFFFF, 0)),
    "another round": order((ALL_REDUCE, TENSOR, 0, 1)),
    "twice": order(FIRST, FIRST),
}


def grouped(peer):
    """Worker 1 has joined the group."""
    name = peer.device.name()
    peer.say(wire.FORM, name)
    peer.device.join(name)
    peer.expect(wire.JOINED)


def ordered(payload, *before):
    """What gives worker 1 orders, one by one."""

    def attack(peer):
        grouped(peer)
        for each in (*before, payload):
            peer.say(wire.ORDER, each)

    return attack


class FromTheCoordinator(Case):
    def test_at_the_wrong_time(self):
        self.check_ends(Coordinator, FROM_A_FOLLOWER, BREACH)

    def test_orders_of_no_size(self):
        self.check_ends(Coordinator, {name: ordered(text) for name, text in EMPTY_ORDERS.items()}, BREACH)

    def test_orders(self):
        self.check_ends(Coordinator, {name: ordered(text) for name, text in ORDERS.items()}, DISORDER)

    def test_an_order_behind_another(self):
        """The device works on the first one, which never ends, when the second one is refused."""
        attacks = {"twice": ordered(order(FIRST), order(FIRST)), "unknown": ordered(order((9, 9, 9, 9)), order(FIRST))}
        self.check_ends(Coordinator, attacks, DISORDER)

    def test_separate_while_the_device_works(self):
        """What was ordered is awaited; it ends with the job."""
        with self.meet(Coordinator) as (job, peer):
            ordered(order(FIRST))(peer)
            peer.say(wire.SEPARATE, b"no device")
            job.wait_for(f"{test_cuda_group.ON_HOST}no device", Coordinator.REAL, "err")
            peer.say(wire.SEPARATE, b"no device")
            peer.say(wire.FORM, bytes(128))
            peer.say(wire.HOST)
            peer.say(wire.ORDER, order(FIRST))
            self.assertIn(DISORDER, job.wait_for("failed: ", Coordinator.REAL))


if __name__ == "__main__":
    unittest.main()
