# SPDX-License-Identifier: Apache-2.0
"""What a training step takes with a model of thousands of tiny parameters: alone, with DistributedOptimizer, and with
PyTorch's DistributedDataParallel over gloo, by turns; worker 0 prints JSON.

usage: steps.py STEPS DIRECTORY
"""

import json
import statistics
import sys
import time

import torch
import torch.distributed
import torch.nn

import byteps.torch as bps

PARAMETERS, ELEMENTS, WARM = 2000, 32, 5


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = torch.nn.ParameterList(torch.nn.Parameter(torch.randn(ELEMENTS)) for _ in range(PARAMETERS))

    def forward(self, batch):
        return torch.stack([(part * batch).sum() for part in self.parts]).sum()


def contestants():
    """Yields the name of each, its model and its optimizer."""
    for name in ("alone", "byteps", "ddp"):
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        if name == "byteps":
            optimizer = bps.DistributedOptimizer(optimizer, model.named_parameters())
        elif name == "ddp":
            model = torch.nn.parallel.DistributedDataParallel(model)
        yield name, model, optimizer


def step(model, optimizer, batch):
    """Makes one step, which all workers begin together; returns its seconds."""
    bps.barrier()
    start = time.perf_counter()
    optimizer.zero_grad()
    model(batch).backward()
    optimizer.step()
    return time.perf_counter() - start


def main():
    steps, directory = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    bps.init()
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{directory}/store", rank=bps.rank(), world_size=bps.size()
    )
    batch, all_of_them = torch.randn(ELEMENTS), list(contestants())
    times = {name: [] for name, _, _ in all_of_them}
    for _ in range(WARM + steps):
        for name, model, optimizer in all_of_them:
            times[name].append(step(model, optimizer, batch))
    if bps.rank() == 0:
        ratios = [ours / theirs for ours, theirs in zip(times["byteps"][WARM:], times["ddp"][WARM:])]
        medians = {name: 1e3 * statistics.median(taken[WARM:]) for name, taken in times.items()}
        print(json.dumps({**medians, "ratio": statistics.median(ratios)}), flush=True)
    torch.distributed.destroy_process_group()
    bps.shutdown()


if __name__ == "__main__":
    main()
