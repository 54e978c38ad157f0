# SPDX-License-Identifier: Apache-2.0
"""A rank that makes the operations of bench/collectives by torch.distributed with gloo; see operations.h.

usage: collectives_gloo.py DIRECTORY NAME ELEMENTS RANK SIZE
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from operations import OPERATIONS


def message(sender, rank, whole, got):
    if rank == sender:
        dist.send(whole, 1 - rank)
    else:
        dist.recv(got, sender)


def ways(rank, size, whole, got):
    """{operation: what makes one with that root}, in place or of blocks as in operations.h."""
    own, gotten = whole[: len(whole) // size], got[: len(whole) // size]
    blocks, places = list(whole.chunk(size)), list(got.chunk(size))
    return {
        "push_pull": lambda root: dist.all_reduce(whole),
        "broadcast": lambda root: dist.broadcast(whole, root),
        "reduce": lambda root: dist.reduce(whole, root),
        "reduce_scatter": lambda root: dist.reduce_scatter_tensor(gotten, whole),
        "all_gather": lambda root: dist.all_gather_into_tensor(got, own),
        "gather": lambda root: dist.gather(own, places if rank == root else None, root),
        "scatter": lambda root: dist.scatter(gotten, blocks if rank == root else None, root),
        "all_to_all": lambda root: dist.all_to_all_single(got, whole),
        "send": lambda root: message(root, rank, whole, got),
    }


def main():
    directory, name, elements, rank, size = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
    torch.set_num_threads(1)
    store = dist.FileStore(os.path.join(directory, f"{name}.store"), size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    whole, got = torch.zeros(elements), torch.zeros(elements)
    with open(f"{directory}/{name}.{rank}.done", "w", encoding="ascii") as done:
        print(os.getpid(), file=done, flush=True)
        with open(f"{directory}/{name}.{rank}.go", encoding="ascii") as go:
            for line in go:
                kind, count, iterations = map(int, line.split())
                operation = OPERATIONS[kind]
                run = ways(rank, size, whole[:count], got[:count])[operation]
                roots = 2 if operation == "send" else size
                start = time.monotonic_ns()
                for i in range(0 if roots == 2 and rank > 1 else iterations):
                    run(i % roots)
                print(start, time.monotonic_ns(), file=done, flush=True)


main()
