# SPDX-License-Identifier: Apache-2.0
"""all_gather, reduce_scatter, all_to_all, process groups, and gradients in TensorFlow: eagerly and in tf.function."""

# ruff: noqa: B023 (the functions that are made in loops run at once)
import functools

import checks
import numpy as np
import tensorflow as tf

import byteps
import byteps.keras
import byteps.tensorflow as bps
from byteps.tensorflow._failures import as_in_byteps

tf.get_logger().setLevel("ERROR")
TYPES = (tf.float32, tf.bfloat16, tf.float64, tf.int8, tf.int64)


def modes(function):
    """Yield the results of a function of no arguments, eagerly and in a graph."""
    yield function()
    yield tf.function(function)()


def equal(result, expected):
    assert np.array_equal(np.asarray(result), np.asarray(expected)), (result, expected)


def rows(count, first, dtype=tf.float32, columns=2):
    """A matrix with the numbers from `first`, so many rows of them."""
    return tf.reshape(tf.cast(first + tf.range(count * columns), dtype), (count, columns))


def gradient_of(function, tensor, weighted=True):
    """The gradient of the sum of what a function makes of a tensor, each element times its place plus this rank."""
    with tf.GradientTape() as tape:
        tape.watch(tensor)
        result = function(tensor)
        weights = tf.reshape(tf.range(tf.size(result), dtype=tf.float32), tf.shape(result)) + float(bps.rank())
        loss = tf.reduce_sum(result * weights if weighted else result)
    return tape.gradient(loss, tensor)


def check_all_gather():
    size, own = bps.size(), bps.rank() + 1
    for dtype in TYPES:
        expected = tf.concat([rows(r + 1, 10 * r, dtype) for r in range(size)], 0)
        sizes = [r + 1 for r in range(size)]
        for given in (None, sizes):
            for result in modes(lambda: bps.all_gather(rows(own, 10 * bps.rank(), dtype), given)):
                assert result.dtype == dtype
                equal(result, expected)
    for result in modes(lambda: bps.all_gather(tf.constant(float(bps.rank())))):
        equal(result, range(size))
    equal(bps.all_gather(tf.zeros((0 if bps.rank() else 2, 3))), np.zeros((2, 3)))


def check_gradient_of_all_gather():
    size, own = bps.size(), bps.rank() + 1
    before = sum(r + 1 for r in range(bps.rank()))
    places = np.arange(2 * before, 2 * (before + own)).reshape(own, 2)
    expected = size * places + sum(range(size))
    for result in modes(lambda: gradient_of(bps.all_gather, rows(own, 0))):
        equal(result, expected)
    for result in modes(lambda: gradient_of(bps.all_gather, tf.constant(2.0))):
        equal(result, size * bps.rank() + sum(range(size)))


def check_reduce_scatter():
    size, rank = bps.size(), bps.rank()
    whole = sum(rows(2 * size, r).numpy() for r in range(size))
    for result in modes(lambda: bps.reduce_scatter(rows(2 * size, rank), average=False)):
        equal(result, whole[2 * rank : 2 * rank + 2])
    for result in modes(lambda: bps.reduce_scatter(rows(2 * size, rank), op=bps.Max)):
        equal(result, rows(2 * size, size - 1)[2 * rank : 2 * rank + 2])
    sizes = [2 * size - size + 1] + [1] * (size - 1)
    part = slice(0, sizes[0]) if rank == 0 else slice(size + rank, size + rank + 1)
    for given in (sizes, lambda count: sizes if count == 2 * size else None):
        for result in modes(lambda: bps.reduce_scatter(rows(2 * size, rank), given, average=False)):
            equal(result, whole[part])


def check_gradient_of_reduce_scatter():
    size = bps.size()
    places = np.concatenate([np.arange(4.0) + r for r in range(size)]).reshape(2 * size, 2)
    for factor, how in ((1, {"op": bps.Sum}), (1 / size, {}), (6, {"op": bps.Sum, "prescale_factor": 6})):
        for result in modes(lambda: gradient_of(lambda x: bps.reduce_scatter(x, **how), rows(2 * size, 0))):
            assert np.allclose(result, factor * places), (result, factor * places)
    checks.raised(NotImplementedError, lambda: gradient_of(lambda x: bps.reduce_scatter(x, op=bps.Min), rows(size, 0)))


