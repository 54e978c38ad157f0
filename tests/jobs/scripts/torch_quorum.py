# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer where rounds end without the slowest of three workers: files in $FOLDER tell who is ready."""

import os
import pathlib
import time

import byteps.torch as bps
import checks
import torch

FOLDER = pathlib.Path(os.environ["FOLDER"])
STEPS = 5


def train(name, **how):
    """The last worker begins when the others have made all steps."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(300, 40), torch.nn.ReLU(), torch.nn.Linear(40, 3))
    unused = torch.nn.Linear(100, 100)
    named = [*model.named_parameters(), *((f"unused.{n}", p) for n, p in unused.named_parameters())]
    optimizer = bps.DistributedOptimizer(torch.optim.SGD([p for _, p in named], 0.1), named_parameters=named, **how)
    while bps.rank() == 2 and not all((FOLDER / f"{name} {rank}").exists() for rank in range(2)):
        time.sleep(0.01)
    for step in range(STEPS):
        optimizer.zero_grad()
        generator = torch.Generator().manual_seed(10 * step + bps.rank())
        model(torch.randn(8, 300, generator=generator)).square().mean().backward()
        optimizer.step()
        assert unused.weight.grad is None
    (FOLDER / f"{name} {bps.rank()}").touch()
    return model


def check_all_have_the_same():
    for name, how in (("plain", {}), ("float16", {"compression": bps.Compression.fp16})):
        for parameter in train(name, **how).parameters():
            assert torch.equal(bps.broadcast(parameter.detach(), 0), parameter)


if __name__ == "__main__":
    checks.main(globals(), bps)
