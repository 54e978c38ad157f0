# SPDX-License-Identifier: Apache-2.0
"""Programs as people write them for TensorFlow, those of the original's examples among them."""

import checks
import numpy as np
import tensorflow as tf

import byteps.tensorflow as bps
from byteps.tensorflow.distribute import MirroredStrategy

tf.get_logger().setLevel("ERROR")
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)


def equal_everywhere(variables):
    for variable in variables:
        highest, lowest = bps.push_pull(variable, op=bps.Max), bps.push_pull(variable, op=bps.Min)
        assert np.array_equal(highest, lowest), variable.name
        assert np.all(np.isfinite(highest)), variable.name


def check_benchmark():
    """The original's synthetic benchmark: it broadcasts within the function of the first step."""
    tf.keras.utils.set_random_seed(bps.rank())
    layers = [tf.keras.layers.Dense(64, activation="relu") for _ in range(20)]
    model = tf.keras.Sequential([tf.keras.layers.Input((32,)), *layers, tf.keras.layers.Dense(10)])
    optimizer = tf.optimizers.SGD(0.01)
    data = tf.random.uniform([4, 32])
    target = tf.random.uniform([4, 1], minval=0, maxval=9, dtype=tf.int64)

    @tf.function
    def benchmark_step(first_batch):
        with tf.GradientTape() as tape:
            output = model(data, training=True)
            loss = tf.reduce_mean(tf.losses.sparse_categorical_crossentropy(target, output, from_logits=True))
        tape = bps.DistributedGradientTape(tape, compression=bps.Compression.fp16)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        if first_batch:
            bps.broadcast_variables(model.variables, root_rank=0)
            bps.broadcast_variables(optimizer.variables, root_rank=0)

    benchmark_step(first_batch=True)
    for _ in range(5):
        benchmark_step(first_batch=False)
    equal_everywhere(model.trainable_variables)


def check_mirrored_fit():
    """Keras under a strategy over two devices of each worker."""
    generator = np.random.default_rng(bps.rank())
    inputs = generator.normal(size=(256, 8)).astype("float32")
    with MirroredStrategy(["/cpu:0", "/cpu:1"]).scope():
        layers = [tf.keras.layers.Dense(16, activation="tanh"), tf.keras.layers.Dense(1)]
        model = tf.keras.Sequential([tf.keras.layers.Input((8,)), *layers])
        model.compile(loss="mse", optimizer=tf.keras.optimizers.Adam(0.01))
    bps.broadcast_variables(model.variables, 0)
    losses = model.fit(inputs, np.sin(inputs).sum(1, keepdims=True), batch_size=32, epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0] / 2, losses
    equal_everywhere(model.trainable_variables)


def check_two_tapes_in_a_function():
    """As of a generator and a discriminator."""
    first, second = tf.Variable(tf.ones(10)), tf.Variable(tf.ones(20))

    @tf.function
    def step(factor):
        with tf.GradientTape() as one, tf.GradientTape() as other:
            losses = tf.reduce_sum(first * factor), tf.reduce_sum(second * second) * factor
        one, other = bps.DistributedGradientTape(one), bps.DistributedGradientTape(other)
        return one.gradient(losses[0], first), other.gradient(losses[1], second)

    mean = np.mean([rank + 1.0 for rank in range(bps.size())])
    for _ in range(20):
        gradients = step(tf.constant(bps.rank() + 1.0))
        assert np.allclose(gradients[0], mean) and np.allclose(gradients[1], 2 * mean), gradients


def check_a_persistent_tape():
    """It is asked twice for the gradients of the same variable."""
    variable = tf.Variable(tf.ones(5))

    @tf.function
    def step(factor):
        with tf.GradientTape(persistent=True) as tape:
            losses = tf.reduce_sum(variable * 2.0), tf.reduce_sum(variable * factor)
        tape = bps.DistributedGradientTape(tape, op=bps.Sum)
        return [tape.gradient(loss, [variable])[0] for loss in losses]

    for _ in range(5):
        first, second = step(tf.constant(bps.rank() + 1.0))
        assert np.all(first == 2.0 * bps.size()) and np.all(second == sum(range(1, bps.size() + 1)))


def check_mixed_precision():
    """A loop of one's own with a LossScaleOptimizer: an infinity on one worker makes all leave out the step."""
    scaled = tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.SGD(0.01), initial_scale=1024.0)
    variable = tf.Variable(tf.ones(4))
    scaled.build([variable])

    @tf.function
    def step(inputs):
        with tf.GradientTape() as tape:
            loss = scaled.scale_loss(tf.reduce_sum(variable * inputs))
        gradient = bps.DistributedGradientTape(tape).gradient(loss, variable)
        scaled.apply_gradients([(gradient, variable)])

    for number in range(6):
        before = variable.numpy()
        wrong = number == 3 and bps.rank() == bps.size() - 1
        step(tf.constant([1.0, 2.0, 3.0, 4.0]) * (np.inf if wrong else 1.0))
        assert np.array_equal(before, variable) == (number == 3), number
    equal_everywhere([variable])


def check_clipping():
    variable = tf.Variable(tf.ones(4))

    @tf.function
    def step(factor):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable * factor)
        gradients = bps.DistributedGradientTape(tape).gradient(loss, [variable])
        return tf.clip_by_global_norm(gradients, 1.0)

    _, norm = step(tf.constant(2.0 * bps.rank()))
    assert np.isclose(norm, 2.0 * (bps.size() - 1))  # of the mean of 0, 2, 4 .. in each of four elements


def check_shards_of_a_dataset():
    data = tf.data.Dataset.range(24).shard(bps.size(), bps.rank()).batch(2).prefetch(1)

    @tf.function
    def total():
        result = tf.constant(0, tf.int64)
        for batch in data:
            result += tf.reduce_sum(bps.push_pull(batch, op=bps.Sum, name="batch"))
        return result

    assert total() == sum(range(24))


def check_distributed_optimizer_of_keras():
    """byteps.tensorflow.DistributedOptimizer takes the optimizers of Keras, too, in a loop of one's own."""
    variable = tf.Variable(tf.ones(4))
    optimizer = bps.DistributedOptimizer(tf.keras.optimizers.SGD(1.0))

    @tf.function
    def step(factor):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable * factor)
        optimizer.apply_gradients([(tape.gradient(loss, variable), variable)])

    step(tf.constant(2.0 * bps.rank()))
    assert np.allclose(variable, 1.0 - (bps.size() - 1)), variable


if __name__ == "__main__":
    checks.main(globals(), bps)
