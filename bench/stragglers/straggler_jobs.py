# SPDX-License-Identifier: Apache-2.0
"""Trainings on a test bed: each starts a job, and returns what its workers have said."""

import contextlib
import json
import os
import sys
import tempfile

import jobs  # of ../faults
import rivals  # likewise
from halves import Halves
from straggler_methods import BASE, METHODS, SERVERS, WORKERS

from testbed import SWITCH, Job, Shape, Testbed

SETTINGS = ["cluster.colocated=none", "server.local=false", "worker.partition=64 KiB", "worker.slice=16 KiB"]
"""Servers on hosts of their own; and partitions so small that both have their part of a small model."""
HERE = os.path.dirname(os.path.abspath(__file__))
TRAINER = [sys.executable, "-B", os.path.join(HERE, "straggler_trainer.py")]
HOUSE = [sys.executable, "-B", os.path.join(HERE, "..", "faults", "torchft_trainer.py"), "lighthouse"]
JOIN_TIMEOUT = 60_000  # ms, the default of torchft_lighthouse
LIMIT = 1200.0
"""Seconds for a training."""
HOSTS = WORKERS + SERVERS
FAR = [WORKERS // 2, WORKERS // 2 + 1, HOSTS - 1]
"""The hosts of the second half: two workers and a server."""


class Rival(Job):
    """Workers that meet without BytePS; torchft has its lighthouse on the switch."""

    def __init__(self, bed, how, folder):
        self.bed, self.parts, self._common = bed, {}, []
        self._how = {"tell": lambda part, stream, line: None}
        self._env = dict(os.environ)
        if isinstance(bed, jobs.Loopback):
            self._env["GLOO_SOCKET_IFNAME"] = "lo"
        if folder:
            self._env["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
        try:
            if folder:
                self._start("lighthouse", SWITCH, [*HOUSE, str(WORKERS), str(JOIN_TIMEOUT)], [])
                port = self.wait_for("listens", "lighthouse", timeout=LIMIT).split()[1]
                how = {**how, "lighthouse": f"http://{bed.address(SWITCH)}:{port}"}
            for rank in range(WORKERS):
                self._start(f"worker {rank}", rank, [*TRAINER, json.dumps(how), str(rank), str(WORKERS)], [])
        except BaseException:
            self.close()
            raise


def start(bed, how):
    method = METHODS[how["method"]]
    if method.kind in ("ddp", "torchft"):
        return Rival(bed, how, rivals.install() if method.kind == "torchft" else None)
    return Job(bed, Shape([1] * WORKERS, SERVERS), [*TRAINER, json.dumps(how)], settings=[*SETTINGS, *method.settings])


def looks(job, rank):
    """[(step, seconds, accuracy)]"""
    lines = [line.split() for line in list(job.parts[f"worker {rank}"].streams["out"].lines)]
    return [(int(line[1]), float(line[2]), float(line[3])) for line in lines if line[0] == "look"]


def train(bed, how):
    """The looks of each worker when worker 0 was done, which is never slow."""
    with tempfile.TemporaryDirectory(prefix="byteps-bench-") as folder:
        address = [bed.address(rank) for rank in range(WORKERS)]
        with start(bed, {**how, "store": os.path.join(folder, "store"), "address": address}) as job:
            try:
                job.wait_for("done", "worker 0", timeout=LIMIT)
            except AssertionError as error:
                raise jobs.BenchError(f"{how['situation']}, {how['task']}, {how['method']}: {error}") from None
            return [looks(job, rank) for rank in range(WORKERS)]


@contextlib.contextmanager
def hosts(situation, options):
    """A bed for a situation."""
    if options.loopback:
        yield jobs.Loopback()
    elif situation == "slow link":
        with Halves(HOSTS, FAR, options.rate, options.trip / 1e3) as bed:
            yield bed
    else:
        with Testbed(HOSTS) as bed:
            yield bed


def order(methods):
    """The one that says what is to be reached comes first."""
    return [BASE, *(method for method in methods if method != BASE)]
