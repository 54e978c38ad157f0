# SPDX-License-Identifier: Apache-2.0
"""`testbed bench`: push_pull or a training between hosts of a bed, beside the least time that its links allow.

The workers are `byteps bench push_pull --json` or `byteps bench train --beside ddp --json`, whose worker 0 prints what
it has measured. `byteps bench ... --testbed` starts this.
"""

import json

from . import measure, shares, training, units
from .bed import Testbed

CONGESTION = "cubic"


def run(args):
    """What was measured. OSError tells what the parts of a job have said that has failed."""
    with Testbed(max(args.workers + args.servers, 2), args.rate, args.buffer, args.links) as bed:
        rates = [args.links * measure.link_rate(bed, CONGESTION)] * (args.workers + args.servers)
        slow_down(bed, args, rates)
        shape = {"workers": [1] * args.workers, "servers": args.servers}
        how = {"settings": settings(bed, args), "env": {"TESTBED": bed.name}}
        with bed.job(args.command, **shape, **how) as job:
            status, why = job.run()
            ends = job.now()
    if status != 0:
        raise OSError(f"{why}\n{''.join(end.err for end in ends.values())}".rstrip())
    found = json.loads(ends["worker 0"].out)
    return (training.add_links if found["benchmark"] == "train" else add_optimum)(found, args, rates)


def settings(bed, args):
    """Those of the command, which may have another word on the interfaces."""
    several = [f"transports.net.interface={bed.subnets()}"] if bed.links > 1 else []
    return [*several, *args.set]


def slow_down(bed, args, rates):
    """Gives the slow hosts their links, and notes the rates. BytePS is not told: it finds out."""
    for host, text in args.slow:
        if host >= len(rates):
            raise ValueError(f"--slow: there is no host {host}; the hosts are 0 to {len(rates) - 1}")
        fast = rates[host]
        slow = args.links * (units.rate(text) or 8 * fast) / 8 * measure.PAYLOAD
        bed.shape(host, text, args.buffer)
        rates[host] = min(slow, fast)


def add_optimum(found, args, rates):
    """Adds to what was measured what the links would allow."""
    found.update(servers=args.servers, link=units.links(args.links, args.rate), stream_bytes_per_second=max(rates))
    for row in found["results"]:
        row["optimum_seconds"] = shares.fluid(args.workers, rates, row["bytes"])[0]
        row["ratio_to_optimum"] = row["seconds"]["median"] / row["optimum_seconds"]
    return found


def show(found):
    if found["benchmark"] == "train":
        training.show(found)
        return
    print(
        f"push_pull, {found['workers']} workers, {found['servers']} servers, links of {found['link']}; "
        f"{found['rounds']} rounds\n"
        f"optimum: what the links of a host allow, on which plain TCP streams carry "
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
