# SPDX-License-Identifier: Apache-2.0
"""byteps.compat.horovod.tensorflow and .keras: Horovod's operations and gradients, eagerly and in tf.function."""

# ruff: noqa: B023 (the functions that are made in loops run at once)
import checks
import numpy as np
import tensorflow as tf

import byteps.compat.horovod.keras as hvdk
import byteps.compat.horovod.tensorflow as hvd
import byteps.compat.horovod.tensorflow.keras as hvdtk

tf.get_logger().setLevel("ERROR")


def ranks():
    return range(hvd.size())


def modes(function):
    """Yield the results of a function of no arguments, eagerly and in a graph."""
    yield function()
    yield tf.function(function)()


def equal(result, expected):
    assert np.array_equal(np.asarray(result), np.asarray(expected)), (result, expected)


def with_gradient(function, tensor, weight):
    """What a function makes of a tensor, and the gradient of its sum times a weight."""
    with tf.GradientTape() as tape:
        tape.watch(tensor)
        result = function(tensor)
        loss = tf.reduce_sum(result * weight)
    return result, tape.gradient(loss, tensor)


def check_questions():
    assert hvd.is_initialized() and not hvd.mpi_built() and not hvd.nccl_built()
    assert hvd.global_process_set.size() == hvd.size() and hvd.local_size() + hvd.cross_size() >= 2
    for size, included, rank in modes(lambda: (hvd.size_op(), hvd.process_set_included_op(), hvd.rank_op())):
        assert (int(size), int(included), int(rank)) == (hvd.size(), 1, hvd.rank())
    hvd.init()  # once more does nothing
    for use, text in (
        (lambda: hvd.init(comm=[0]), "comm=[0]"),
        (lambda: hvd.join(), "horovod.tensorflow.join is not there"),
        (lambda: hvd.start_timeline("x"), "trace.file"),
        (lambda: hvd.allreduce(tf.ones(2), op=hvd.Adasum), "op=Average"),
        (lambda: hvd.reducescatter(tf.ones(2), op=hvd.Adasum), "op=Average"),
        (lambda: hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Adasum), "op=Average"),
        (lambda: hvdtk.DistributedOptimizer(None, op=hvd.Adasum), "op=Average"),
    ):
        checks.raised(NotImplementedError, use, text)


def check_allreduce():
    mean = (hvd.size() - 1) / 2
    x = tf.fill((3,), float(hvd.rank()))
    for result in modes(lambda: hvd.allreduce(x, name="x", compression=hvd.Compression.fp16)):
        equal(result, [mean] * 3)
    for one, two in modes(lambda: hvd.grouped_allreduce([x, x + 1], op=hvd.Sum, name="group")):
        equal(two - one, [hvd.size()] * 3)
    equal(hvd.allreduce(x, average=False, prescale_factor=2.0), [2 * mean * hvd.size()] * 3)
    for _, gradient in modes(lambda: with_gradient(hvd.allreduce, x, hvd.rank() + 1.0)):
        equal(gradient, [mean + 1] * 3)


def check_broadcast():
    last = hvd.size() - 1
    x = tf.fill((2,), float(hvd.rank()))
    for result, gradient in modes(lambda: with_gradient(lambda t: hvd.broadcast(t, last, "x"), x, hvd.rank() + 1.0)):
        equal(result, [last] * 2)
        equal(gradient, [last / 2 + 1] * 2 if hvd.rank() == last else [0] * 2)
    variable = tf.Variable(x)
    for values in modes(lambda: hvd.broadcast_([variable], 0, "variables")):
        equal(values[0], [0] * 2)
        equal(variable, [0] * 2)
        variable.assign(x)
    hvd.broadcast_variables([variable], last, hvd.global_process_set)
    equal(variable, [last] * 2)
    assert hvd.broadcast_object({"rank": hvd.rank()}, last) == {"rank": last}
    objects = [[r] * (r + 1) for r in ranks()]
    assert hvd.allgather_object(objects[hvd.rank()], name="objects") == objects


def check_allgather():
    me = hvd.rank()
    x = tf.fill((me + 1, 2), float(me))
    want = np.concatenate([np.full((r + 1, 2), r) for r in ranks()])
    for result, gradient in modes(lambda: with_gradient(hvd.allgather, x, me + 1.0)):
        equal(result, want)
        equal(gradient, np.full((me + 1, 2), (hvd.size() + 1) / 2))
    for one, two in modes(lambda: hvd.grouped_allgather([x, x + 1], "name")):
        equal(two - one, np.ones_like(want))


def check_alltoall():
    me, size = hvd.rank(), hvd.size()
    for result, gradient in modes(lambda: with_gradient(hvd.alltoall, tf.fill((2 * size,), float(me)), me + 1.0)):
        equal(result, np.repeat(ranks(), 2))
        equal(gradient, np.repeat([r + 1 for r in ranks()], 2))
    splits = [r + 1 for r in ranks()]
    x = tf.fill((sum(splits),), float(me))
    for kind in (tf.int32, tf.int64):
        for result, received in modes(lambda: hvd.alltoall(x, tf.constant(splits, kind))):
            equal(result, np.repeat(ranks(), me + 1))
            equal(received, [me + 1] * size)
            assert received.dtype == kind
    assert hvd.alltoall(x, splits)[1].dtype == tf.int32
    equal(hvd.alltoall(tf.zeros(me * size)), np.zeros(sum(ranks())))  # first dimensions differ
    checks.raised(ValueError, lambda: hvd.alltoall(tf.constant(1.0)), "a scalar cannot be split")
    checks.raised(ValueError, lambda: hvd.alltoall(tf.ones(size + 1)), "add up to")


def check_reducescatter():
    me, size = hvd.rank(), hvd.size()
    x = tf.reshape(tf.range(2 * (2 * size + 1), dtype=tf.float32), (-1, 2)) + float(me)
    rows = slice(0, 3) if me == 0 else slice(2 * me + 1, 2 * me + 3)
    for op, factor in ((hvd.Average, 1), (hvd.Sum, size)):
        for result, gradient in modes(lambda: with_gradient(lambda t: hvd.reducescatter(t, op=op), x, me + 1.0)):
            equal(result, (x[rows] - float(me) + (size - 1) / 2) * factor)
            weights = np.repeat([r + 1.0 for r in ranks()], [3] + [2] * (size - 1))
            assert np.allclose(gradient, factor * np.stack([weights, weights], 1)), gradient
    results = hvd.grouped_reducescatter([x, x], compression=hvd.Compression.fp16, op=hvd.Max)
    equal(results[1], x[rows] - float(me) + (size - 1))
    checks.raised(TypeError, lambda: hvd.reducescatter(x, compression={"compressor": "onebit"}), "Compression")


def check_keras():
    for module in (hvdk, hvdtk):
        equal(module.allreduce([1.0, hvd.rank()], name="k"), [1, (hvd.size() - 1) / 2])
        equal(module.broadcast(np.array(hvd.rank()), 0), 0)
        equal(module.allgather([[hvd.rank()]]), [[r] for r in ranks()])
        equal(module.reducescatter(np.arange(hvd.size()), op=module.Sum), [hvd.rank() * hvd.size()])
        assert module.callbacks.LearningRateWarmupCallback(0.1, 3).initial_lr == 0.1
        assert module.callbacks.LearningRateScheduleCallback(0.1, 0.5, 2).start_epoch == 2
        checks.raised(NotImplementedError, lambda: module.allreduce(1.0, op=module.Adasum), "op=Average")


if __name__ == "__main__":
    checks.main(globals(), hvd)
