# SPDX-License-Identifier: Apache-2.0
"""What coded_training.py trains: networks with much to send for what they compute, their data, and when they are right.

A task is a network, a learning rate, and samples: inputs with a target for each place that counts, IGNORED elsewhere.
"""

import os
import sys

import numpy
import torch
from torch import nn

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'examples'))

import fashion_mnist  # noqa: E402  (found by the line above)

IGNORED = -100  # as for cross_entropy()


class Fashion:
    """Images of clothes by a network of full layers, 2.2 million weights."""

    batch, rate, WIDTH = 256, 0.05, 1152

    def samples(self, part):
        images, labels = fashion_mnist.load({'train': 'train', 'test': 't10k'}[part])
        pixels = (torch.from_numpy(images).float() / 255 - fashion_mnist.MEAN) / fashion_mnist.DEVIATION
        return pixels.flatten(1), torch.from_numpy(labels)

    def network(self):
        return nn.Sequential(
            nn.Linear(28 * 28, self.WIDTH), nn.ReLU(), nn.Linear(self.WIDTH, self.WIDTH), nn.ReLU(),
            nn.Linear(self.WIDTH, fashion_mnist.CLASSES))


# ---- text ----

NOUNS, KINDS = 64, 8  # a noun is of a kind, and singular or plural: its verb agrees with both
FIRST_VERB, THAT, STOP = 2 * NOUNS, 2 * NOUNS + 2 * KINDS, 2 * NOUNS + 2 * KINDS + 1
WORDS, LENGTH, DEPTH = STOP + 1, 48, 3


def clause(random, depth):
    """A noun, perhaps clauses about it, and its verb: [(word, whether it follows from what was before)]."""
    noun, plural = random.integers(NOUNS), random.integers(2)
    inner = []
    if depth < DEPTH and random.random() < 0.5:
        inner = [(THAT, False), *clause(random, depth + 1)]
    return [(2 * noun + plural, False), *inner, (FIRST_VERB + 2 * (noun % KINDS) + plural, True)]


def text(count, seed):
    """Texts of LENGTH words and the next word of each; only verbs count."""
    random = numpy.random.default_rng(seed)
    words = numpy.empty((count, LENGTH), numpy.int64)
    targets = numpy.full((count, LENGTH), IGNORED)
    for row in range(count):
        line = []
        while len(line) <= LENGTH:
            line += [*clause(random, 1), (STOP, False)]
        words[row] = [word for word, _ in line[:LENGTH]]
        targets[row] = [word if follows else IGNORED for word, follows in line[1:LENGTH + 1]]
    return torch.from_numpy(words), torch.from_numpy(targets)


class Transformer(nn.Module):
    """Words to the next word: two layers, 0.4 million weights."""

    WIDTH, HEADS, LAYERS = 128, 4, 2

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, self.WIDTH), nn.Embedding(LENGTH, self.WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(self.WIDTH, self.HEADS, 4 * self.WIDTH, dropout=0, batch_first=True,
                                       norm_first=True) for _ in range(self.LAYERS))
        self.last = nn.Sequential(nn.LayerNorm(self.WIDTH), nn.Linear(self.WIDTH, WORDS))
        self.register_buffer('later', nn.Transformer.generate_square_subsequent_mask(LENGTH), persistent=False)

    def forward(self, words):
        values = self.words(words) + self.places.weight
        for layer in self.layers:
            values = layer(values, src_mask=self.later, is_causal=True)
        return self.last(values)


class Text:
    """Verbs of a language whose sentences are nested: noun that noun verb verb, as in `cats that a dog sees run`."""

    batch, rate = 32, 0.1

    def samples(self, part):
        return text(*{'train': (12_000, 1), 'test': (500, 2)}[part])

    def network(self):
        return Transformer()


TASKS = {'Fashion-MNIST': Fashion, 'text': Text}
