# SPDX-License-Identifier: Apache-2.0
"""The wire, as far as strangers need it: frames, the handshake, a proxy that records a conversation."""

import hashlib
import hmac
import socket
import struct
import threading

HEADER = struct.Struct("<IBBBBIIQIIIIddiI")
GREETING = b"BytePS\r\n"
CHALLENGE, HELLO, WELCOME, REFUSE, PING, LEAVE = 1, 2, 3, 4, 5, 6
ASSIGN, ENDPOINTS, BOOK, DECLARE, DECLARED = 7, 8, 9, 10, 11
CHANGE, CHANGED, FORGET = 16, 17, 18
PUSH, RESULT, POISON, FAILED, STALLED = 32, 33, 34, 35, 36
READY, HOST, FORM, JOINED, ORDER, FETCHED, SEPARATE = 38, 39, 40, 41, 42, 43, 44
CODING, FEEDBACK = 45, 46
TIMEOUT = 60


def header(kind, length=0, **fields):
    """A frame's header."""
    names = ("flags", "dtype", "op", "epoch", "tensor", "bytes", "partition", "round", "offset", "root")
    names += ("prescale", "postscale", "priority", "zero")
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
    if kind != CHALLENGE or not payload.startswith(GREETING):
        raise AssertionError(f"no challenge but {kind}: {payload!r}")
    return payload[-16:]


def hello(own_nonce, rest, version=1, software="9.9.9"):
    return frame(HELLO, GREETING + struct.pack("<I", version) + string(software) + own_nonce + rest)


def join(job, agreement="", role=0, rank=-1, host="elsewhere", local=""):
    """The rest of a HELLO to the scheduler."""
    numbers = struct.pack("<BIiiiQII", 1, role, rank, -1, -1, 7, 4711, 1000)
    return numbers + string(host) + string(job) + string(local) + string(agreement)


def data(rank, lane, epoch, proof):
    """The rest of a HELLO to a shard."""
    return struct.pack("<BIII", 2, rank, lane, epoch) + proof


def local(rank, epoch, proof):
    """The rest of a HELLO to another worker of the host."""
    return struct.pack("<BII", 3, rank, epoch) + proof


def book_member(role=0, rank=0, local_rank=0, local_size=1, pid=1, group=0, host="h", host_id=1, local=""):
    """A member in a BOOK."""
    numbers = struct.pack("<IIIIIIQ", role, rank, local_rank, local_size, pid, group, host_id)
    return numbers + string(host) + string(local)


def prove(token, own_nonce, epoch, rank, lane):
    return hmac.new(token, own_nonce + struct.pack("<III", epoch, rank, lane), hashlib.sha256).digest()


def token_of(stream):
    """(epoch, token) of the BOOK among the frames that a scheduler has sent."""
    at = 0
    while at + HEADER.size <= len(stream):
        fields = HEADER.unpack_from(stream, at)
        at += HEADER.size
        if fields[1] == BOOK:
            return struct.unpack_from("<I", stream, at)[0], stream[at + 4 : at + 20]
        at += fields[0]
    raise AssertionError("no BOOK among the frames")


def refusal(sock):
    """What the acceptor says after a HELLO; "" if it only closes."""
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
