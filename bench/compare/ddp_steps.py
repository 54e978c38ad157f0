# SPDX-License-Identifier: Apache-2.0
"""A worker that makes steps of a model of full layers by torch's DistributedDataParallel, with backend gloo, or byteps
where it is not told a rank.

usage: ddp_steps.py DIRECTORY NAME PARAMETERS [RANK SIZE]

A line is whether gradients are averaged (1) or each worker computes alone (0), and a number of steps; the answer has
the moments at which these began and ended (round.h).
"""

import contextlib
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

WIDTH, BATCH = 1024, 4


def join(directory, name, place):
    if place:
        rank, size = map(int, place)
        store = dist.FileStore(os.path.join(directory, f"{name}.store"), size)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    else:
        import byteps.torch.distributed  # noqa: F401  (it makes the backend known)

        dist.init_process_group("byteps", init_method="byteps://")


def main():
    directory, name, parameters, *place = sys.argv[1:]
    torch.set_num_threads(1)
    join(directory, name, place)
    layers = [nn.Linear(WIDTH, WIDTH) for _ in range(max(1, round(int(parameters) / WIDTH / (WIDTH + 1))))]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    samples = torch.randn(BATCH, WIDTH)
    rank = dist.get_rank()
    with open(f"{directory}/{name}.{rank}.done", "w", encoding="ascii") as done:
        print(os.getpid(), file=done, flush=True)
        with open(f"{directory}/{name}.{rank}.go", encoding="ascii") as go:
            for line in go:
                averaged, steps = map(int, line.split())
                start = time.monotonic_ns()
                for _ in range(steps):
                    optimizer.zero_grad()
                    with contextlib.nullcontext() if averaged else model.no_sync():
                        model(samples).square().mean().backward()
                    optimizer.step()
                print(start, time.monotonic_ns(), file=done, flush=True)
    dist.destroy_process_group()


main()
