# SPDX-License-Identifier: Apache-2.0
"""What others do when a worker is killed: torchft is measured, Horovod's documentation says it."""

import os
import subprocess
import sys

import jobs

from testbed import SWITCH

VERSION = "0.2.0"
MORE = ["opentelemetry-exporter-otlp-proto-http>=1.39.0", "opentelemetry-sdk>=1.39.0"]
"""What it needs beside PyTorch, which is there already."""
HOUSES = {
    f"torchft {VERSION}: a worker is killed": 60000,
    "the same, lighthouse with join_timeout_ms = 100": 100,
}
"""The defaults of torchft_lighthouse and of LighthouseServer."""
DOCUMENTED = (
    "torchft (measured only where it can be installed): the step fails and is left out of the training; the "
    "next one is made by those who give a sign of life to the lighthouse. https://docs.pytorch.org/torchft/",
    "Horovod Elastic: all parameters go back to the last state.commit(), up to as many steps as there are between two "
    "of them are made again; workers meet anew, and worker 0 broadcasts the state. A lost host is not used any more. A "
    "commit copies the state. https://horovod.readthedocs.io/en/stable/elastic_include.html",
)


def install():
    """The folder with torchft for this Python, made when it is first wanted; BenchError: why there is none."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = os.path.join(cache, "byteps-bench", f"torchft-{VERSION}-python{version}")
    if not os.path.isdir(folder):
        for words in (["--no-deps", f"torchft=={VERSION}"], MORE):
            pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target",
                   f"{folder}.new", *words]
            done = subprocess.run(pip, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode != 0:
                raise jobs.BenchError(done.stdout.strip().rpartition("\n")[2])
        os.rename(f"{folder}.new", folder)
    env = {**os.environ, "PYTHONPATH": folder}
    words = [sys.executable, "-c", "import torchft"]
    done = subprocess.run(words, env=env, check=False, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise jobs.BenchError(done.stderr.strip().rpartition("\n")[2])
    return folder


class Torchft(jobs.Job):
    """Its lighthouse takes the place of the scheduler; there are no servers."""

    def __init__(self, bed, options, elements, folder, join_timeout):
        self.bed, self.parts, self._common = bed, {}, []
        self._how = {"tell": lambda part, stream, line: None}
        network = {} if isinstance(bed, jobs.Loopback) else {"GLOO_SOCKET_IFNAME": "eth0"}
        self._env = {**os.environ, **network, "PYTHONPATH": folder}
        program = [sys.executable, "-B", os.path.join(os.path.dirname(os.path.abspath(__file__)), "torchft_trainer.py")]
        try:
            house = [*program, "lighthouse", str(jobs.WORKERS), str(join_timeout)]
            self._start("lighthouse", SWITCH, house, [])
            _, port, store = self.wait_for("listens", "lighthouse", timeout=jobs.LIMIT).split()
            for rank in range(jobs.WORKERS):
                words = [rank, jobs.WORKERS, bed.address(rank), f"{bed.address(SWITCH)}:{port}", store,
                         options.steps, options.tensors, elements]
                self._start(f"worker {rank}", rank, [*program, *map(str, words)], [])
        except BaseException:
            self.close()
            raise


def run_torchft(bed, options, folder, join_timeout, fault=None, moment=0.0):
    with Torchft(bed, options, options.elements, folder, join_timeout) as job:
        return jobs.run(job, options, fault, moment)
