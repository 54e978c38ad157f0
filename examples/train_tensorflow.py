#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small convolutional network on Fashion-MNIST with TensorFlow and every worker of a BytePS job.

    byteps run -n 2 -s 1 -- python3 examples/train_tensorflow.py --output loss.png

--batch-size is the batch of the whole job. Each worker takes its share of every batch, so the loss curve does not
depend on the number of workers, but for the rounding of sums.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # warnings of TensorFlow's start tell nothing here

import byteps.tensorflow as bps
import numpy
import tensorflow as tf
import training
from fashion_mnist import CLASSES, DEVIATION, MEAN


def network():
    """Two convolutions and two full layers, 215,370 weights.

    No dropout and no batch statistics: what a sample contributes must not depend on its neighbours, or the
    same batch would train differently when it is split over more workers.
    """
    layers = tf.keras.layers
    return tf.keras.Sequential([
        layers.Input((28, 28, 1)),
        layers.Conv2D(16, 5, padding="same", activation="relu"), layers.MaxPooling2D(),
        layers.Conv2D(32, 5, padding="same", activation="relu"), layers.MaxPooling2D(),
        layers.Flatten(), layers.Dense(128, activation="relu"), layers.Dense(CLASSES),
    ])


def pixels(images):
    """Returns what the network takes for n images: float32 of shape (n, 28, 28, 1), zero mean, unit deviation."""
    return (tf.cast(images[..., tf.newaxis], tf.float32) / 255 - MEAN) / DEVIATION


class Trainer(training.Trainer):
    """One worker's model and optimizer."""

    def __init__(self, options, data):
        super().__init__(options, data)
        # The workers begin with different weights on purpose: the broadcast gives all of them those of rank 0.
        tf.keras.utils.set_random_seed(options.seed + bps.rank())
        self.model = network()
        bps.broadcast_variables(self.model.variables, root_rank=0)
        self.coding, momentum = training.coding(options)
        self.optimizer = tf.keras.optimizers.SGD(options.lr, momentum=momentum, nesterov=momentum > 0)

    # The number of images is left open: shares differ in size where the workers do not divide the batch.
    @tf.function(input_signature=[tf.TensorSpec((None, 28, 28), tf.uint8), tf.TensorSpec((None,), tf.int64),
                                  tf.TensorSpec((), tf.float32)])
    def train(self, images, labels, scale):
        """Makes one step on this worker's share of a batch and returns its part of the loss."""
        with tf.GradientTape() as tape:
            output = self.model(pixels(images), training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, output)
            loss = tf.reduce_sum(losses) * scale
        tape = bps.DistributedGradientTape(tape, compression=self.coding)
        variables = self.model.trainable_variables
        gradients = tape.gradient(loss, variables)
        decayed = [gradient + training.WEIGHT_DECAY * variable for gradient, variable in zip(gradients, variables)]
        self.optimizer.apply_gradients(zip(decayed, variables))
        return loss

    @tf.function(input_signature=[tf.TensorSpec((None, 28, 28), tf.uint8)])
    def classes(self, images):
        return tf.argmax(self.model(pixels(images), training=False), axis=1)

    def step(self, batch, rate):
        mine = self.share(batch)
        self.optimizer.learning_rate.assign(rate)
        # Shares may differ in size. With this factor the average over the workers is the mean over the batch.
        return float(self.train(self.images[mine], self.labels[mine], bps.size() / len(batch)))

    def count_right(self, images, labels):
        return int(numpy.sum(self.classes(images).numpy() == labels))

    def weights(self):
        return numpy.concatenate([weights.ravel() for weights in self.model.get_weights()])


def main():
    options = training.parse(training.make_parser("TensorFlow"))
    data = training.load(options)
    bps.init()
    share = max(1, len(os.sched_getaffinity(0)) // bps.local_size())
    tf.config.threading.set_intra_op_parallelism_threads(share)
    tf.config.set_visible_devices(tf.config.list_physical_devices("GPU")[bps.local_rank():bps.local_rank() + 1], "GPU")
    training.Job(Trainer(options, data)).train()
    bps.shutdown()


if __name__ == "__main__":
    main()
