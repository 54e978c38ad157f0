# SPDX-License-Identifier: Apache-2.0
"""What a bed is worth: the rate of plain TCP streams on it, and how idle the machine's cores are meanwhile.

As a program it is one end of such a stream; stdlib only, and nothing of the test bed.
"""

import os
import socket
import subprocess
import sys
import time

CHUNK = 1 << 18
STREAM_SECONDS = 1.0
STREAM_TRIES = 3
"""Long enough for one stream to fill a link."""
PAYLOAD = 1448 / 1514
"""The part of a link's bytes that is payload of TCP."""


def sink():
    """Takes a stream and prints its bytes per second, without the first fifth of the time."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        listener.listen(1)
        print(listener.getsockname()[1], flush=True)
        stream, _ = listener.accept()
    room, total, marks = bytearray(CHUNK), 0, []
    with stream:
        while True:
            got = stream.recv_into(room)
            if got == 0:
                break
            total += got
            marks.append((time.monotonic(), total))
    if not marks:
        return
    begin = marks[0][0] + (marks[-1][0] - marks[0][0]) / 5
    start = next(mark for mark in marks if mark[0] >= begin)
    print((marks[-1][1] - start[1]) / max(marks[-1][0] - start[0], 1e-9), flush=True)


def source(address, port, seconds, congestion):
    """Sends for some seconds."""
    with socket.create_connection((address, port), timeout=30) as stream:
        try:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
        except OSError as error:
            sys.exit(f"congestion control {congestion}: {error.strerror}")
        data, end = bytes(CHUNK), time.monotonic() + seconds
        while time.monotonic() < end:
            stream.sendall(data)


def cpu():
    """(idle, all) jiffies of the machine by now."""
    with open("/proc/stat", encoding="ascii") as file:
        times = [int(word) for word in file.readline().split()[1:9]]
    return times[3] + times[4], sum(times)


def watched(act):
    """What act() returns, and the idle part of the machine's cores meanwhile."""
    idle, every = cpu()
    value = act()
    later_idle, later = cpu()
    return value, (later_idle - idle) / max(later - every, 1)


def streams(bed, pairs, seconds, congestion):
    """Runs a stream for each (from, to) at once: ([bytes per second], idle part of the cores)."""
    running = []

    def start(host, *words):
        own = [sys.executable, os.path.abspath(__file__), *words]
        running.append(bed.popen(host, own, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL))
        return running[-1]

    try:
        sinks = [start(to, "sink") for _, to in pairs]
        ports = [end.stdout.readline().decode().strip() for end in sinks]
        idle, every = cpu()
        for (origin, to), port in zip(pairs, ports):
            start(origin, "source", bed.address(to), port, str(seconds), congestion)
        if any([each.wait() for each in running[len(sinks) :]]):  # all of them, whatever the first says
            raise OSError("a stream could not be sent")
        later_idle, later = cpu()
        return [float(end.stdout.readline()) for end in sinks], (later_idle - idle) / max(later - every, 1)
    finally:
        for process in running:
            process.kill()
            process.wait()
            process.stdout.close()


def link_rate(bed, congestion):
    """Bytes per second that a link carries: of a few plain streams the fastest, since other work slows them."""
    return max(streams(bed, [(0, 1)], STREAM_SECONDS, congestion)[0][0] for _ in range(STREAM_TRIES))


def report(bed, seconds, congestion):
    """Prints one stream alone, then one from each host to the next at once."""
    for title, pairs in (
        ("one stream", [(0, 1)]),
        ("each host to the next", [(host, (host + 1) % bed.hosts) for host in range(bed.hosts)]),
    ):
        rates, idle = streams(bed, pairs, seconds, congestion)
        print(f"{title}, {congestion}: the cores are {100 * idle:.0f} % idle")
        for (origin, to), rate in zip(pairs, rates):
            mbit = rate * 8 / 1e6
            ends = f"{bed.hostname(origin)} -> {bed.hostname(to)}"
            print(f"  {ends:12}{mbit:9.1f} Mbit/s of payload,{mbit / PAYLOAD:9.1f} on the link")


if __name__ == "__main__":
    if sys.argv[1] == "sink":
        sink()
    else:
        source(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), sys.argv[5])
