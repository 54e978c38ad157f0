# SPDX-License-Identifier: Apache-2.0
"""The wire, as far as strangers need it: frames, the handshake, a proxy that records a conversation."""

import hashlib
import hmac
import os
import socket
import struct
import threading

HEADER = struct.Struct("<IBBBBIIQIIIIddiIII8xIIQ")
GREETING = b"BytePS\r\n"
CHALLENGE, HELLO, WELCOME, REFUSE, PING, LEAVE = 1, 2, 3, 4, 5, 6
ASSIGN, ENDPOINTS, BOOK, DECLARE, DECLARED, WAITING = 7, 8, 9, 10, 11, 12
CHANGE, CHANGED, FORGET, JOIN = 16, 17, 18, 19
PUSH, RESULT, POISON, FAILED, STALLED = 32, 33, 34, 35, 36
READY, HOST, FORM, JOINED, ORDER, FETCHED, SEPARATE = 38, 39, 40, 41, 42, 43, 44
CODING, FEEDBACK = 45, 46
VERSION = 18
TIMEOUT = 60
FOREIGN = "authentication failed"
"""What a stranger is told, whatever it says."""
NO_SECRET = bytes(32)
"""Stands for the secret in jobs without one."""


def header(kind, length=0, **fields):
    """A frame's header."""
    names = ("flags", "dtype", "op", "epoch", "tensor", "bytes", "partition", "round", "offset", "root")
    names += ("prescale", "postscale", "priority", "zero", "size", "slice", "view", "group", "checksum")
    values = {**dict.fromkeys(names, 0), "prescale": 1.0, "postscale": 1.0, **fields}
    return HEADER.pack(length, kind, *(values[name] for name in names))


def frame(kind, payload=b"", **fields):
    return header(kind, len(payload), **fields) + payload


def string(text):
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<I", len(data)) + data


def connect(port):
    return socket.create_connection(("127.0.0.1", port), TIMEOUT)


def read(sock, n):
    """Exactly n bytes; EOFError if the peer closes before."""
    data = b""
    while len(data) < n:
        more = sock.recv(n - len(data))
        if not more:
            raise EOFError(f"closed after {len(data)} of {n} bytes")
        data += more
    return data


def read_frame(sock):
    """(type, payload)"""
    fields = HEADER.unpack(read(sock, HEADER.size))
    return fields[1], read(sock, fields[0])


def nonce(sock):
    """The nonce of the challenge that every acceptor sends first."""
    kind, payload = read_frame(sock)
    if kind != CHALLENGE:
        raise AssertionError(f"no challenge but {kind}: {payload!r}")
    return payload[:16]


def claim(purpose, rank=0, epoch=0, lane=0):
    """Who a dialler says that it is, in a HELLO."""
    return struct.pack("<BIII", purpose, epoch, rank, lane)


MEMBER = claim(1)
"""To the scheduler."""


def data(rank, lane, epoch):
    """To a shard."""
    return claim(2, rank, epoch, lane)


def local(rank, epoch):
    """To another worker of the host."""
    return claim(3, rank, epoch)


def prove(key, end, challenge, response, own_claim):
    """The proof of the dialler (1) or the acceptor (2)."""
    return hmac.new(key, bytes([end]) + challenge + response + own_claim, hashlib.sha256).digest()


def hello(challenge, own_claim, key=None):
    """With a proof that the key is known, if there is one."""
    response = os.urandom(16)
    proof = bytes(32) if key is None else prove(key, 1, challenge, response, own_claim)
    return frame(HELLO, challenge + response + own_claim + proof)


def welcome(key, challenge, hello_payload):
    """The WELCOME that answers a HELLO."""
    response, own_claim = hello_payload[-61:-45], hello_payload[-45:-32]
    return frame(WELCOME, prove(key, 2, challenge, response, own_claim))


BEGINNING = struct.Struct("<IB3xI4x8s32s")
"""Of a CHALLENGE of any version: length, type, version, greeting, software."""


def challenge(version=VERSION, software="9.9.9", header_bytes=HEADER.size):
    """The CHALLENGE of an acceptor, whose headers may have another size."""
    begin = BEGINNING.pack(256 - header_bytes, CHALLENGE, version, GREETING, software.encode())
    return begin + bytes(256 - len(begin))


def let_in(sock, key=NO_SECRET):
    """The handshake of an acceptor."""
    sock.sendall(challenge())
    sock.sendall(welcome(key, bytes(16), read_frame(sock)[1]))


