#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small convolutional network on Fashion-MNIST with MXNet's Gluon and every worker of a BytePS job.

    byteps run -n 2 -s 1 -- python3 examples/train_mxnet.py --output loss.png

--batch-size is the batch of the whole job. Each worker takes its share of every batch, so the loss curve does not
depend on the number of workers, but for the rounding of sums.
"""

import byteps.mxnet as bps
import mxnet as mx
import numpy
import training
from fashion_mnist import CLASSES, DEVIATION, MEAN
from mxnet import autograd, gluon


def network():
    """Two convolutions and two full layers, 215,370 weights.

    No dropout and no batch statistics: what a sample contributes must not depend on its neighbours, or the
    same batch would train differently when it is split over more workers.
    """
    nn = gluon.nn
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(16, 5, padding=2, activation="relu", in_channels=1), nn.MaxPool2D(),
        nn.Conv2D(32, 5, padding=2, activation="relu", in_channels=16), nn.MaxPool2D(),
        nn.Flatten(), nn.Dense(128, activation="relu", in_units=7 * 7 * 32), nn.Dense(CLASSES, in_units=128),
    )
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


def pixels(images):
    """Returns what the network takes for n images: float32 of shape (n, 1, 28, 28), zero mean, unit deviation."""
    return (mx.nd.array(images, dtype="float32").expand_dims(1) / 255 - MEAN) / DEVIATION


class Trainer(training.Trainer):
    """One worker's network and optimizer."""

    def __init__(self, options, data):
        super().__init__(options, data)
        # The workers begin with different weights on purpose: the trainer gives all of them those of rank 0.
        mx.random.seed(options.seed + bps.rank())
        self.network = network()
        self.loss = gluon.loss.SoftmaxCrossEntropyLoss()
        parameters = self.network.collect_params()
        how = {"learning_rate": options.lr, "momentum": training.MOMENTUM, "wd": training.WEIGHT_DECAY}
        coding, _ = training.coding(options)  # the trainer takes momentum out of the optimizer itself
        self.trainer = bps.DistributedTrainer(parameters, "nag", how, compression_params=coding)

    def step(self, batch, rate):
        mine = self.share(batch)
        self.trainer.set_learning_rate(rate)
        with autograd.record():
            output = self.network(pixels(self.images[mine]))
            losses = self.loss(output, mx.nd.array(self.labels[mine])).sum()
        losses.backward()
        # Shares may differ in size. With this one the average over the workers is the mean over the batch.
        share = len(batch) / bps.size()
        self.trainer.step(share)
        return float(losses.asscalar()) / share

    def count_right(self, images, labels):
        return int(numpy.sum(self.network(pixels(images)).asnumpy().argmax(axis=1) == labels))

    def weights(self):
        return numpy.concatenate([
            parameter.data().asnumpy().ravel() for parameter in self.network.collect_params().values()
        ])


def main():
    options = training.parse(training.make_parser("MXNet"))
    data = training.load(options)
    bps.init()
    training.Job(Trainer(options, data)).train()
    bps.shutdown()


if __name__ == "__main__":
    main()
