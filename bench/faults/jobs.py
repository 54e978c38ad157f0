# SPDX-License-Identifier: Apache-2.0
"""Jobs that make steps, and what befalls them: one run of each returns when steps have ended and what was sent.

A run is {"ends": {worker: [time at which each step has ended]}, "again": steps that were made again, "fault": time,
"sent": bytes of all hosts}; times are those of CLOCK_MONOTONIC, and workers those that are there to the end.
"""

import os
import signal
import subprocess
import time

from testbed import Job, Shape, kernel

WORKERS, SERVERS = 3, 2
WORKER, SERVER = f"worker {WORKERS - 1}", f"server {SERVERS - 1}"
"""Those that are lost."""
DEAD = 3.0
"""Seconds for which a link is dead."""
LIMIT = 120.0
"""Seconds for a run."""
TRAINER = os.path.join(os.environ.get("top_builddir", "."), "bench", "faults", "trainer")


class BenchError(Exception):
    """A run that did not end well."""


class Loopback:
    """This machine, in the place of all hosts of a test bed."""

    hosts = 1 + WORKERS + SERVERS

    def hostname(self, host):
        return "localhost"

    def address(self, host):
        return "127.0.0.1"

    def popen(self, host, command, **how):
        return subprocess.Popen(command, start_new_session=True, preexec_fn=kernel.die_with_parent, **how)

    def counters(self):
        return []


# ---- faults: each has a title, what it does to a job, and which worker it takes


def kill(part):
    return lambda job: os.kill(job.pid(part), signal.SIGKILL)


def kill_scheduler(job):
    """Another one is started at once, as `byteps run` does."""
    os.kill(job.pid("scheduler"), signal.SIGKILL)
    job.parts["scheduler"].process.wait()
    job.start_scheduler("another scheduler", job.address)


def unplug(part):
    return lambda job: job.bed.cut(job.host(part), unplug=True)


def blink(job):
    host = job.host(WORKER)
    job.bed.cut(host, unplug=True)
    time.sleep(DEAD)
    job.bed.restore(host)


FAULTS = {
    "worker": ("a worker is killed", kill(WORKER), WORKER),
    "server": ("a server is killed", kill(SERVER), None),
    "scheduler": ("the scheduler is killed, and started again", kill_scheduler, None),
    "worker-host": ("the host of a worker vanishes", unplug(WORKER), WORKER),
    "server-host": ("the host of a server vanishes", unplug(SERVER), None),
    "link": (f"the link of a worker is dead for {DEAD:g} s", blink, None),
}
ON_LINKS = ("worker-host", "server-host", "link")
"""Those that need hosts with links of their own."""


# ---- jobs


class BytePS(Job):
    """One with servers of its own, which goes on without a worker."""

    def __init__(self, bed, options):
        settings = [f"cluster.min_workers={WORKERS - 1}", f"cluster.max_workers={WORKERS}", "cluster.colocated=none"]
        settings += ["server.local=false", f"cluster.peer_timeout={options.peer_timeout:g}s", *options.set]
        command = [os.path.abspath(TRAINER), str(options.steps), str(options.tensors), str(options.elements)]
        super().__init__(bed, Shape([1] * WORKERS, SERVERS), command, settings=settings)

    def host(self, part):
        return dict(self.shape.parts())[part]


def times(job, worker, word):
    """{step: time} of the lines of a worker that begin with a word; the last one of each step."""
    lines = [line.split() for line in list(job.parts[worker].streams["out"].lines)]
    return {int(line[1]): float(line[2]) for line in lines if len(line) == 3 and line[0] == word}


def run(job, options, fault=None, moment=0.0):
    """Makes all steps of a job. The fault comes when worker 0 has made options.before steps and `moment`, a part of the
    time of a step, is over."""
    _, strike, victim = FAULTS[fault] if fault else (None, None, None)
    survivors = [f"worker {rank}" for rank in range(WORKERS) if f"worker {rank}" != victim]
    before = sum(host["sent"] for host in job.bed.counters())
    result = {"fault": None}
    job.wait_for(f"step {options.before} ", "worker 0", timeout=LIMIT)
    if strike:
        own = times(job, "worker 0", "step")
        time.sleep(moment * (own[options.before] - own[1]) / (options.before - 1))
        result["fault"] = time.monotonic()
        strike(job)
    end = time.monotonic() + LIMIT
    for worker in survivors:
        try:
            status = job.parts[worker].process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise BenchError(f"{fault}: {worker} did not end within {LIMIT:g} s\n{job.show()}") from None
        if status != 0:
            raise BenchError(f"{fault}: {worker} has ended with status {status}\n{job.show()}")
    result["sent"] = sum(host["sent"] for host in job.bed.counters()) - before
    job.close()
    if fault in ON_LINKS:
        for host in range(job.bed.hosts):
            job.bed.restore(host)
    ends = {worker: times(job, worker, "step") for worker in survivors}
    result["ends"] = {worker: [own[step] for step in range(1, options.steps + 1)] for worker, own in ends.items()}
    result["again"] = max(len(times(job, worker, "again")) for worker in survivors)
    return result


def run_byteps(bed, options, fault=None, moment=0.0):
    with BytePS(bed, options) as job:
        return run(job, options, fault, moment)