def join(job, agreement="", role=0, rank=-1, host="elsewhere", local="", public_key=bytes(32), loaded=""):
    """The payload of a JOIN."""
    numbers = struct.pack("<IiiiiQIII", role, rank, -1, -1, -1, 7, 4711, 0, 0)
    return numbers + string(host) + string(job) + string(local) + public_key + string(agreement) + string(loaded)


def enter(sock, payload, secret=NO_SECRET):
    """Joins as a member with the secret does, with this payload of a JOIN."""
    sock.sendall(hello(nonce(sock), MEMBER, secret))
    kind, _ = read_frame(sock)
    if kind != WELCOME:
        raise AssertionError(f"not welcome, but frame {kind}")
    sock.sendall(frame(JOIN, payload))


BOOK_HEAD = struct.Struct("<IIIIII")
"""Epoch, view, the first calls without a name of the view, workers, members."""


def book_head(members, view=1):
    """How the BOOK of a job with one worker begins."""
    return BOOK_HEAD.pack(1, view, 0, 0, 1, members)


def book_member(
    role=0, rank=0, local_rank=0, local_size=1, pid=1, group=0, host="h", host_id=1, local="", public_key=None
):
    """A member in a BOOK."""
    numbers = struct.pack("<IIIIIIQ", role, rank, local_rank, local_size, pid, group, host_id)
    return numbers + string(host) + string(local) + (public_key or Identity().public) + bytes(1)


def book_shards(address):
    """How a BOOK with one shard ends: the first member has it, with all of the weight."""
    return struct.pack("<IIIIB", 1, 0, 1, 1, 0) + string(address) + string("")


# ---- keys between members: X25519, as in RFC 7748

PRIME = 2**255 - 19


def _ladder(scalar, point):
    x1 = int.from_bytes(point, "little") & (2**255 - 1)
    x2, z2, x3, z3, swap = 1, 0, x1, 1, 0
    k = int.from_bytes(scalar, "little") & ~7 & ~(1 << 255) | 1 << 254
    for t in reversed(range(255)):
        bit = k >> t & 1
        if swap ^ bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        da, cb = d * a % PRIME, c * b % PRIME
        e = a * a - b * b
        x3, z3 = (da + cb) ** 2 % PRIME, x1 * (da - cb) ** 2 % PRIME
        x2, z2 = a * a * b * b % PRIME, e * (a * a + 121665 * e) % PRIME
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, PRIME - 2, PRIME) % PRIME).to_bytes(32, "little")


class Identity:
    """A member's two keys."""

    def __init__(self):
        self.private = os.urandom(32)
        self.public = _ladder(self.private, (9).to_bytes(32, "little"))

    def key(self, other, secret=NO_SECRET):
        """The key of links to the member with this public key."""
        return hmac.new(secret, _ladder(self.private, other), hashlib.sha256).digest()


def public_keys(book):
    """Of all members, in the order of a BOOK's payload."""
    *_, members = BOOK_HEAD.unpack_from(book)
    at, keys = BOOK_HEAD.size, []
    for _ in range(members):
        at += struct.calcsize("<IIIIIIQ")
        for _ in range(2):
            at += 4 + struct.unpack_from("<I", book, at)[0]
        keys.append(book[at : at + 32])
        at += 33
    return keys


def book_of(stream):
    """The BOOK among the frames that a scheduler has sent."""
    at = 0
    while at + HEADER.size <= len(stream):
        fields = HEADER.unpack_from(stream, at)
        at += HEADER.size
        if fields[1] == BOOK:
            return stream[at : at + fields[0]]
        at += fields[0]
    raise AssertionError("no BOOK among the frames")


def refusal(sock):
    """What the acceptor says after a HELLO, or a JOIN; "" if it only closes."""
    try:
        kind, payload = read_frame(sock)
    except (EOFError, ConnectionError):
        return ""
    if kind != REFUSE:
        raise AssertionError(f"not refused, but frame {kind}")
    return payload.decode()


def drain(sock):
    """Reads until the peer closes; socket.timeout if it does not."""
    try:
        while sock.recv(65536):
            pass
    except ConnectionError:
        pass


class Proxy:
    """Listens, passes one connection on to a port, and keeps what went each way."""

    def __init__(self, port):
        self.sent, self.received = bytearray(), bytearray()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.target = port
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        client, _ = self.listener.accept()
        server = connect(self.target)
        server.settimeout(None)
        threading.Thread(target=self._pass, args=(client, server, self.sent), daemon=True).start()
        self._pass(server, client, self.received)

    @staticmethod
    def _pass(source, target, record):
        try:
            while chunk := source.recv(65536):
                record += chunk
                target.sendall(chunk)
        except OSError:
            pass
        for sock in (source, target):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()
