# SPDX-License-Identifier: Apache-2.0
"""A search for the best model in one process: models come and go, and nothing of them stays in any process."""

import gc
import os

import checks
import torch

import byteps.torch as bps

MODELS, WARM = 160, 40
LIMITS = {"worker": 5 << 20, "server": 4 << 20, "scheduler": 2 << 20}
MEASURED = not os.environ.get("SANITIZER")  # sanitizers keep for a while what was freed


def train(number):
    """A model of 48 tensors, of few or many elements; its gradients are right in each step."""
    width = (4, 4, 40, 120)[number % 4] if number < 20 or number % 10 == 0 else 4
    layers = [torch.nn.Linear(width, width) for _ in range(24)]
    model = torch.nn.Sequential(*layers)
    optimizer = bps.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.0), model.named_parameters(), op=bps.Sum)
    for step in range(3 if number % 7 == 0 else 1):
        optimizer.zero_grad()
        (layers[-1](torch.full((1, width), float(number + step + bps.rank())))).sum().backward()
        optimizer.step()
        expected = bps.size() * (number + step) + sum(range(bps.size()))
        assert torch.equal(layers[-1].weight.grad, torch.full((width, width), float(expected))), number
        assert torch.equal(layers[-1].bias.grad, torch.full((width,), float(bps.size()))), number


def resident(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def processes():
    """{role: pid} of this worker and the parts beside it."""
    found = {"worker": os.getpid()}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
            with open(f"/proc/{name}/cmdline") as file:
                words = file.read().split("\0")
        except OSError:
            continue
        if parent == os.getppid() and len(words) > 1 and words[1] in LIMITS:
            found[words[1]] = int(name)
    return found


def check_models_that_come_and_go():
    before = {}
    gc.freeze()  # what PyTorch consists of need not be looked at in each collection
    for number in range(MODELS):
        train(number)
        if bps.rank() == 0 or number % 5 == 0:
            gc.collect()  # not on all workers at the same time
        if number == WARM:
            gc.collect()
            before = {role: (pid, resident(pid)) for role, pid in processes().items()}
            objects = len(gc.get_objects())
    gc.collect()
    assert len(gc.get_objects()) - objects < MODELS - WARM, "each model leaves objects behind"
    bps.barrier()
    assert len(before) >= 2, before
    grown = {role: resident(pid) - size for role, (pid, size) in before.items()}
    within = all(size < LIMITS[role] for role, size in grown.items())
    assert within or not MEASURED, f"memory has grown by {grown}"


if __name__ == "__main__":
    torch.set_num_threads(1)
    checks.main(globals(), bps)
