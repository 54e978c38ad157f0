# SPDX-License-Identifier: Apache-2.0
"""Training whose steps its timeline is to have; the argument says which."""

import sys

import torch

import byteps.torch as bps
from byteps.torch.cross_barrier import CrossBarrier
from byteps.torch.parallel import DistributedDataParallel

STEPS = 6
FROZEN = (2, 3)
WIDTH = 200
"""Layers so large that each gradient is pushed by itself."""


def make(name):
    """Return a model and an optimizer whose tensors have this name in theirs."""
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH))
    named = [(f"{name}.{key}", value) for key, value in model.named_parameters()]
    return model, torch.optim.SGD(model.parameters(), 0.1), named


def train(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(2, WIDTH)).sum().backward()
    optimizer.step()


def freeze(model, step):
    for parameter in model[0].parameters():
        parameter.requires_grad_(step not in FROZEN)


def run_frozen():
    model, optimizer, named = make("one")
    optimizer = bps.DistributedOptimizer(optimizer, named)
    for step in range(STEPS):
        freeze(model, step)
        train(model, optimizer)
        bps.push_pull(torch.ones(1), name="metric")  # after the step, so of the next one
        bps.push_pull(torch.ones(1), name="metric")


def run_cross_barrier():
    model, optimizer, named = make("one")
    optimizer = CrossBarrier(model, optimizer, named, num_steps=STEPS)
    for _ in range(STEPS):
        train(model, optimizer)


def run_parallel():
    model, optimizer, _ = make("one")
    model = DistributedDataParallel(model)
    for step in range(STEPS):
        freeze(model.module, step)
        train(model, optimizer)


def run_two():
    """The second one makes a step after each second one of the first; then it is alone, and decides."""
    (first, one, names), (second, two, others) = make("one"), make("two")
    one, two = bps.DistributedOptimizer(one, names), bps.DistributedOptimizer(two, others)
    for step in range(STEPS):
        train(first, one)
        if step % 2 == 1:
            train(second, two)
    for _ in range(2):
        train(second, two)


def run_program():
    """It says that two of the optimizer's steps are one; step 0 is what was before."""
    model, optimizer, named = make("one")
    optimizer = bps.DistributedOptimizer(optimizer, named)
    bps.step()
    for _ in range(STEPS // 2):
        train(model, optimizer)
        train(model, optimizer)
        bps.step()


bps.step()  # without effect, as there is no job
bps.init()
globals()[f"run_{sys.argv[1]}"]()
bps.shutdown()
print("passed 1")