def check_all_to_all():
    size, rank = bps.size(), bps.rank()
    for result, received in modes(lambda: bps.all_to_all(rows(size, 10 * rank))):
        equal(result, [[10 * r + 2 * rank, 10 * r + 2 * rank + 1] for r in range(size)])
        equal(received, [1] * size)
    splits = [r + rank for r in range(size)]
    expected = np.concatenate([np.full((r + rank, 2), r) for r in range(size)])
    mine = tf.fill((sum(splits), 2), float(rank))
    for given in (splits, tf.constant(splits, tf.int32)):
        for result, received in modes(lambda: bps.all_to_all(mine, given)):
            equal(result, expected)
            equal(received, [r + rank for r in range(size)])
            assert received.dtype == tf.int64


def check_gradient_of_all_to_all():
    size, rank = bps.size(), bps.rank()

    def exchanged(tensor):
        return bps.all_to_all(tensor, [1] * (size - 1) + [2])[0] * float(rank + 1)

    expected = np.concatenate([np.full(1 if r < size - 1 else 2, r + 1.0) for r in range(size)])
    for result in modes(lambda: gradient_of(exchanged, tf.zeros(size + 1), weighted=False)):
        equal(result, expected)


def groups():
    """Make two groups that share the last worker; return those of this worker."""
    last = bps.size() - 1
    made = [bps.new_group([last, 0]), bps.new_group(range(1, last + 1))]
    return [group for group in made if group.rank() >= 0]


def check_push_pull_in_groups():
    for group in groups():
        mine, total = (
            tf.constant([1.0, 2.0]) * (bps.rank() + 1),
            np.array([1.0, 2.0]) * (sum(group.ranks) + group.size()),
        )
        scales = {"prescale_factor": 3.0, "postscale_factor": 0.5}
        for result in modes(lambda: bps.push_pull(mine, group=group, priority=1)):
            equal(result, total / group.size())
        for result in modes(lambda: bps.allreduce(mine, average=False, **scales, group=group)):
            equal(result, 1.5 * total)
        for one, two in modes(lambda: bps.grouped_allreduce([mine, mine + 1], op=bps.Sum, group=group)):
            equal(two - one, [group.size()] * 2)
        slices = tf.IndexedSlices(mine[None], [1], [3, 2])
        for result in modes(lambda: tf.convert_to_tensor(bps.push_pull(slices, average=False, group=group))):
            equal(result, [[0, 0], total, [0, 0]])
        equal(byteps.keras.push_pull(mine, average=False, group=group), total)


def check_gradient_of_push_pull_in_groups():
    """It is the same reduction, over the same group, of the gradients of its members."""
    for group in groups():
        places = np.arange(4.0) * group.size() + sum(group.ranks)  # the sum of the gradients of all members
        for factor, how in ((1, {"op": bps.Sum}), (1 / group.size(), {}), (6, {"op": bps.Sum, "prescale_factor": 6})):
            for result in modes(lambda: gradient_of(lambda x: bps.push_pull(x, group=group, **how), tf.zeros(4))):
                assert np.allclose(result, factor * places), (result, factor * places)
        function = functools.partial(bps.push_pull, op=bps.Max, group=group)
        checks.raised(NotImplementedError, lambda: gradient_of(function, tf.zeros(4)), "has no gradient")


def check_broadcast_in_groups():
    for group in groups():
        root = group.size() - 1
        own, expected = tf.constant(float(bps.rank())), float(group.ranks[root])
        for result in modes(lambda: bps.broadcast(own, root, group=group)):
            equal(result, expected)
        total = sum(group.ranks) if group.rank() == root else 0
        for result in modes(lambda: gradient_of(lambda x: bps.broadcast(x, root, group=group), own)):
            equal(result, total)
        for assign in (bps.broadcast_variables, byteps.keras.broadcast_variables):
            variables = [tf.Variable(own), tf.Variable([bps.rank()] * 3)]
            assign(variables, root, group=group)
            equal(variables[0], expected)
            equal(variables[1], [expected] * 3)
        assert bps.broadcast_object({"rank": bps.rank()}, root, group=group) == {"rank": expected}
        equal(byteps.keras.broadcast(own, root, group=group), expected)


