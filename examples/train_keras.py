#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small convolutional network on Fashion-MNIST with Keras 3, on TensorFlow, PyTorch or JAX, by model.fit().

    KERAS_BACKEND=jax byteps run -n 2 -s 1 -- python3 examples/train_keras.py

--batch-size is the batch of the whole job: each worker has its part of the images, and batches of that size divided by
the number of workers. The learning rate is that of the whole batch, and is raised slowly.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # warnings of TensorFlow's start tell nothing here

import byteps.keras as bps
import chart
import keras
import numpy
import training
from fashion_mnist import CLASSES, DEVIATION, MEAN


def network():
    """Two convolutions and two full layers, 215,370 weights."""
    layers = keras.layers
    return keras.Sequential([
        keras.Input((28, 28, 1)),
        layers.Conv2D(16, 5, padding="same", activation="relu"), layers.MaxPooling2D(),
        layers.Conv2D(32, 5, padding="same", activation="relu"), layers.MaxPooling2D(),
        layers.Flatten(), layers.Dense(128, activation="relu"), layers.Dense(CLASSES),
    ])


def pixels(images):
    """Returns what the network takes for n images: float32 of shape (n, 28, 28, 1), zero mean, unit deviation."""
    return ((images[..., numpy.newaxis] / 255 - MEAN) / DEVIATION).astype(numpy.float32)


class Losses(keras.callbacks.Callback):
    """Keeps the loss of each epoch, the mean over all workers, and stops when it is no longer a number."""

    def __init__(self):
        super().__init__()
        self.curve = []

    def on_epoch_end(self, epoch, logs=None):
        self.curve.append(logs["loss"])
        if not numpy.isfinite(logs["loss"]):
            raise SystemExit("the loss is no longer a finite number: try a smaller --lr")


def same_weights(model):
    """Returns whether all workers hold exactly the same weights."""
    weights = numpy.concatenate([array.ravel() for array in model.get_weights()])
    return numpy.array_equal(bps.push_pull(weights, op=bps.Max), bps.push_pull(weights, op=bps.Min))


def main():
    options = training.parse(training.make_parser("Keras"))
    images, labels, test = training.load(options)
    bps.init()
    mine = slice(bps.rank(), len(images) // bps.size() * bps.size(), bps.size())  # as many images for each worker

    # The workers begin with different weights on purpose: the callback gives all of them those of rank 0.
    keras.utils.set_random_seed(options.seed + bps.rank())
    model = network()
    coding, momentum = training.coding(options)
    plain = keras.optimizers.SGD(options.lr, momentum, nesterov=momentum > 0)
    optimizer = bps.DistributedOptimizer(plain, compression=coding)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    losses = Losses()
    model.fit(
        pixels(images[mine]),
        labels[mine],
        batch_size=max(1, options.batch_size // bps.size()),
        epochs=options.epochs,
        verbose=2 if bps.rank() == 0 else 0,
        callbacks=[
            bps.callbacks.BroadcastGlobalVariablesCallback(0),
            bps.callbacks.MetricAverageCallback(),
            bps.callbacks.LearningRateWarmupCallback(warmup_epochs=1, verbose=bps.rank() == 0),
            losses,
        ],
    )
    part = [array[bps.rank() :: bps.size()] for array in test]
    _, accuracy = model.evaluate(pixels(part[0]), part[1], verbose=0)
    accuracy = bps.push_pull(accuracy, name="accuracy")
    if not same_weights(model):
        raise SystemExit("the workers hold different weights: this must not happen")
    training.say(f"workers         {bps.size()}, all with the same weights at the end")
    training.say(f"test accuracy   {100 * accuracy:.2f} %")
    if options.output and bps.rank() == 0:
        chart.save_png(options.output, losses.curve, f"training loss, workers: {bps.size()}", options.epochs)
    bps.shutdown()


if __name__ == "__main__":
    main()
