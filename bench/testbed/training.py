# SPDX-License-Identifier: Apache-2.0
"""A training by several ways beside what computation and links allow: its figures and its table."""

import json
import os
import subprocess

from . import shares, units

WAYS = ("distributed_optimizer", "cross_barrier", "ddp", "without_communication")
"""In the order of the table; the names are those of --json."""
TITLES = ("DistributedOptimizer", "CrossBarrier", "DDP over gloo", "without communication")


def add_ratios(found, communication=0.0):
    """Adds the bound, which is the time of the computation and what the links need, and the ratios to it."""
    ways = found["ways"]
    found["bound_seconds"] = ways["without_communication"]["seconds"]["median"] + communication
    for way in ways.values():
        way["ratio_to_bound"] = way["seconds"]["median"] / found["bound_seconds"]
    return found


def add_links(found, args, rates):
    """Adds what the links of a test bed would allow, on which streams have these rates."""
    n, size = found["workers"], found["bytes"]
    seconds, fluid = shares.fluid(n, rates, size)
    found.update(servers=args.servers, link=units.links(args.links, args.rate), stream_bytes_per_second=rates)
    found["optimum_seconds"] = seconds
    found["expected_bytes"] = {"optimum": fluid, "plan": planned(found, args), "ring": [2 * (n - 1) / n * size] * n}
    return add_ratios(found, seconds)


def planned(found, args):
    """The bytes that each host sends and gets in a step by the placement of `byteps plan`; None if links differ."""
    if args.slow:
        return None
    model = "".join(f"{name} {count} float32\n" for name, count in found["tensors"])
    command = [os.environ.get("BYTEPS_PROGRAM", "byteps"), "plan", "--json", "--model", "/dev/stdin"]
    command += ["--workers", str(found["workers"]), "--servers", str(args.servers), "--bandwidth", "8bit"]
    command += [f"--set={setting}" for setting in args.set]
    plan = json.loads(subprocess.run(command, input=model.encode(), check=True, stdout=subprocess.PIPE).stdout)
    busy = {(each["colocated"], each["rank"]): each["busy_seconds"] for each in plan["placement"]}
    own = [busy.get((True, rank), found["bytes"]) for rank in range(found["workers"])]
    return own + [busy[False, rank] for rank in range(args.servers)]


# ---- for people


def show(found):
    links = f", links of {found['link']}" if "link" in found else f" over {found['interface']}"
    servers = f", further servers: {found['servers']}" if "servers" in found else ""
    print(
        f"training with PyTorch, a network of {found['bytes'] / 1e6:.1f} MB in {len(found['tensors'])} tensors, "
        f"{found['batch']} samples in a step\nof each of {found['workers']} workers{servers}{links}; "
        f"{found['rounds']} rounds of {found['steps']} steps"
    )
    show_bound(found)
    print(f"\n{'':24}{'median':>10}{'fastest':>10}{'slowest':>10}{'to bound':>10}{'to DDP':>8}{'idle':>7}")
    for title, name in zip(TITLES, WAYS):
        way = found["ways"][name]
        times = "".join(f"{way['seconds'][each] * 1e3:>7.0f} ms" for each in ("median", "fastest", "slowest"))
        ratios = f"{way['ratio_to_bound']:>10.2f}{way['ratio_to_ddp']:>8.2f}"
        print(f"{title:24}{times}{ratios}{100 * way['idle_share']:>5.0f} %")
    show_traffic(found)


def show_bound(found):
    """What the ratios stand for."""
    compute = found["ways"]["without_communication"]["seconds"]["median"]
    if "optimum_seconds" not in found:
        print(f"bound: the computation alone, {compute * 1e3:.0f} ms")
        return
    rates = sorted(set(found["stream_bytes_per_second"]), reverse=True)
    print(
        f"bound: {compute * 1e3:.0f} ms of computation + {found['optimum_seconds'] * 1e3:.0f} ms that links need on "
        "which plain TCP streams carry\n"
        + " or ".join(f"{rate * 8 / 1e6:.0f}" for rate in rates)
        + f" Mbit/s = {found['bound_seconds'] * 1e3:.0f} ms"
    )


def show_traffic(found):
    """Bytes of each host's link: what was measured as sent / received, then what was to be expected."""
    expected = {name: each for name, each in found.get("expected_bytes", {}).items() if each}
    columns = [*TITLES[:3], *expected]
    print("\nMB in a step, sent / received by each host" + "; by formula" * bool(expected))
    print(f"{'host':12}" + "".join(f"{title:>{22 if title in TITLES else 9}}" for title in columns))
    for host, name in enumerate(found["hosts"]):
        line = f"{name:12}"
        for way in WAYS[:3]:
            carried = found["ways"][way]["bytes"][host]
            line += f"{carried['sent'] / 1e6:>12.2f} /{carried['received'] / 1e6:>8.2f}"
        for each in expected.values():
            line += f"{each[host] / 1e6:>9.2f}" if host < len(each) else f"{'-':>9}"
        print(line)
