# SPDX-License-Identifier: Apache-2.0
"""What BytePS adds to a step of training where the network costs nothing: one worker of a job on one host.

    step.py ROUNDS FILE

The model is ResNet-50 on random images. In each round some steps of the plain optimizer, then as many of
DistributedOptimizer and of DistributedDataParallel; all workers do the same at the same time. Worker 0 writes
the times (seconds) of a step in all rounds as JSON.
"""

import json
import pathlib
import sys
import time

import torch

import byteps.torch as bps
from byteps.torch.parallel import DistributedDataParallel

STEPS = 5
BATCH = 32


class Bottleneck(torch.nn.Module):
    """Three convolutions beside a shortcut (He et al. 2015, figure 5)."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.path = torch.nn.Sequential(
            *convolution(inputs, width, 1),
            torch.nn.ReLU(),
            *convolution(width, width, 3, stride),
            torch.nn.ReLU(),
            *convolution(width, 4 * width, 1),
        )
        straight = stride == 1 and inputs == 4 * width
        self.shortcut = torch.nn.Sequential(*([] if straight else convolution(inputs, 4 * width, 1, stride)))

    def forward(self, x):
        return torch.relu(self.path(x) + self.shortcut(x))


def convolution(inputs, outputs, size, stride=1):
    layer = torch.nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return [layer, torch.nn.BatchNorm2d(outputs)]


def resnet50():
    layers = [*convolution(3, 64, 7, 2), torch.nn.ReLU(), torch.nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            layers.append(Bottleneck(inputs, 64 << stage, 2 if stage > 0 and block == 0 else 1))
            inputs = 256 << stage
    layers += [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(inputs, 1000)]
    return torch.nn.Sequential(*layers)


class Training:
    """A model, what runs it, and its optimizer."""

    def __init__(self, how):
        self.run = model = resnet50().cuda()
        self.optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
        if how == "DistributedOptimizer":
            bps.broadcast_parameters(model.state_dict())
            self.optimizer = bps.DistributedOptimizer(self.optimizer, model.named_parameters())
        elif how == "DistributedDataParallel":
            self.run = DistributedDataParallel(model, broadcast_buffers=False)
        self.images = torch.randn(BATCH, 3, 224, 224, device="cuda")
        self.labels = torch.randint(1000, (BATCH,), device="cuda")

    def step(self):
        self.optimizer.zero_grad()
        torch.nn.functional.cross_entropy(self.run(self.images), self.labels).backward()
        self.optimizer.step()

    def time(self):
        """The time of a step."""
        torch.cuda.synchronize()
        bps.barrier()
        start = time.perf_counter()
        for _ in range(STEPS):
            self.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / STEPS


def main():
    rounds = int(sys.argv[1])
    bps.init()
    torch.cuda.set_device(bps.local_rank() % torch.cuda.device_count())
    trainings = {how: Training(how) for how in ("plain", "DistributedOptimizer", "DistributedDataParallel")}
    times = {how: [] for how in trainings}
    for _ in range(rounds + 1):
        for how, training in trainings.items():
            times[how].append(training.time())
    if bps.rank() == 0:
        seconds = {how: values[1:] for how, values in times.items()}  # the first one warms up
        pathlib.Path(sys.argv[2]).write_text(json.dumps(seconds) + "\n", encoding="ascii")
    bps.shutdown()


if __name__ == "__main__":
    main()
