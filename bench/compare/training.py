# SPDX-License-Identifier: Apache-2.0
"""A worker that trains a small convolutional network with PyTorch, by three optimizers in turn.

usage: training.py DIRECTORY NAME

The first layers have most of the computation, the last ones most of the parameters, as in VGG-16. The driver
writes lines WAY BATCH COUNT: the place of an optimizer in WAYS, the images of a step, and the steps after one
to warm up. The answer has the moments in ns when these began and ended (round.h).
"""

import os
import sys
import time

import byteps.torch.cross_barrier as bps
import torch
from torch import nn

WAYS = ('alone', 'DistributedOptimizer', 'CrossBarrier')
SIDE = 28


def new_network():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * (SIDE // 4) ** 2, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
        nn.Linear(512, 10))


def wrap(way, network):
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)
    named = [(f'{way} {name}', parameter) for name, parameter in network.named_parameters()]
    if way == 'CrossBarrier':
        return bps.CrossBarrier(network, optimizer, named)
    return bps.DistributedOptimizer(optimizer, named) if way == 'DistributedOptimizer' else optimizer


class Training:
    def __init__(self, way):
        self.network = new_network()
        self.optimizer = wrap(way, self.network)

    def step(self, images, labels):
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.network(images), labels).backward()
        self.optimizer.step()


def main():
    directory, name = sys.argv[1:]
    torch.set_num_threads(1)
    bps.init()
    ways = [Training(way) for way in WAYS]
    with open(f'{directory}/{name}.{bps.rank()}.done', 'w', encoding='ascii') as done:
        print(os.getpid(), file=done, flush=True)
        with open(f'{directory}/{name}.{bps.rank()}.go', encoding='ascii') as go:
            for line in go:
                way, batch, count = map(int, line.split())
                images, labels = torch.randn(batch, 1, SIDE, SIDE), torch.randint(10, (batch,))
                ways[way].step(images, labels)
                start = time.monotonic_ns()
                for _ in range(count):
                    ways[way].step(images, labels)
                print(start, time.monotonic_ns(), file=done, flush=True)
    bps.shutdown()


main()
