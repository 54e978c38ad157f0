# SPDX-License-Identifier: Apache-2.0
"""Random jobs, one after the other: make soak MINUTES=10.

A job is a line such as

    -n 3 -s 0 --hosts a,b,a --set "worker.slice=32 KiB" -- 314496601 4 2

with the number of workers and servers, the host of each worker and then of each server (where there are several: each
is a namespace), settings, and the arguments of tests/jobs/stress: seed, steps, generations. What fails is printed with
its line, which `make soak JOB='...'` repeats; a line that has once failed belongs into soak-jobs, which test_soak.py
plays. In a job on one host `byteps run` has a part; on several the parts are started by hand, for one generation.
"""

import argparse
import concurrent.futures
import contextlib
import os
import pathlib
import random
import shlex
import sys
import time

import harness

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fault"))

import cluster  # noqa: E402  (it lies in the folder that was just added)

PROGRAM = str(pathlib.Path(os.environ.get("top_builddir", "."), "tests", "jobs", "stress"))


class Job:
    """What a line says."""

    parser = argparse.ArgumentParser(prog="soak", add_help=False)
    parser.add_argument("-n", dest="workers", type=int, required=True)
    parser.add_argument("-s", dest="servers", type=int, required=True)
    parser.add_argument("--hosts", default="")
    parser.add_argument("--set", dest="settings", action="append", default=[])
    parser.add_argument("stress", nargs=3, metavar="NUMBER")

    def __init__(self, workers, servers, hosts, settings, stress):
        self.workers, self.servers, self.hosts = workers, servers, hosts
        self.settings, self.stress = settings, stress

    @classmethod
    def parse(cls, line):
        found = cls.parser.parse_args(shlex.split(line))
        hosts = found.hosts.split(",") if found.hosts else []
        return cls(found.workers, found.servers, hosts, found.settings, found.stress)

    @classmethod
    def draw(cls, source):
        """A random one."""
        workers, servers = source.choice((1, 2, 2, 3, 3, 3, 4, 5)), source.choice((0, 0, 1, 1, 2))
        hosts = []
        if os.geteuid() == 0 and workers > 1 and source.random() < 0.4:
            hosts = [source.choice("abc") for _ in range(workers + servers)]
        settings = draw_settings(source, servers)
        generations = 1 if hosts else source.choice((1, 2, 2, 3))
        stress = [str(number) for number in (source.randrange(1 << 32), source.randint(2, 6), generations)]
        return cls(workers, servers, hosts, settings, stress)

    def __str__(self):
        words = ["-n", str(self.workers), "-s", str(self.servers)]
        words += ["--hosts", ",".join(self.hosts)] if self.hosts else []
        words += [word for setting in self.settings for word in ("--set", setting)]
        return shlex.join([*words, "--", *self.stress])


def draw_settings(source, servers):
    """Ways, placements, orders and shapes."""
    slices = source.choice(("1 KiB", "4 KiB", "32 KiB", "48 KiB"))
    partition = source.choice(("48 KiB", "96 KiB", "192 KiB", "1536 KiB"))
    return [
        f"cluster.colocated={source.choice(('auto', 'none' if servers else 'first', 'first', 'hosts', 'all'))}",
        f"worker.hierarchy={source.choice(('auto', 'off', 'off'))}",
        f"worker.partition={partition}",
        f"worker.slice={slices}",
        f"worker.credit={source.choice(('192 KiB', '192 KiB', '64 KiB', '0'))}",
        f"server.shards={source.choice((0, 1, 2, 3))}",
        f"server.order={source.choice(('arrival', 'arrival', 'rank'))}",
        f"server.local={source.choice(('true', 'false'))}",
        f"transports.net.streams={source.choice((1, 1, 2, 4))}",
        f"transports.local.copy={source.choice(('auto', 'process_vm', 'arena', 'ring'))}",
        f"transports.local.inline_bytes={source.choice((0, 64, 256, 4096))}",
        f"transports.local.ring={source.choice(('16 KiB', '256 KiB'))}",
    ]


def _run_here(job):
    options = [word for setting in job.settings for word in ("--set", setting)]
    result = harness.run([PROGRAM, *job.stress], workers=job.workers, servers=job.servers, options=options)
    lines = [result.lines(f"worker {rank}") for rank in range(job.workers)]
    return result.status, lines, str(result)


def _run_on_hosts(job):
    shape = {"workers": job.workers, "servers": job.servers, "hosts": job.hosts}
    with cluster.ByHand(job.stress, settings=job.settings, worker=[PROGRAM], **shape) as running:
        ends = running.finish()
    status = next((end.status for end in ends.values() if end.status != 0), 0)
    return status, [ends[f"worker {rank}"].out.splitlines() for rank in range(job.workers)], cluster.show(ends)


def run(job):
    """Runs a job; AssertionError says how it has failed."""
    status, lines, text = _run_on_hosts(job) if job.hosts else _run_here(job)
    if status != 0 or lines != [["stress: ok"]] * job.workers:
        raise AssertionError(f"status {status}\n{text}")


# ---- many


def soak(minutes, seed):
    """Runs jobs until the time is over, some at a time; how many have run, and how many of them failed."""
    source, end = random.Random(seed), time.monotonic() + 60 * minutes
    counted = {"run": 0, "failed": 0}

    def one(job):
        try:
            run(job)
        except AssertionError as error:
            counted["failed"] += 1
            print(f"\nFAILED after {counted['run']} jobs: {job}\n{error}", flush=True)
        counted["run"] += 1

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        running = set()
        while time.monotonic() < end:
            running.add(pool.submit(one, Job.draw(source)))
            if len(running) >= os.cpu_count():
                _, running = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
    return counted["run"], counted["failed"]


def main():
    parser = argparse.ArgumentParser(description="Random jobs until the time is over.")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of the jobs (random)")
    parser.add_argument("--job", help="repeat this one until the time is over")
    options = parser.parse_args()
    if options.job:
        with contextlib.suppress(KeyboardInterrupt):
            return repeat(Job.parse(options.job), options.minutes)
    print(f"jobs of seed {options.seed}, for {options.minutes:g} min", flush=True)
    ran, failed = soak(options.minutes, options.seed)
    print(f"{ran} jobs, {failed} failed")
    return 1 if failed else 0


def repeat(job, minutes):
    """Until it fails, or the time is over."""
    end, times = time.monotonic() + 60 * minutes, 0
    while time.monotonic() < end:
        run(job)
        times += 1
    print(f"{times} times: {job}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
