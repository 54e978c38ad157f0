# SPDX-License-Identifier: Apache-2.0
"""`testbed bench`: push_pull between hosts of a bed, beside the least time that its links allow.

The workers are `byteps bench push_pull --json`, whose worker 0 prints what it has measured. `byteps bench push_pull
--testbed` starts this.
"""

import json

from . import measure
from .bed import Testbed

CONGESTION = "cubic"


def run(args):
    """What was measured. OSError tells what the parts of a job have said that has failed."""
    with Testbed(max(args.workers + args.servers, 2), args.rate, args.buffer) as bed:
        rate = measure.link_rate(bed, CONGESTION)
        shape = {"workers": [1] * args.workers, "servers": args.servers}
        with bed.job(args.command, settings=args.set, **shape) as job:
            status, why = job.run()
            ends = job.now()
    if status != 0:
        raise OSError(f"{why}\n{''.join(end.err for end in ends.values())}".rstrip())
    return add_optimum(json.loads(ends["worker 0"].out), args, rate)


def add_optimum(found, args, stream):
    """Adds to what was measured what the links would allow."""
    found.update(servers=args.servers, link=args.rate, stream_bytes_per_second=stream)
    for row in found["results"]:
        row["optimum_seconds"] = measure.optimum(args.workers, args.servers, row["bytes"], stream)
        row["ratio_to_optimum"] = row["seconds"]["median"] / row["optimum_seconds"]
    return found


def show(found):
    print(
        f"push_pull, {found['workers']} workers, {found['servers']} servers, links of {found['link']}; "
        f"{found['rounds']} rounds\n"
        f"optimum: what the links allow, on which a plain TCP stream carries "
        f"{found['stream_bytes_per_second'] * 8 / 1e6:.0f} Mbit/s\n"
        "idle: part of all cores, which all hosts of the bed share\n"
    )
    heads = ("bytes", "median", "fastest", "slowest", "optimum", "ratio", "idle")
    print(f"{'name':12}{'type':9}" + "".join(f"{head:>12}" for head in heads))
    for row in found["results"]:
        seconds = [*(row["seconds"][which] for which in heads[1:4]), row["optimum_seconds"]]
        times = "".join(f"{value * 1e3:>9.2f} ms" for value in seconds)
        idle = "-" if row["idle_share"] is None else f"{100 * row['idle_share']:.0f} %"
        print(
            f"{row['name']:12}{row['dtype']:9}{row['bytes']:>12}{times}{row['ratio_to_optimum']:>12.2f}{idle:>12}"
        )
