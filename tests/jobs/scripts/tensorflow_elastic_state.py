# SPDX-License-Identifier: Apache-2.0
"""TensorFlowState, and what errors of TensorFlow are to run(), in a job whose workers stay the same."""

import checks
import tensorflow as tf

import byteps.tensorflow as bps
from byteps.tensorflow import _failures, elastic


def check_state():
    variables = [tf.Variable([float(bps.rank()), 1.0]), tf.Variable(bps.rank(), dtype=tf.int64)]
    state = elastic.TensorFlowState(variables, count=bps.rank())
    calls = []

    @elastic.run
    def train(state):
        calls.append((variables[0].numpy().tolist(), int(variables[1]), state.count))
        if len(calls) == 3:
            return calls
        variables[0].assign_add([1.0, 0.0])
        state.count += 1
        if len(calls) == 1:
            raise elastic.HostsUpdatedInterrupt
        raise elastic.HorovodInternalError("not a number")

    assert train(state) == [([0.0, 1.0], 0, 0), ([1.0, 1.0], 0, 1), ([1.0, 1.0], 0, 1)], calls
    checks.raised(ValueError, elastic.TensorFlowState, "give the variables")


def check_errors():
    """Those that do not tell of a lost member stay what they are."""

    @elastic.run
    def train(state, function):
        function()

    def mismatch():
        bps.push_pull(tf.ones(1 + bps.rank()), name="mismatch")

    def own():
        tf.debugging.assert_equal(1, 2)

    def fail(function):
        return lambda: train(elastic.ObjectState(bps.broadcast_object, bps.rank), function)

    checks.raised(tf.errors.FailedPreconditionError, fail(mismatch), "")
    checks.raised(tf.errors.InvalidArgumentError, fail(own), "")


def check_failures_of_sessions():
    """Their errors have the core's number, too."""

    def run():
        with tf.Graph().as_default():
            result = bps.push_pull(tf.ones(1 + bps.rank()), name="session")
            with tf.compat.v1.Session() as session:
                session.run(result)

    for one in (run, tf.function(lambda: bps.push_pull(tf.ones(1 + bps.rank()), name="function"))):
        try:
            one()
        except tf.errors.FailedPreconditionError as error:
            assert _failures._status_of(error) == -8, error
        else:
            raise AssertionError("no error")


if __name__ == "__main__":
    checks.main(globals(), bps)
