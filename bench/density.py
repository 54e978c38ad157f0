#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A worker: push_pull_sparse() beside push_pull() of the whole table by turns, by width and density of rows.

byteps run -n 2 -s 1 [--set KEY=VALUE]... -- python bench/density.py [MIB [ROUNDS [WIDTHS [DENSITIES]]]]

A table has MIB MiB (8) of float32; of it each worker brings random rows, ascending. The first worker prints medians of
ROUNDS rounds (9): milliseconds of the whole table, and of rows as parts of it.
"""

import statistics
import sys
import time

import byteps.numpy as bps
import numpy as np

WIDTHS = "1,4,16,64,256"
DENSITIES = "1,5,10,25,50,75,100"


def timed(call):
    bps.barrier()
    begin = time.perf_counter()
    call()
    # All have waited for the slowest one.
    bps.barrier()
    return time.perf_counter() - begin


def beside(mib, rounds, width, density):
    """Seconds of the whole table, and of rows of it."""
    rows = (mib << 20) // (4 * width)
    table = np.ones((rows, width), np.float32)
    index = np.random.default_rng(bps.rank()).permutation(rows)[: max(1, rows * density // 100)]
    index.sort()
    values = table[index]
    name = f"{width} {density}"
    whole, some = [], []
    for _ in range(rounds + 1):
        whole.append(timed(lambda: bps.push_pull(table, name=f"all {name}", average=False)))
        some.append(timed(lambda: bps.push_pull_sparse(index, values, rows, f"rows {name}", average=False)))
    return statistics.median(whole[1:]), statistics.median(a / b for a, b in zip(some[1:], whole[1:]))


def main(mib=8, rounds=9, widths=WIDTHS, densities=DENSITIES):
    bps.init()
    densities = [int(d) for d in densities.split(",")]
    if bps.rank() == 0:
        print("width  whole, ms " + "".join(f"{d:>6} %" for d in densities), flush=True)
    for width in map(int, widths.split(",")):
        figures = [beside(int(mib), int(rounds), width, d) for d in densities]
        if bps.rank() == 0:
            whole = 1000 * statistics.median(w for w, _ in figures)
            print(f"{width:5}  {whole:9.1f} " + "".join(f"{r:8.2f}" for _, r in figures), flush=True)
    bps.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
