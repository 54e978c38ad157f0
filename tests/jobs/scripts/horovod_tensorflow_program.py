# SPDX-License-Identifier: Apache-2.0
"""Programs as Horovod's examples for TensorFlow 2 and Keras are, on numbers instead of images; for --as horovod."""

import keras
import numpy as np
import tensorflow as tf

import horovod.keras
import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvdk
from horovod.tensorflow.keras.callbacks import MetricAverageCallback


def data():
    inputs = np.random.default_rng(hvd.rank()).normal(size=(64, 8)).astype("float32")
    return inputs, inputs.sum(1, keepdims=True)


def model():
    keras.utils.set_random_seed(1 + hvd.rank())
    return keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])


def same_everywhere(variables):
    """Whether all workers have the same values."""
    mine = tf.concat([tf.reshape(tf.convert_to_tensor(variable), [-1]) for variable in variables], 0)
    everybody = hvd.allgather(mine[tf.newaxis])
    return bool(tf.reduce_all(everybody == mine))


def loop():
    net, optimizer = model(), tf.keras.optimizers.SGD(0.05 * hvd.size())
    inputs, labels = data()

    @tf.function
    def step(first):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((net(inputs, training=True) - labels) ** 2)
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, net.trainable_variables)
        optimizer.apply_gradients(zip(gradients, net.trainable_variables))
        if first:
            hvd.broadcast_variables(net.variables, root_rank=0)
            hvd.broadcast_variables(optimizer.variables, root_rank=0)
        return hvd.allreduce(loss, op=hvd.Average)

    losses = [float(step(i == 0)) for i in range(60)]
    assert losses[-1] < 0.1 * losses[0], losses
    assert same_everywhere(net.variables)


def fit():
    net = model()
    net.compile(hvdk.DistributedOptimizer(keras.optimizers.SGD(0.05 * hvd.size())), "mse", jit_compile=False)
    history = net.fit(
        *data(),
        batch_size=16,
        epochs=8,
        verbose=0,
        callbacks=[
            hvdk.callbacks.BroadcastGlobalVariablesCallback(0),
            MetricAverageCallback(),
            hvdk.callbacks.LearningRateWarmupCallback(initial_lr=0.05 * hvd.size(), warmup_epochs=3, verbose=0),
        ],
    )
    losses = history.history["loss"]
    assert losses[-1] < 0.1 * losses[0], losses
    assert same_everywhere(net.variables)


if __name__ == "__main__":
    hvd.init()
    loop()
    fit()
    assert horovod.keras.allreduce(float(hvd.rank()), average=False) == sum(range(hvd.size()))
    print("passed 2")
