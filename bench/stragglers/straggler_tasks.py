# SPDX-License-Identifier: Apache-2.0
"""What is trained: small networks, as four workers share few cores, with the data of ../compare/coded_tasks.py."""

import os
import sys

import torch
from torch import nn

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "compare"))

import coded_tasks  # noqa: E402  (it lies in the folder that was just added)
import fashion_mnist  # noqa: E402  (in one that it adds)


class Task:
    """Samples to train on and to test with; a worker's batch has BATCH of them."""

    def batch(self, draw):
        chosen = torch.randint(len(self.inputs), (self.BATCH,), generator=draw)
        return self.inputs[chosen], self.targets[chosen]

    @torch.no_grad()
    def accuracy(self, network):
        answers = network(self.test_inputs).argmax(-1)
        counted = self.test_targets != coded_tasks.IGNORED
        return float((answers == self.test_targets)[counted].float().mean())


def made_images(count, seed):
    """A stand-in where the files are not there: ten images of random shapes, moved, faded and below noise."""
    draw = torch.Generator().manual_seed(0)
    shapes = nn.functional.interpolate(torch.randn(10, 1, 7, 7, generator=draw), 28, mode="bilinear")[:, 0]
    draw.manual_seed(seed)
    targets = torch.randint(10, (count,), generator=draw)
    moves = torch.randint(-2, 3, (count, 2), generator=draw).tolist()
    images = torch.stack([shapes[kind].roll(move, (0, 1)) for kind, move in zip(targets.tolist(), moves)])
    return (images + 1.5 * torch.randn(images.shape, generator=draw)).flatten(1), targets


class Fashion(Task):
    """Images of clothes by a network of two full layers: 0.8 MB."""

    BATCH, TESTED, WIDTH = 32, 2000, 256
    AVERAGED, ADDED = {"lr": 0.03, "momentum": 0.9}, {"lr": 0.0375, "momentum": 0.5}
    """Four workers that add change as much as their average; what they do not know of each other acts as momentum."""

    def __init__(self, how):
        self.inputs, self.targets = self._samples(how["data"], "train")
        tests = self._samples(how["data"], "t10k")
        self.test_inputs, self.test_targets = (each[: self.TESTED] for each in tests)

    @staticmethod
    def _samples(folder, part):
        if folder is None:
            return made_images(*{"train": (12_000, 1), "t10k": (2000, 2)}[part])
        images, labels = fashion_mnist.load(part, folder)
        pixels = (torch.from_numpy(images).float() / 255 - fashion_mnist.MEAN) / fashion_mnist.DEVIATION
        return pixels.flatten(1), torch.from_numpy(labels)

    def network(self):
        return nn.Sequential(nn.Linear(28 * 28, self.WIDTH), nn.ReLU(), nn.Linear(self.WIDTH, fashion_mnist.CLASSES))

    def optimizer(self, network, adds):
        return torch.optim.SGD(network.parameters(), **(self.ADDED if adds else self.AVERAGED))


class Transformer(coded_tasks.Transformer):
    WIDTH = 64


class Text(Task):
    """Verbs of nested sentences by a small transformer: 0.5 MB."""

    BATCH, TESTED = 8, 100
    AVERAGED, ADDED = {"lr": 0.005}, {"lr": 0.0025}

    def __init__(self, how):
        del how
        self.inputs, self.targets = coded_tasks.text(4000, 1)
        self.test_inputs, self.test_targets = coded_tasks.text(self.TESTED, 2)

    def network(self):
        return Transformer()

    def optimizer(self, network, adds):
        return torch.optim.AdamW(network.parameters(), **(self.ADDED if adds else self.AVERAGED))


TASKS = {"Fashion-MNIST": Fashion, "text": Text}
