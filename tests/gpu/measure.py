# SPDX-License-Identifier: Apache-2.0
"""What tensors on a device cost beside tensors on the host: one worker of a job, started by tests/gpu/run.

    measure.py MODEL ROUNDS FILE TYPE

In each round, one after the other: the copies of the model's bytes to the host and to the device alone, from and
to page-locked memory; both at once; a push_pull of all tensors from host memory; the same from device memory.
The tensors are of TYPE, float32 or float16. Worker 0 writes the times (seconds) of all rounds as JSON.
"""

import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "jobs" / "scripts"))

import gpu
import numpy as np

import byteps.numpy as bps
from byteps._basics import shared_buffer
from byteps._native import bps as native

PIECE = 4 << 20  # bytes of a copy, as of a partition


def model(path):
    """The elements of each tensor; a line has a name and a number, after # comes a remark."""
    lines = (line.split("#")[0].split() for line in path.read_text(encoding="ascii").splitlines())
    return [int(words[1]) for words in lines if words]


def in_shared_memory(counts, dtype):
    """Arrays of these sizes, where a push_pull from the host is fastest."""
    buffer = np.frombuffer(shared_buffer(dtype.itemsize * sum(counts)), dtype)
    return np.split(buffer, np.cumsum(counts)[:-1])


class Copies:
    """The model's bytes as one array on the device and one in page-locked host memory."""

    def __init__(self, device, bytes_):
        self.to_host, self.to_device = gpu.Stream(device), gpu.Stream(device)
        self.array = gpu.Array(self.to_host, np.zeros(bytes_, np.uint8))
        self.host = np.frombuffer(shared_buffer(bytes_), np.uint8)  # the library has it page-locked

    def run(self, up, down):
        """The time of copies to the host (up), to the device (down), or both at once."""
        start = time.perf_counter()
        for at in range(0, len(self.host), PIECE):
            size = min(PIECE, len(self.host) - at)
            if up:
                self.array.copy_to_host(self.host, at, size, self.to_host)
            if down:
                self.array.copy_from_host(self.host, at, size, self.to_device)
        self.to_host.synchronize()
        self.to_device.synchronize()
        return time.perf_counter() - start


def push_pull(memories, where, streams=()):
    """The time of a push_pull of all tensors, the last one first, as a backward pass has them."""
    native.barrier().wait()
    start = time.perf_counter()
    handles = [
        native.push_pull(memory, None, f"{where}.{i}", bps.Sum, -i, 1.0, 1.0)
        for i, memory in reversed(list(enumerate(memories)))
    ]
    for handle in handles:
        handle.wait()
    for stream in streams:
        stream.synchronize()
    return time.perf_counter() - start


def main():
    counts, rounds, dtype = model(pathlib.Path(sys.argv[1])), int(sys.argv[2]), np.dtype(sys.argv[4])
    bps.init()
    device = gpu.Device(bps.local_rank())
    stream = gpu.Stream(device)
    on_host = in_shared_memory(counts, dtype)
    on_device = [gpu.Array(stream, np.zeros(count, dtype)) for count in counts]
    copies = Copies(device, sum(array.nbytes for array in on_host))
    times = {name: [] for name in ("to host", "to device", "both at once", "push_pull host", "push_pull device")}
    for _ in range(rounds + 1):
        times["to host"].append(copies.run(True, False))
        times["to device"].append(copies.run(False, True))
        times["both at once"].append(copies.run(True, True))
        times["push_pull host"].append(push_pull(on_host, "host"))
        times["push_pull device"].append(push_pull([a.memory for a in on_device], "device", [stream]))
    if bps.rank() == 0:
        figures = {
            "bytes": len(copies.host),
            "tensors": len(counts),
            "seconds": {name: values[1:] for name, values in times.items()},  # the first one warms up
        }
        pathlib.Path(sys.argv[3]).write_text(json.dumps(figures) + "\n", encoding="ascii")
    bps.shutdown()


if __name__ == "__main__":
    main()
