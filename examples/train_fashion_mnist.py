#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small convolutional network on Fashion-MNIST with PyTorch and every worker of a BytePS job.

    byteps run -n 2 -s 1 -- python3 examples/train_fashion_mnist.py --output loss.png

--batch-size is the batch of the whole job. Each worker takes its share of every batch, so the loss curve does not
depend on the number of workers, but for the rounding of sums.

With --compress onebit gradients are coded by that compressor on the network, and what this loses is made good in later
steps. Workers of one host must then not sum among themselves:

    byteps run -n 2 -s 1 --set worker.hierarchy=off -- python3 examples/train_fashion_mnist.py --compress onebit
"""

import os

import byteps.torch as bps
import torch
import training
from fashion_mnist import CLASSES, DEVIATION, MEAN
from torch import nn


def network():
    """Two convolutions and two full layers, 215,370 weights.

    No dropout and no batch statistics: what a sample contributes must not depend on its neighbours, or the
    same batch would train differently when it is split over more workers.
    """
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, CLASSES),
    )


def pixels(images):
    """Returns what the network takes for n images: float32 of shape (n, 1, 28, 28), zero mean, unit deviation."""
    return (images.unsqueeze(1).float() / 255 - MEAN) / DEVIATION


def choose_device(options):
    """Returns the device of this worker: those of a host share its GPUs."""
    if options.device == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", bps.local_rank() % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


class Trainer(training.Trainer):
    """One worker's model and optimizer."""

    def __init__(self, options, data):
        super().__init__(options, data)
        self.device = choose_device(options)
        self.inputs, self.targets = map(self.tensor, (self.images, self.labels))
        # The workers begin with different weights on purpose: the broadcast gives all of them those of rank 0.
        torch.manual_seed(options.seed + bps.rank())
        self.model = network().to(self.device)
        bps.broadcast_parameters(self.model.state_dict(), root_rank=0)
        coding, momentum = training.coding(options)
        plain = torch.optim.SGD(self.model.parameters(), lr=options.lr, momentum=momentum, nesterov=momentum > 0,
                                weight_decay=training.WEIGHT_DECAY)
        self.optimizer = bps.DistributedOptimizer(plain, self.model.named_parameters(), compression=coding)

    def tensor(self, array):
        return torch.from_numpy(array).to(self.device)

    def step(self, batch, rate):
        mine = self.share(batch)
        output = self.model(pixels(self.inputs[mine]))
        # Shares may differ in size. With this factor the average over the workers is the mean over the batch.
        loss = nn.functional.cross_entropy(output, self.targets[mine], reduction="sum") * bps.size() / len(batch)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def count_right(self, images, labels):
        return int((self.model(pixels(self.tensor(images))).argmax(1) == self.tensor(labels)).sum())

    def weights(self):
        return torch.cat([parameter.detach().flatten() for parameter in self.model.parameters()]).cpu().numpy()

    def seconds_waited(self):
        return self.optimizer.seconds_waited


def main():
    parser = training.make_parser("PyTorch")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu",
                        help="where to train; cuda needs the setting worker.use=cuda (%(default)s)")
    options = training.parse(parser)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch finds no GPU here")
    data = training.load(options)
    bps.init()
    share = max(1, len(os.sched_getaffinity(0)) // bps.local_size())
    torch.set_num_threads(min(share, torch.get_num_threads()))
    training.Job(Trainer(options, data)).train()
    bps.shutdown()


if __name__ == "__main__":
    main()
