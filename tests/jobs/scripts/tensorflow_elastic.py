# SPDX-License-Identifier: Apache-2.0
"""Trains in an elastic job until worker 0 sees the gate "end", and prints how far it is, with a digest of the weights.

    tensorflow_elastic.py function|assign|fit|accumulate

Each step takes the learning rate from a counter among the weights, so that a step that is lost or made twice shows. A
worker that begins anew starts with other weights than the others. With the gate "die", worker 1 kills itself in the
middle of a step: when the gradients of some layers are on their way, and others are not there.
"""

import hashlib
import os
import signal
import sys
import time

import keras
import numpy as np
import tensorflow as tf

import byteps.keras
import byteps.tensorflow as bps

WAY, RATE, BATCH = sys.argv[1], 1 / 64, 4
PASSES = 2 if WAY == "accumulate" else 1


def gate(name):
    return os.path.exists(os.path.join(os.environ["GATES"], name))


def die_if_asked():
    if first_rank == 1 and gate("die") and (len(state.numbers) + 1) % PASSES == 0:
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)


@tf.custom_gradient
def dying(x):
    """x; when its gradient is computed, that of what comes after it is there."""

    def backward(gradient):
        with tf.control_dependencies([tf.py_function(die_if_asked, [], [])]):
            return tf.identity(gradient)

    return tf.identity(x), backward


class Dying(keras.layers.Layer):
    def call(self, x):
        return dying(x)


class Counter(keras.layers.Layer):
    """Its weight has the same gradient in each step."""

    def build(self, shape):
        self.steps = self.add_weight(shape=(1,), initializer="zeros")

    def call(self, x):
        return keras.ops.square(x) + self.steps


class Words(keras.layers.Layer):
    """Adds rows of a table, whose gradient is sparse."""

    def build(self, shape):
        self.table = self.add_weight(shape=(500, shape[-1]), initializer="zeros")

    def call(self, x):
        rows = keras.ops.cast(keras.ops.abs(x[:, 0]) * 100, "int32") % 500
        return x + keras.ops.take(self.table, rows, axis=0)


class Gate(keras.callbacks.Callback):
    """Ends fit() on all workers after the same batch, and knows how far it is."""

    def on_train_batch_begin(self, batch, logs=None):
        over = bps.rank() == 0 and gate("end") and (len(state.numbers) + 1) % PASSES == 0
        self.over = byteps.keras.push_pull(float(over), "over", op=bps.Max) > 0
        assert state.place == [state.epoch, state.batch], (state.place, state.epoch, state.batch)

    def on_train_batch_end(self, batch, logs=None):
        state.numbers.append(len(state.numbers))
        state.place[1] += 1
        tell()
        self.model.stop_training = self.over

    def on_epoch_end(self, epoch, logs=None):
        state.place = [state.place[0] + 1, 0]


def tell():
    if len(state.numbers) % 50 == 3:
        print("trains", flush=True)


def digest():
    variables = [*model.trainable_variables, *(optimizer.variables if WAY != "assign" else ())]
    return hashlib.sha256(b"".join(variable.numpy().tobytes() for variable in variables)).hexdigest()[:16]


def loss_of(targets, outputs):
    return keras.ops.mean(outputs)


@tf.function
def step(batch):
    """Return how many workers there are."""
    traced.append(None)
    with tf.GradientTape() as tape:
        loss = loss_of(None, model(batch, training=True))
    tape = bps.DistributedGradientTape(tape, gradient_predivide_factor=2.0)
    gradients = tape.gradient(loss, model.trainable_variables)
    if WAY == "function":
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    else:
        for variable, gradient in zip(model.trainable_variables, gradients):
            variable.assign_sub(RATE * tf.convert_to_tensor(gradient))
    mean = bps.push_pull(tf.cast(bps.rank_op(), tf.float32), name="mean")
    return bps.push_pull(tf.constant(1.0), op=bps.Sum, name="sum"), mean


def loop(state):
    while True:
        over = bps.push_pull(float(bps.rank() == 0 and gate("end")), op=bps.Max, name="over") > 0
        count, mean = step(tf.random.normal((BATCH, 20)))
        state.numbers.append(len(state.numbers))
        assert count == bps.size() and mean == (bps.size() - 1) / 2, (count, mean, bps.size())
        tell()
        if over:
            return
        if len(state.numbers) % 7 == 0:
            state.commit()
        state.check_host_updates()


def fit(state):
    data = np.random.default_rng(os.getpid()).normal(size=(20 * BATCH, 20)).astype("float32")
    callbacks = [
        byteps.keras.elastic.CommitStateCallback(state),
        Gate(),
        byteps.keras.elastic.UpdateBatchStateCallback(state),
        byteps.keras.elastic.UpdateEpochStateCallback(state),
    ]
    model.fit(data, data[:, 0], BATCH, 10**9, 0, callbacks, initial_epoch=state.epoch)


bps.init()
first_rank = bps.rank()
keras.utils.set_random_seed(os.getpid())
tf.config.threading.set_intra_op_parallelism_threads(1)
wide = keras.layers.Dense(300, "relu")
model = keras.Sequential(
    [
        keras.Input((20,)),
        Words(),
        wide,
        keras.layers.BatchNormalization(),
        Dying(),
        Words(),
        keras.layers.Dense(1),
        Counter(),
    ]
)
traced = []
by_hand = WAY in ("function", "assign")
optimizer = keras.optimizers.Adam(RATE) if PASSES == 1 else keras.optimizers.SGD(RATE)
if not by_hand:
    passes = {"backward_passes_per_step": PASSES, "average_aggregated_gradients": True}
    optimizer = byteps.keras.DistributedOptimizer(optimizer, **passes)
    model.compile(optimizer, loss_of)
print(f"joins as {bps.rank()} of {bps.size()}", flush=True)


@bps.elastic.run
def train(state):
    print(f"goes on as {bps.rank()} of {bps.size()}", flush=True)
    loop(state) if by_hand else fit(state)


attributes = {"numbers": [], "place": [0, 0], "batch": 0, "epoch": 0}
if WAY == "assign":
    state = bps.elastic.TensorFlowState(model.weights, **attributes)
else:
    state = bps.elastic.TensorFlowKerasState(model, optimizer, **attributes)
train(state)
count = len(state.numbers)
assert state.numbers == list(range(count)), state.numbers
assert WAY == "assign" or int(optimizer._iterations) == count, (int(optimizer._iterations), count)  # of passes
assert len(traced) == by_hand
counted = round(-float(model.layers[-1].steps[0]) / RATE, 2)
print(f"is at {count / PASSES} of {counted} with {digest()}, as {bps.rank()} of {bps.size()}", flush=True)
