# SPDX-License-Identifier: Apache-2.0
"""What the state of an elastic training with Keras means, in a job whose workers stay the same."""

import checks
import keras
import numpy as np

import byteps.keras as bps
from byteps.keras import elastic

INPUTS, LABELS = np.ones((12, 3), "float32"), np.ones((12, 1), "float32")


def made(seed):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dropout(0.1), keras.layers.Dense(1)])
    model.compile(bps.DistributedOptimizer(keras.optimizers.Adam(0.1)), "mse")
    return model


def weight_of(state):
    return float(keras.ops.convert_to_numpy(state.model.weights[0])[0, 0])


class Ends(keras.callbacks.Callback):
    """Raises an error when a batch begins."""

    def __init__(self, state, epoch, batch, error):
        super().__init__()
        self.state, self.when, self.error, self.seen = state, (epoch, batch), error, {}

    def on_train_batch_begin(self, batch, logs=None):
        place = self.state.epoch, self.state.batch
        self.seen[place] = weight_of(self.state)
        if place == self.when and self.error is not None:
            error, self.error = self.error, None
            raise error


def interrupted(state, error, batches_per_commit):
    """Train two epochs of three batches, with an error when the last one begins; return what was seen."""
    ends = Ends(state, 1, 2, error)
    calls = []
    callbacks = [
        ends,
        elastic.CommitStateCallback(state, batches_per_commit),
        elastic.UpdateBatchStateCallback(state),
        elastic.UpdateEpochStateCallback(state),
    ]

    @elastic.run
    def train(state):
        calls.append((state.epoch, state.batch, weight_of(state)))
        done = state.batch * 4
        state.model.fit(INPUTS[done:], LABELS[done:], 4, 2, 0, callbacks, initial_epoch=state.epoch, shuffle=False)

    train(state)
    assert (state.epoch, state.batch) == (2, 0), (state.epoch, state.batch)
    assert int(keras.ops.convert_to_numpy(state.optimizer.iterations)) == 6
    assert len(calls) == 2, calls
    return ends.seen, calls[1]


def check_what_stays():
    """After HostsUpdatedInterrupt all that was done; after HorovodInternalError what was committed."""
    lost, told = elastic.HorovodInternalError("not a number"), elastic.HostsUpdatedInterrupt()
    for error, commits, place in ((told, 1, (1, 2)), (lost, 1, (1, 1)), (lost, 2, (1, 0)), (told, 2, (1, 2))):
        state = elastic.KerasState(made(bps.rank()), batch=0, epoch=0)
        seen, (epoch, batch, weight) = interrupted(state, error, commits)
        assert (epoch, batch) == place, (error, epoch, batch)
        assert weight == seen[place], (seen, weight)
        weight = weight_of(state)
        assert float(bps.push_pull(weight, op=bps.Max)) == weight


def check_attributes():
    model = made(0)
    state = elastic.KerasState(model, count=1)
    before = [keras.ops.convert_to_numpy(weight).copy() for weight in model.weights]
    model.fit(INPUTS, LABELS, verbose=0)
    state.count = 2
    state.restore()
    after = [keras.ops.convert_to_numpy(weight) for weight in model.weights]
    assert all(np.array_equal(a, b) for a, b in zip(before, after)) and state.count == 1
    assert state.optimizer is model.optimizer
    checks.raised(ValueError, lambda: elastic.KerasState(keras.Sequential([keras.layers.Dense(1)])), "no weights yet")


def check_other_errors():
    """They are the program's."""

    @elastic.run
    def train(state):
        raise KeyError("mine")

    checks.raised(KeyError, lambda: train(elastic.KerasState(made(0))), "mine")


def refuses_jax():
    checks.raised(ValueError, lambda: elastic.KerasState(made(0)), "on JAX the weights are gone when a step fails")


if __name__ == "__main__":
    checks.main(globals(), bps)
