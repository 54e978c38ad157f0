# SPDX-License-Identifier: Apache-2.0
"""The ways in which a TensorFlow worker, RANK, ends: `tensorflow_ends.py HOW RANK`. The other tells what it hears."""

import multiprocessing
import os
import signal
import sys
import threading
import time

import keras
import numpy as np
import tensorflow as tf

import byteps.keras
import byteps.tensorflow as bps
from byteps._native import bps as native

tf.get_logger().setLevel("ERROR")


def tell(*words):
    print(*words, flush=True)


def await_file():
    """Return when the other worker lets the job go on."""
    while not os.path.exists(os.environ["FILE"]):
        time.sleep(0.01)


def write_file():
    with open(os.environ["FILE"], "w", encoding="ascii"):
        pass


@tf.function
def reduced(values):
    return [bps.push_pull(value, op=bps.Sum, name=f"values.{i}") for i, value in enumerate(values)]


def train(end=None, steps=30):
    """Train in a tf.function; end() is called in the middle."""
    variable = tf.Variable(tf.ones(5000))

    @tf.function
    def step(inputs):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((variable * inputs) ** 2)
        gradient = bps.DistributedGradientTape(tape).gradient(loss, variable)
        variable.assign_sub(0.01 * gradient)
        return loss

    for number in range(steps):
        if number == steps // 2 and end is not None:
            end()
        step(tf.random.normal([5000], seed=number))


def in_session(end=None):
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


def fit(end=None):
    """The same by model.fit()."""

    class End(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 15 and end is not None:
                end()

    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(100), keras.layers.Dense(1)])
    model.compile(byteps.keras.DistributedOptimizer(keras.optimizers.SGD(0.001)), "mse")
    callbacks = [byteps.keras.callbacks.BroadcastGlobalVariablesCallback(0), End()]
    model.fit(np.ones((240, 64)), np.ones((240, 1)), batch_size=8, verbose=0, callbacks=callbacks)


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def raise_error():
    raise RuntimeError("an error of the user")


def leave():
    sys.exit(3)


LOOPS = {"function": train, "session": in_session, "fit": fit}
ENDS = {"killed": kill, "exception": raise_error, "exit": leave}


def end_in_a_loop(loop, end, mine):
    """Worker RANK ends in the middle of a loop; the others tell the error of theirs and its kind."""
    if mine:
        LOOPS[loop](ENDS[end])
    try:
        LOOPS[loop]()
        tell("no error")
    except (tf.errors.OpError, RuntimeError) as error:
        kind = "tf.errors" if isinstance(error, tf.errors.OpError) else type(error).__module__
        tell(f"{kind}.{type(error).__name__}: {str(error).splitlines()[0]} {error}".replace("\n", " "))


def in_a_thread(mine):
    """The program ends with status 0 while a thread of it waits for the other worker, which never joins."""
    if mine:
        threading.Thread(target=lambda: reduced([tf.ones(1000)] * 4), daemon=True).start()
        while native.pushed_bytes() < 4 * 4000:
            time.sleep(0.01)
        write_file()
    else:
        await_file()


def fork(mine):
    """A forked process finds no job, and its parent goes on; so does the parent's own tf.data."""
    del mine
    train(steps=3)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()

    def child():
        try:
            native.rank()
        except ValueError as error:
            queue.put(str(error))

    process = context.Process(target=child)
    process.start()
    assert "forked" in queue.get(timeout=60)
    process.join()
    train(steps=3)
    data = tf.data.Dataset.range(8).map(lambda i: i * 2, num_parallel_calls=4).batch(4).prefetch(2)
    for batch in data:
        assert np.array_equal(bps.push_pull(batch, op=bps.Max), batch)
    tell("trained")


def interrupted(mine):
    """SIGINT comes while the step of a loop waits for the other worker: KeyboardInterrupt when that has joined."""
    values = [tf.ones(1000)] * 8
    reduced(values)
    if mine:

        def interrupt():
            before = native.pushed_bytes()
            while native.pushed_bytes() < before + 8 * 4000:
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.3)
            write_file()

        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            reduced(values)
            time.sleep(10)
            tell("no interrupt")
        except KeyboardInterrupt:
            tell("interrupted")
        thread.join()
    else:
        await_file()
        reduced(values)
    train()
    tell("trained")


def exception_between(mine):
    """An exception in the user's own code, caught: nothing is left in flight, and training goes on."""
    for _ in range(3):
        try:
            train(raise_error)
        except RuntimeError:
            pass
        assert np.all(bps.push_pull(tf.ones(3), op=bps.Sum).numpy() == bps.size())
    del mine
    tell("trained")


if __name__ == "__main__":
    bps.init()
    how, rank = sys.argv[1], int(sys.argv[2])
    mine = bps.rank() == rank
    if " " in how:
        end_in_a_loop(*how.split(" "), mine)
    else:
        {
            "thread": in_a_thread,
            "fork": fork,
            "interrupted": interrupted,
            "caught": exception_between,
        }[how](mine)
