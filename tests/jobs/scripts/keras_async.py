# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer of Keras with BYTEPS_ENABLE_ASYNC: the servers have the weights."""

import os
import tempfile
import time

import byteps
import checks
import keras
import numpy as np

import byteps.keras as bps

RATE, STEPS = 1 / 64, 8


def made(optimizer=None, trainable=True, **options):
    """A model whose loss has the gradient x for each weight, which begin as the rank says."""
    first = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", name="first")
    second = keras.layers.Dense(2, use_bias=False, kernel_initializer=keras.initializers.Constant(bps.rank()))
    model = keras.Sequential([keras.Input((1,)), first, second])
    first.trainable = trainable
    compiled(model, optimizer, **options)
    return model


def compiled(model, optimizer=None, **options):
    optimizer = bps.DistributedOptimizer(optimizer or keras.optimizers.SGD(RATE))
    model.compile(optimizer, lambda truth, output: keras.ops.sum(output), **options)


def fit(model, steps, value=None, callbacks=()):
    """One batch of one row is a step; the gradient of the last layer is the value where the first layer is frozen."""
    inputs = np.full((steps, 1), bps.rank() + 1.0 if value is None else value, "float32")
    model.fit(inputs, inputs, batch_size=1, verbose=0, shuffle=False, callbacks=list(callbacks))


def weights(model):
    return [keras.ops.convert_to_numpy(weight).copy() for weight in model.weights]


def meet(what):
    bps.push_pull(0.0, name=f"meet {what}")


def all_changes():
    return -RATE * STEPS * sum(range(1, bps.size() + 1))


def trained(model, what, callbacks=()):
    """Train a model of a frozen and another layer; return what the servers have of that then."""
    fit(model, 1, 0.0)
    meet(f"{what} begins")
    fit(model, STEPS, callbacks=callbacks)
    meet(f"{what} ends")
    fit(model, 1, 0.0)
    first, second = weights(model)
    assert (first == 1).all(), "the frozen layer"
    return second


def check_sum_of_all_changes():
    several = {} if keras.backend.backend() == "torch" else {"steps_per_execution": 4}
    for options in ({}, several, {"run_eagerly": True}):
        second = trained(made(trainable=False, **options), "one")
        assert (second == all_changes()).all(), (options, second, all_changes())


def check_compiled_twice():
    model = made(trainable=False)
    before = trained(model, "first")
    model.compile(model.optimizer, lambda truth, output: keras.ops.sum(output))
    second = trained(model, "again")
    assert (second == before + all_changes()).all(), (before, second)
    compiled(model)
    second = trained(model, "anew")
    assert (second == before + 2 * all_changes()).all(), (before, second)


def check_unfreezing():
    model = made(trainable=False)
    before = trained(model, "frozen")
    model.layers[0].trainable = True
    compiled(model)
    fit(model, 1, 0.0)
    meet("begun")  # before anybody changes them
    assert (weights(model)[1] == before).all(), "weights do not begin with those of rank 0"
    for _ in range(3):
        fit(model, 1)
    meet("unfrozen")
    fit(model, 1, 0.0)
    same(model)
    assert (weights(model)[0] != 1).all()


def same(model):
    for weight in weights(model):
        low, high = bps.push_pull(weight, op=bps.Min), bps.push_pull(weight, op=bps.Max)
        assert np.array_equal(low, high), (low, high)


def check_two_models():
    one, two = made(trainable=False), made(trainable=False)
    fit(one, 1, 0.0)
    fit(two, 1, 0.0)
    meet("both begin")
    for _ in range(STEPS):
        fit(one, 1)
        fit(two, 2)
    meet("both end")
    for model, times in ((one, 1), (two, 2)):
        fit(model, 1, 0.0)
        assert (weights(model)[1] == times * all_changes()).all(), (times, weights(model))


def check_callback():
    """A second fit() goes on with what the servers have, or with what has been loaded."""
    model = made(trainable=False)
    callbacks = [bps.callbacks.BroadcastGlobalVariablesCallback(0)]
    second = trained(model, "with callback", callbacks)
    assert (second == all_changes()).all(), second
    fit(model, 1, 0.0, callbacks)
    fit(model, *((1, 0.0) if bps.rank() == 0 else (STEPS,)), callbacks=callbacks)  # rank 0 ends it before the others
    fit(model, 1, 0.0, callbacks)
    others = all_changes() + RATE * STEPS
    assert (weights(model)[1] == all_changes() + others).all(), (all_changes(), others, weights(model))
    if bps.rank() == 0:
        model.set_weights([np.ones((1, 1)), np.full((1, 2), 7.0)])
    fit(model, 1, 0.0, callbacks)
    assert (weights(model)[1] == 7).all(), weights(model)


def check_saved_and_loaded():
    model = made(keras.optimizers.Adam(0.01))
    fit(model, 3)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        loaded = bps.load_model(path, compile=False)
        compiled(loaded, keras.optimizers.Adam(0.01))
    fit(loaded, 2)
    meet("loaded")
    fit(loaded, 1, 0.0)


def check_nobody_waits():
    model = made()
    fit(model, 1, 0.0)
    if bps.rank() == bps.size() - 1:
        fit(model, STEPS)
    meet("the others have waited")


def check_mixed_precision():
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(RATE), initial_scale=2.0)
    second = trained(made(optimizer, trainable=False), "scaled")
    assert (second == all_changes()).all(), (second, all_changes())


