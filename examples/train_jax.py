#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small convolutional network on Fashion-MNIST with JAX, Optax and every worker of a BytePS job.

    byteps run -n 2 -s 1 -- python3 examples/train_jax.py --output loss.png

--batch-size is the batch of the whole job. Each worker takes its share of every batch, so the loss curve does not
depend on the number of workers, but for the rounding of sums.
"""

import byteps.jax as bps
import jax
import jax.numpy as jnp
import numpy
import optax
import training
from fashion_mnist import CLASSES, DEVIATION, MEAN
from jax import lax


def first_weights(key):
    """Returns the weights of two convolutions and two full layers, 215,370 numbers."""
    shapes = {"conv1": (5, 5, 1, 16), "conv2": (5, 5, 16, 32), "full1": (7 * 7 * 32, 128), "full2": (128, CLASSES)}
    weights = jax.nn.initializers.glorot_uniform()
    return {
        layer: {"kernel": weights(one, shape), "bias": jnp.zeros(shape[-1])}
        for (layer, shape), one in zip(shapes.items(), jax.random.split(key, len(shapes)))
    }


def convolve(layer, x):
    """Returns a convolution and, of each four pixels of that, the largest; what is negative is 0."""
    dimensions = ("NHWC", "HWIO", "NHWC")
    y = lax.conv_general_dilated(x, layer["kernel"], (1, 1), "SAME", dimension_numbers=dimensions) + layer["bias"]
    return jax.nn.relu(lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"))


def network(weights, images):
    """Returns the outputs for n images: float32 of shape (n, 10).

    No dropout and no batch statistics: what a sample contributes must not depend on its neighbours, or the
    same batch would train differently when it is split over more workers.
    """
    x = (images[..., None].astype(jnp.float32) / 255 - MEAN) / DEVIATION
    x = convolve(weights["conv2"], convolve(weights["conv1"], x)).reshape(len(images), -1)
    x = jax.nn.relu(x @ weights["full1"]["kernel"] + weights["full1"]["bias"])
    return x @ weights["full2"]["kernel"] + weights["full2"]["bias"]


def sum_of_losses(weights, images, labels):
    return jnp.sum(optax.softmax_cross_entropy_with_integer_labels(network(weights, images), labels))


def optimizer(rate, momentum):
    """Returns what makes a step; rate is the learning rate, which may be a symbol of a compiled function."""
    return optax.chain(
        optax.add_decayed_weights(training.WEIGHT_DECAY),
        optax.sgd(rate, momentum=momentum, nesterov=True),
    )


class Trainer(training.Trainer):
    """One worker's weights and optimizer."""

    def __init__(self, options, data):
        super().__init__(options, data)
        # The workers begin with different weights on purpose: the broadcast gives all of them those of rank 0.
        self.parameters = bps.broadcast_parameters(first_weights(jax.random.key(options.seed + bps.rank())))
        # The learning rate changes with each step, and is a part of the state.
        coding, momentum = training.coding(options)
        plain = optax.inject_hyperparams(optimizer, static_args="momentum")(rate=options.lr, momentum=momentum)
        self.optimizer = bps.distributed(plain, compression=coding)
        self.state = self.optimizer.init(self.parameters)
        self.train = jax.jit(self.make_step, donate_argnums=(0, 1))
        self.classes = jax.jit(lambda weights, images: jnp.argmax(network(weights, images), axis=1))

    def make_step(self, parameters, state, images, labels, scale):
        """Makes one step on this worker's share of a batch; returns the new weights and its part of the loss."""
        loss, gradients = jax.value_and_grad(lambda *its: sum_of_losses(*its) * scale)(parameters, images, labels)
        updates, state = self.optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, loss

    def step(self, batch, rate):
        mine = self.share(batch)
        self.state.hyperparams["rate"] = jnp.asarray(rate, jnp.float32)
        # Shares may differ in size. With this factor the average over the workers is the mean over the batch.
        self.parameters, self.state, loss = self.train(
            self.parameters, self.state, self.images[mine], self.labels[mine], bps.size() / len(batch)
        )
        return float(loss)

    def count_right(self, images, labels):
        return int(numpy.sum(numpy.asarray(self.classes(self.parameters, images)) == labels))

    def weights(self):
        return numpy.concatenate([numpy.ravel(array) for array in jax.tree_util.tree_leaves(self.parameters)])


def main():
    options = training.parse(training.make_parser("JAX"))
    data = training.load(options)
    bps.init()
    training.Job(Trainer(options, data)).train()
    bps.shutdown()


if __name__ == "__main__":
    main()
