# SPDX-License-Identifier: Apache-2.0
"""What an array of 4 KiB takes between two processes of one host, by BytePS, gloo or MPI; prints JSON.

usage: small.py numpy|torch|gloo|mpi4py DIRECTORY
"""

import json
import os
import sys
import time

ELEMENTS, REPEATS, ROUNDS = 1024, 500, 5


def microseconds(run, barrier):
    """The best of some rounds, which both processes begin together."""
    best = float("inf")
    for _ in range(200):
        run()
    for _ in range(ROUNDS):
        barrier()
        start = time.perf_counter()
        for _ in range(REPEATS):
            run()
        best = min(best, (time.perf_counter() - start) / REPEATS * 1e6)
    return best


def numpy(_):
    import numpy as np

    import byteps.numpy as bps

    bps.init()
    array = np.ones(ELEMENTS, np.float32)
    yield "byteps.numpy, push_pull_inplace()", lambda: bps.push_pull_inplace(array, name="a"), bps.barrier
    yield (
        "byteps.numpy, push_pull_async_inplace() + synchronize()",
        lambda: bps.synchronize(bps.push_pull_async_inplace(array, name="b")),
        bps.barrier,
    )


def torch(_):
    import torch

    import byteps.torch as bps

    bps.init()
    tensor = torch.ones(ELEMENTS)
    yield "byteps.torch, push_pull_inplace()", lambda: bps.push_pull_inplace(tensor, name="a"), bps.barrier
    yield (
        "byteps.torch, push_pull_async_inplace() + synchronize()",
        lambda: bps.synchronize(bps.push_pull_async_inplace(tensor, name="b")),
        bps.barrier,
    )


def gloo(directory):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", store=dist.FileStore(f"{directory}/store", 2), rank=rank, world_size=2)
    tensor = torch.ones(ELEMENTS)
    yield "gloo, torch.distributed.all_reduce()", lambda: dist.all_reduce(tensor), dist.barrier
    yield (
        "gloo, torch.distributed.all_reduce(async_op=True).wait()",
        lambda: dist.all_reduce(tensor, async_op=True).wait(),
        dist.barrier,
    )


def mpi4py(_):
    import numpy as np
    from mpi4py import MPI

    array, result = np.ones(ELEMENTS, np.float32), np.empty(ELEMENTS, np.float32)
    world = MPI.COMM_WORLD
    yield "mpi4py, Allreduce()", lambda: world.Allreduce(array, result), world.Barrier
    yield "mpi4py, Iallreduce().Wait()", lambda: world.Iallreduce(array, result).Wait(), world.Barrier


def main():
    ways = {"numpy": numpy, "torch": torch, "gloo": gloo, "mpi4py": mpi4py}[sys.argv[1]]
    print(json.dumps({name: microseconds(run, barrier) for name, run, barrier in ways(sys.argv[2])}), flush=True)


if __name__ == "__main__":
    main()