def check_loop():
    """Without fit(): apply() of the optimizer."""
    variable = keras.Variable(np.full(3, float(bps.rank())))
    optimizer = bps.DistributedOptimizer(keras.optimizers.SGD(RATE))
    optimizer.apply([keras.ops.zeros((3,))], [variable])
    meet("loop begins")
    for _ in range(STEPS):
        optimizer.apply([keras.ops.full((3,), bps.rank() + 1.0)], [variable])
    meet("loop ends")
    optimizer.apply([keras.ops.zeros((3,))], [variable])
    assert (keras.ops.convert_to_numpy(variable) == all_changes()).all(), variable


def check_rows():
    """On TensorFlow only the rows of an embedding travel that a step changes; fit() ends with all."""
    rows, width, mine = 4000, 16, bps.rank()
    constraint = {"embeddings_constraint": "non_neg"}
    for optimizer, options, travels in (
        (keras.optimizers.SGD(RATE), {}, 2),
        (keras.optimizers.Adagrad(RATE), {}, 2),
        (keras.optimizers.Adam(RATE), {}, rows),
        (keras.optimizers.SGD(RATE, momentum=0.5), {}, rows),
        (keras.optimizers.SGD(RATE), constraint, rows),
    ):
        table = keras.layers.Embedding(rows, width, embeddings_initializer="ones", **options)
        model = keras.Sequential([keras.Input((3,)), table])
        compiled(model, optimizer)
        callbacks = [bps.callbacks.BroadcastGlobalVariablesCallback(0)]
        inputs = np.full((1, 3), 7)
        inputs[0, :2] = mine
        model.fit(inputs, inputs, verbose=0, epochs=2, callbacks=callbacks)
        meet("rows have trained")
        inputs[:] = 7
        model.fit(inputs, inputs, verbose=0, callbacks=callbacks)
        assert (weights(model)[0][: bps.size()] != 1).any(1).all(), "rows of others are not there when fit() ends"
        before = byteps.metrics()["pushed_bytes"]
        model.optimizer.apply([tf_rows([mine, 7, mine], rows, width)], model.trainable_variables)
        sent = byteps.metrics()["pushed_bytes"] - before
        assert sent == width * 4 * (travels if keras.backend.backend() == "tensorflow" else rows), (optimizer, sent)
        meet("rows have changed")
        model.optimizer.pull_rows(table.embeddings)
        now = weights(model)[0]
        changed = (now != 1).any(1).nonzero()[0].tolist()
        assert changed == [*range(bps.size()), 7], (optimizer, changed)
        if travels == 2 and type(optimizer) is keras.optimizers.SGD:
            assert (now[:2] == 1 - 2 * 3 * RATE).all() and (now[7] == 1 - bps.size() * 6 * RATE).all(), now[:8]
        meet("rows have been seen")


def tf_rows(indices, rows, width):
    """The gradient of a sum of some rows of a table."""
    if keras.backend.backend() != "tensorflow":
        dense = np.zeros((rows, width), "float32")
        np.add.at(dense, indices, 1)
        return keras.ops.convert_to_tensor(dense)
    import tensorflow as tf

    return tf.IndexedSlices(tf.ones((len(indices), width)), tf.constant(indices), tf.constant((rows, width)))


def check_refused():
    for text, arguments in (
        ("no compression", {"compression": {"compressor": "onebit"}}),
        ("Average or Sum", {"op": bps.Min}),
        ("no backward_passes_per_step", {"backward_passes_per_step": 2}),
        ("no gradient_predivide_factor", {"gradient_predivide_factor": 2.0}),
    ):
        plain = keras.optimizers.SGD(RATE)
        checks.raised(ValueError, lambda: bps.DistributedOptimizer(plain, **arguments), text)  # noqa: B023
    averaging = keras.optimizers.SGD(RATE, use_ema=True, ema_overwrite_frequency=2)
    checks.raised(ValueError, lambda: bps.DistributedOptimizer(averaging), "ema_overwrite_frequency")
    wrapped = bps.DistributedOptimizer(plain)
    checks.raised(ValueError, lambda: bps.DistributedOptimizer(wrapped), "distributed already")
    meet("end")


def check_another_job():
    model = made(trainable=False)
    trained(model, "before")
    bps.suspend()
    bps.resume()
    fit(model, 2)
    meet("after")
    fit(model, 1, 0.0)
    same(model)


def refuses_jax():
    checks.raised(ValueError, lambda: bps.DistributedOptimizer(keras.optimizers.SGD(RATE)), "KERAS_BACKEND=tensorflow")


def in_step():
    """With worker.staleness=0 all make the same steps, and end alike."""
    model = made(keras.optimizers.Adam(0.01))
    fit(model, 1, 0.0)
    for _ in range(4):
        if bps.rank() == 0:
            time.sleep(0.02)
        fit(model, 1)
    same(model)


def after_reform():
    """In an elastic job, rank 0 sets the weights once more."""
    model = made(trainable=False)
    trained(model, "before reform")
    bps.reform()
    model.set_weights([np.ones((1, 1)), np.full((1, 2), 5.0 + bps.rank())])
    assert (trained(model, "after reform") == 5 + all_changes()).all(), weights(model)


if __name__ == "__main__":
    checks.main(globals(), bps)
