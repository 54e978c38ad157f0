# SPDX-License-Identifier: Apache-2.0
"""Trains as examples/train_jax.py does, in one process without BytePS; prints the loss of each step."""

import json
import sys

import curves
import fashion_mnist
import jax
import train_jax

images, labels = fashion_mnist.load("train")
weights = train_jax.first_weights(jax.random.key(curves.SEED))
velocity = jax.tree_util.tree_map(jax.numpy.zeros_like, weights)


@jax.jit
def train(weights, velocity, inputs, targets, rate):
    def mean(weights):
        return train_jax.sum_of_losses(weights, inputs, targets) / curves.BATCH

    loss, gradients = jax.value_and_grad(mean)(weights)
    decayed = jax.tree_util.tree_map(lambda g, w: g + 5e-4 * w, gradients, weights)
    velocity = jax.tree_util.tree_map(lambda v, g: 0.9 * v + g, velocity, decayed)
    weights = jax.tree_util.tree_map(lambda w, v, g: w - rate * (0.9 * v + g), weights, velocity, decayed)
    return weights, velocity, loss


losses = []
for batch, factor in curves.plan():
    weights, velocity, loss = train(weights, velocity, images[batch], labels[batch], float(sys.argv[1]) * factor)
    losses.append(float(loss))
print(json.dumps(losses))
