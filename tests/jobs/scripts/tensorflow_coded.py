# SPDX-License-Identifier: Apache-2.0
"""Gradients of TensorFlow that are coded on the network, against the formulas."""

import checks
import coded_ops
import numpy as np
import tensorflow as tf

import byteps
import byteps.tensorflow as bps

COUNT, ROUNDS = 300, 4
ONEBIT = {"compressor": "onebit", "ef": "vanilla"}
ALL = {**ONEBIT, "min_bytes": 0}  # else the gradients of these checks would be too small
ORIGINAL = {"compressor_type": "onebit", "ef_type": "vanilla", "compressor_onebit_scaling": True}
v1 = tf.compat.v1


def follow(reduce, coder=None, average=True, rates=(0.0,) * ROUNDS):
    """Each round of a function from this worker's gradient to the reduced one is what the coder says."""
    coder = coder or coded_ops.Job()
    before, _ = byteps.coded_bytes()
    for number, rate in enumerate(rates):
        gradients = coded_ops.everyone(number, COUNT)
        found = np.array(reduce(gradients[bps.rank()], *([rate] if rate else [])))
        coded_ops.close(found, coder.round(gradients, average=average, rate=rate))
        coded_ops.same_everywhere(found, "found")
    assert byteps.coded_bytes()[0] - before == ROUNDS * COUNT * 4 * coder.codes, byteps.coded_bytes()


def check_eagerly():
    for name, compression in (("eager", ONEBIT), ("eager.original", ORIGINAL)):
        follow(lambda x: bps.push_pull(x, name=name, compression=compression))  # noqa: B023
    sums = {"average": False, "compression": ONEBIT, "name": "eager.sum"}
    follow(lambda x: bps.allreduce(x, **sums), average=False)
    plain = {"compressor": "onebit", "momentum": "nesterov", "mu": 0.5, "scaling": False}
    coder = coded_ops.Job(feedback=False, mu=0.5, scaling=False)
    follow(lambda x: bps.push_pull(x, name="eager.momentum", compression=plain), coder)


def check_the_learning_rate():
    def reduce(x, rate):
        return bps.push_pull(x, name=f"rate.{tf.executing_eagerly()}", compression=ONEBIT, learning_rate=rate)

    function = tf.function(reduce)
    for one in (reduce, lambda x, rate: function(tf.constant(x), tf.constant(rate))):
        follow(one, rates=(0.5, 0.5, 0.125, 0.25))


def check_a_function_that_outlives_its_job():
    traces = []

    @tf.function
    def reduce(x):
        traces.append(x)
        return bps.push_pull(x, compression=ONEBIT)

    for _ in range(2):
        follow(lambda x: reduce(tf.constant(x)))
        bps.shutdown()
        bps.init()
    assert len(traces) == 1


def taped(variable, x, compression):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(variable * x)
    (gradient,) = bps.DistributedGradientTape(tape, compression=compression).gradient(loss, [variable])
    return gradient


def check_a_tape():
    eager, traced = tf.Variable(tf.zeros(COUNT)), tf.Variable(tf.zeros(COUNT))
    follow(lambda x: taped(eager, x, ALL))
    function = tf.function(lambda x: taped(traced, x, ALL))
    for _ in range(2):
        follow(lambda x: function(tf.constant(x)))
        bps.shutdown()
        bps.init()


def check_small_gradients_lose_nothing():
    variable = tf.Variable(tf.zeros(COUNT))
    follow(lambda x: taped(variable, x, ONEBIT), coded_ops.Exact())


def check_a_session():
    with tf.Graph().as_default():
        variable, x = v1.get_variable("v", COUNT), v1.placeholder(tf.float32, COUNT)
        optimizer = bps.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.1), compression=ALL)
        ((gradient, _),) = optimizer.compute_gradients(tf.reduce_sum(variable * x), [variable])
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            follow(lambda mine: session.run(gradient, {x: mine}))


def check_nothing_is_coded_without():
    x, coded = tf.constant(coded_ops.everyone(0, COUNT)[bps.rank()]), byteps.coded_bytes()
    want = np.mean(coded_ops.everyone(0, COUNT), axis=0)
    for i, compression in enumerate((None, False, bps.Compression.none)):
        found = bps.push_pull(x, name=f"uncoded.{i}", compression=compression)
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
    assert byteps.coded_bytes() == coded


def check_the_gradient_of_what_is_coded():
    x = tf.ones(COUNT)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = bps.push_pull(x, name="forward", average=False, compression="onebit", learning_rate=0.5)
    np.testing.assert_array_equal(tape.gradient(y, x), np.full(COUNT, bps.size(), np.float32))


def check_refusals():
    x, tape = tf.ones(COUNT), tf.GradientTape()
    for compression, kind, text in (
        ({"ef": "vanilla"}, ValueError, "names no compressor"),
        ({"compresor": "onebit"}, ValueError, "names no compressor"),
        ({**ONEBIT, "ef": "sparse"}, ValueError, "vanilla"),
        (3, TypeError, "dictionary"),
    ):
        checks.raised(kind, lambda: bps.push_pull(x, name="x", compression=compression), text)  # noqa: B023
        checks.raised(kind, lambda: bps.DistributedGradientTape(tape, compression=compression), text)  # noqa: B023
    checks.raised(ValueError, lambda: bps.push_pull(x, compression=ONEBIT), "needs a name")
    twice = {**ONEBIT, "momentum": "nesterov"}
    momentum = v1.train.MomentumOptimizer(0.1, 0.9)
    checks.raised(ValueError, lambda: bps.DistributedOptimizer(momentum, compression=twice), "momentum=0")
    refused = tf.errors.FailedPreconditionError
    for i, (compression, text) in enumerate((("twobit", "twobit"), ({**ONEBIT, "scalling": True}, "scaling"))):
        for reduce in (bps.push_pull, tf.function(bps.push_pull)):
            checks.raised(refused, lambda: reduce(x, name=f"wrong.{i}", compression=compression), text)  # noqa: B023
    bps.push_pull(x, name="twice", compression=ONEBIT)
    checks.raised(refused, lambda: bps.push_pull(x, name="twice", compression="onebit"), "feedback=true")


def check_workers_that_disagree():
    x, compression = tf.ones(COUNT), {**ONEBIT, "scaling": bps.rank() == 0}
    for i, reduce in enumerate((bps.push_pull, tf.function(bps.push_pull))):
        def differ():
            return reduce(x, name=f"disagree.{i}", compression=compression)  # noqa: B023

        checks.raised(tf.errors.FailedPreconditionError, differ, "scaling=true", "scaling=false")


if __name__ == "__main__":
    checks.main(globals(), bps)
