# SPDX-License-Identifier: Apache-2.0
"""The ways in which a worker with TensorFlow or Keras ends."""

import ends
import keras
import numpy as np
import tensorflow as tf

import byteps.keras
import byteps.tensorflow as bps

tf.get_logger().setLevel("ERROR")


@tf.function
def reduced(values):
    return [bps.push_pull(value, op=bps.Sum, name=f"values.{i}") for i, value in enumerate(values)]


def reduce(count):
    for result in reduced([tf.ones(1000)] * count):
        assert np.all(result.numpy() == bps.size())


def train(end):
    """Train in a tf.function; end() is called in the middle."""
    variable = tf.Variable(tf.ones(5000))

    @tf.function
    def step(inputs):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((variable * inputs) ** 2)
        gradient = bps.DistributedGradientTape(tape).gradient(loss, variable)
        variable.assign_sub(0.01 * gradient)
        return loss

    for number in range(30):
        if number == 15 and end is not None:
            end()
        step(tf.random.normal([5000], seed=number))


def in_session(end):
    """The same in a session of version 1."""
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        variable = v1.get_variable("x", initializer=tf.ones(5000))
        loss = tf.reduce_sum((variable * tf.random.normal([5000])) ** 2)
        step = bps.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.01)).minimize(loss)
        with v1.train.MonitoredTrainingSession(hooks=[bps.BroadcastGlobalVariablesHook(0)]) as session:
            for number in range(30):
                if number == 15 and end is not None:
                    end()
                session.run(step)


def fit(end):
    """The same by model.fit()."""

    class End(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 15 and end is not None:
                end()

    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(100), keras.layers.Dense(1)])
    model.compile(byteps.keras.DistributedOptimizer(keras.optimizers.SGD(0.001)), "mse")
    callbacks = [byteps.keras.callbacks.BroadcastGlobalVariablesCallback(0), End()]
    model.fit(np.ones((240, 64)), np.ones((240, 1)), batch_size=8, verbose=0, callbacks=callbacks)


def describe(error):
    kind = "tf.errors" if isinstance(error, tf.errors.OpError) else type(error).__module__
    return f"{kind}.{type(error).__name__}"


if __name__ == "__main__":
    loops = {"function": train, "session": in_session, "fit": fit}
    ends.main(loops, reduce, (tf.errors.OpError, RuntimeError), describe)