def check_refusals_of_groups():
    others = [rank for rank in range(bps.size()) if rank != bps.rank()]
    foreign = [bps.new_group([rank]) for rank in range(bps.size())]
    own, other = foreign[bps.rank()], foreign[others[0]]
    x = tf.ones(2)
    for call in (bps.push_pull, lambda x, **how: bps.broadcast(x, 0, **how)):
        checks.raised(byteps.InvalidError, lambda: call(x, group=other), "is not a member of")
        checks.raised(byteps.InvalidError, lambda: call(x, name="x", group=own), "takes no name")
        with tf.Graph().as_default():
            checks.raised(NotImplementedError, lambda: call(tf.ones(2), group=own), "graph of sessions")
        equal(call(x, group=own), [1, 1])
    checks.raised(ValueError, lambda: bps.push_pull(x, compression={"compressor": "onebit"}, group=own))
    checks.raised(
        byteps.InvalidError, lambda: bps.broadcast(x, 1, group=own), "root_rank=1 is not the rank of a member"
    )
    checks.raised(TypeError, lambda: bps.push_pull(tf.constant(["text"]), group=own), "is not supported")
    own.free()


def check_order_in_a_graph():
    """Operations that do not need each other run in the order of the program, also in loops and branches."""

    @tf.function
    def many(own):
        results = [
            bps.all_gather(own + i) if i % 2 else bps.reduce_scatter(tf.fill((bps.size(),), own + i)) for i in range(20)
        ]
        if own >= 0:
            results.append(bps.all_gather(own + 20))
        else:
            results.append(bps.all_gather(own + 20, 1))
        for i in tf.range(21, 40):
            bps.all_gather(tf.fill((i,), i))
        results.append(bps.all_gather(own + 40))
        return results

    everybody = np.arange(bps.size())
    for i, result in zip([*range(21), 40], many(float(bps.rank()))):
        equal(result, everybody + i if i % 2 or i >= 20 else [everybody.mean() + i])


def check_shape_unknown():
    @tf.function(input_signature=[tf.TensorSpec(None, tf.float32)])
    def unknown(tensor):
        return bps.all_gather(tensor)

    for _ in range(2):
        equal(unknown(tf.ones((2, 3, bps.size()))), tf.ones((2 * bps.size(), 3, bps.size())))
    assert tf.function(lambda: bps.all_gather(tf.ones((2, 3)))).get_concrete_function().output_shapes[1] == 3


def check_refusals():
    with tf.Graph().as_default():
        checks.raised(NotImplementedError, lambda: bps.all_gather(tf.ones(2)), "graph of sessions")
    checks.raised(TypeError, lambda: bps.all_gather(tf.constant(["text"])))
    checks.raised(ValueError, lambda: bps.reduce_scatter(tf.ones(bps.size() + 1)), "is not a multiple")
    checks.raised(ValueError, lambda: bps.all_to_all(tf.ones(3), [1] * bps.size() + [7]), "expected")
    wrong = tf.ones((2, 3 + bps.rank()))
    checks.raised(byteps.MismatchError, lambda: bps.all_gather(wrong), "has rows of shape")
    checks.raised(tf.errors.OpError, lambda: tf.function(bps.all_gather)(wrong), "MismatchError", "has rows of shape")
    equal(bps.all_gather(tf.ones(1)), np.ones(bps.size()))


def check_lost_member():
    """TensorFlow keeps the text of an error alone; it is one of byteps again for those who train elastically."""

    def lose(_):
        raise byteps.LostError("a worker was lost")

    from byteps.tensorflow import collectives

    @tf.function
    def step():
        return collectives.call(lose, [tf.ones(1)], [tf.float32], "lose", [None])

    def run():
        with as_in_byteps():
            step()

    error = checks.raised(tf.errors.OpError, step, "a worker was lost")
    assert not isinstance(error, byteps.Error)
    try:
        run()
    except byteps.LostError as error:
        assert "a worker was lost" in str(error)
    else:
        raise AssertionError("expected a LostError")


if __name__ == "__main__":
    checks.main(globals(), bps)
