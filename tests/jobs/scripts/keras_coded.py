# SPDX-License-Identifier: Apache-2.0
"""Gradients of Keras that are coded on the network, against the formulas; KERAS_BACKEND says on what."""

import checks
import coded_ops
import keras
import numpy as np

import byteps
import byteps.keras as bps

COUNT, ROUNDS, RATES = 300, 4, (0.5, 0.5, 0.125, 0.25)
ONEBIT = {"compressor": "onebit", "ef": "vanilla"}
ALL = {**ONEBIT, "min_bytes": 0}  # else the gradients of these checks would be too small


def model_with(compression, make=keras.optimizers.SGD, **how):
    """A model whose gradient is its input, and whose weights begin with zeros."""
    model = keras.Sequential([keras.Input((COUNT,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    optimizer = bps.DistributedOptimizer(make(RATES[0], **how), compression=compression)
    model.compile(optimizer, lambda _, outputs: keras.ops.mean(outputs))
    return model


class Rates(keras.callbacks.Callback):
    """Sets the learning rate of each step."""

    def on_train_batch_begin(self, batch, logs=None):
        self.model.optimizer.learning_rate = RATES[batch]


def told(rate):
    """The learning rate that the coding knows."""
    return 0.0 if keras.backend.backend() == "jax" else rate


def change(reduce):
    """What becomes of the weights if a function reduces the gradients of all workers."""
    return -sum(rate * reduce(coded_ops.everyone(number, COUNT), rate) for number, rate in enumerate(RATES))


def fit(model):
    """Let it see the gradients of all rounds, one in a step."""
    inputs = np.stack([coded_ops.everyone(number, COUNT)[bps.rank()] for number in range(ROUNDS)])
    model.fit(inputs, np.zeros((ROUNDS, 1)), batch_size=1, shuffle=False, verbose=0,
              callbacks=[bps.callbacks.BroadcastGlobalVariablesCallback(), Rates()])
    return np.array(keras.ops.convert_to_numpy(model.weights[0])).reshape(-1)


def check_fit():
    for compression, coder in (
        (ALL, coded_ops.Job()),
        (ONEBIT, coded_ops.Exact()),
        ({**ALL, "momentum": "nesterov", "mu": 0.75, "scaling": False}, coded_ops.Job(mu=0.75, scaling=False)),
    ):
        before, _ = byteps.coded_bytes()
        found = fit(model_with(compression))
        want = change(lambda gradients, rate: coder.round(gradients, rate=told(rate)))  # noqa: B023
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
        coded_ops.same_everywhere(found, "found")
        assert byteps.coded_bytes()[0] - before == ROUNDS * COUNT * 4 * coder.codes, byteps.coded_bytes()


def check_nothing_is_coded_without():
    coded = byteps.coded_bytes()
    want = change(lambda gradients, _: np.mean(gradients, axis=0))
    for compression in (None, False, bps.Compression.none):
        np.testing.assert_allclose(fit(model_with(compression)), want, rtol=1e-5, atol=1e-5)
    assert byteps.coded_bytes() == coded


def check_refusals():
    for compression, kind, text in (
        ({"ef": "vanilla"}, ValueError, "names no compressor"),
        ({**ONEBIT, "ef": "sparse"}, ValueError, "vanilla"),
        (3, TypeError, "dictionary"),
    ):
        checks.raised(kind, lambda: model_with(compression), text)  # noqa: B023
    twice = {**ONEBIT, "momentum": "nesterov"}
    checks.raised(ValueError, lambda: model_with(twice, momentum=0.9), "momentum=0")
    model_with(twice, keras.optimizers.Adam)
    checks.raised(Exception, lambda: fit(model_with("twobit")), "twobit")


def check_workers_that_disagree():
    model = model_with({**ONEBIT, "scaling": bps.rank() == 0})
    checks.raised(Exception, lambda: fit(model), "scaling=true", "scaling=false")


def check_a_model_that_outlives_its_job():
    model, zeros = model_with(ALL), np.zeros((COUNT, 1), np.float32)
    first = fit(model)
    bps.shutdown()
    bps.init()
    model.set_weights([zeros])
    coded, second = byteps.coded_bytes()[0], fit(model)
    np.testing.assert_array_equal(first, second)
    assert byteps.coded_bytes()[0] - coded == ROUNDS * COUNT * 4


if __name__ == "__main__":
    checks.main(globals(), bps)
