# SPDX-License-Identifier: Apache-2.0
"""Trains as examples/train_tensorflow.py does, in one process without BytePS; prints the loss of each step."""

import json
import sys

import curves
import fashion_mnist
import tensorflow as tf
import train_tensorflow

images, labels = fashion_mnist.load("train")
tf.keras.utils.set_random_seed(curves.SEED)
model = train_tensorflow.network()
variables = model.trainable_variables
velocity = [tf.Variable(tf.zeros(variable.shape)) for variable in variables]


@tf.function
def train(inputs, targets, rate):
    with tf.GradientTape() as tape:
        output = model(train_tensorflow.pixels(inputs))
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(targets, output))
    for variable, speed, gradient in zip(variables, velocity, tape.gradient(loss, variables)):
        gradient += 5e-4 * variable
        speed.assign(0.9 * speed - rate * gradient)
        variable.assign_add(0.9 * speed - rate * gradient)
    return loss


rate = float(sys.argv[1])
print(json.dumps([
    float(train(images[batch], labels[batch], tf.constant(rate * factor))) for batch, factor in curves.plan()
]))
