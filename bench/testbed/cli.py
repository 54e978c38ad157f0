# SPDX-License-Identifier: Apache-2.0
"""The command `testbed`: its verbs."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading

from . import bed as beds
from . import bench, job, kernel, measure
from .arguments import parse


def make_bed(args, least):
    rates = args.rate.split(",")
    hosts = least if args.hosts is None else args.hosts
    return beds.Testbed(hosts, rates[0] if len(rates) == 1 else rates, args.buffer, args.links)


def find_bed(args):
    names = [args.bed] if args.bed else list(beds.beds())
    if len(names) != 1:
        raise ValueError(f"say by --bed which one is meant; there are {len(names)}: {' '.join(names)}")
    return beds.Bed(names[0])


# ---- verbs that make a bed


class Teller:
    """Prints lines of parts, whole ones."""

    def __init__(self):
        self.lock = threading.Lock()

    def __call__(self, part, stream, line):
        with self.lock:
            print(f"[{part.name} {part.host}] {line}", file=getattr(sys, f"std{stream}"), flush=True)


def do_run(args):
    shape = job.Shape(args.workers, args.servers, args.beside, args.server_hosts)
    with make_bed(args, shape.hosts) as bed:
        print(f"testbed: {bed.name}, {bed.hosts} hosts", file=sys.stderr)
        how = {"settings": args.set, "scheduler_host": args.scheduler_host, "tell": Teller()}
        with job.Job(bed, shape, args.command, **how) as started:
            status, why = started.run(args.timeout, args.grace)
        if why:
            print(f"testbed: {why}", file=sys.stderr)
        if args.stat:
            show_counters(bed)
        return status


def do_bench(args):
    if args.workers < 2 or args.servers < 0:
        raise ValueError("there is nothing to send between fewer than 2 workers, and no less than 0 servers")
    found = bench.run(args)
    if args.json:
        print(json.dumps(found, indent=2))
    else:
        bench.show(found)


def do_with(args):
    with make_bed(args, 2) as bed:
        env = dict(os.environ, TESTBED=bed.name)
        process = subprocess.Popen(args.command, env=env, preexec_fn=kernel.die_with_parent)
        try:
            status = wait_through_interrupts(process)
        finally:
            process.kill()
            process.wait()
        return status if status >= 0 else 128 - status


def wait_through_interrupts(process):
    """The terminal sends an interrupt to both; what it means is for the command to say."""
    while True:
        with contextlib.suppress(KeyboardInterrupt):
            return process.wait()


def do_rate(args):
    with make_bed(args, 2) as bed:
        if bed.hosts < 2:
            raise ValueError("a stream needs two hosts")
        measure.report(bed, args.seconds, args.congestion)


# ---- verbs that use one


def do_exec(args):
    find_bed(args).enter(args.host)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and what it ignores would stay so
    try:
        os.execvp(args.command[0], args.command)
    except OSError as error:
        raise OSError(f"cannot execute '{args.command[0]}': {error.strerror}") from None


def do_cut(args):
    find_bed(args).cut(args.host, args.unplug)


def do_restore(args):
    find_bed(args).restore(args.host)


def do_shape(args):
    find_bed(args).shape(args.host, args.rate, args.buffer)


def do_stat(args):
    show_counters(find_bed(args))


def show_counters(bed):
    print("host        sent bytes  received bytes  dropped packets")
    for host, counts in enumerate(bed.counters()):
        print(f"{bed.hostname(host):6}{counts['sent']:>16}{counts['received']:>16}{counts['dropped']:>17}")


# ---- verbs for all beds


def do_list(args):
    for name, owned in beds.beds().items():
        try:
            bed = beds.Bed(name)
            what = f"{bed.hosts} hosts, {len(bed.processes())} processes"
        except ValueError:
            what = "not complete"
        print(f"{name}  {what}{'' if owned else ', without an owner'}")


def do_clean(args):
    known = beds.beds()
    unknown = [name for name in args.names if name not in known]
    if unknown:
        raise ValueError(f"there is no test bed '{unknown[0]}'; `testbed list` shows them")
    gone = list(known) if args.all else args.names
    for name in gone:
        beds.demolish(name)
    for name in (*gone, *beds.sweep()):
        print(f"testbed: {name} is gone")


def do_warden(args):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    beds.guard(args.name)


# ---- from the outside


def end_by_signal(number, frame):
    raise SystemExit(128 + number)


def main():
    args = parse(sys.argv[1:])
    signal.signal(signal.SIGTERM, end_by_signal)
    signal.signal(signal.SIGHUP, end_by_signal)
    try:
        return globals()[f"do_{args.verb}"](args)
    except KeyboardInterrupt:
        print("testbed: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except (kernel.Unavailable, ValueError, OSError) as error:
        print(f"testbed: {error}", file=sys.stderr)
        return 1
