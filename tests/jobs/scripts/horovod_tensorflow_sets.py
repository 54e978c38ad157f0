# SPDX-License-Identifier: Apache-2.0
"""Process sets of byteps.compat.horovod.tensorflow and .keras, in a job of three workers: two that overlap."""

# ruff: noqa: B023 (the functions that are made in loops run at once)
import checks
import keras
import numpy as np
import tensorflow as tf

import byteps.compat.horovod.keras as hvdk
import byteps.compat.horovod.tensorflow as hvd
from byteps import numpy as arrays

tf.get_logger().setLevel("ERROR")

ENDS = hvd.ProcessSet([2, 0])
hvd.init(process_sets=[ENDS, hvd.ProcessSet([0, 1, 2])])
TAIL = hvd.add_process_set([1, 2])
ME = hvd.rank()


def mine():
    """Return the sets that this worker is in, with the number of their workers and the sum of their ranks."""
    return [(chosen, chosen.size(), sum(chosen.ranks)) for chosen in (ENDS, TAIL) if chosen.included()]


def modes(function):
    """Yield the results of a function of no arguments, eagerly and in a graph."""
    yield function()
    yield tf.function(function)()


def equal(result, expected):
    assert np.array_equal(np.asarray(result), np.asarray(expected)), (result, expected)


def with_gradient(function, tensor, weight=ME + 1.0):
    """What a function makes of a tensor, and the gradient of its sum times a weight."""
    with tf.GradientTape() as tape:
        tape.watch(tensor)
        result = function(tensor)
        loss = tf.reduce_sum(result * weight)
    return result, tape.gradient(loss, tensor)


def check_sets():
    assert hvdk.ProcessSet is hvd.ProcessSet and ENDS.ranks == [0, 2]
    for size, included in modes(lambda: (hvd.size_op(2), hvd.process_set_included_op(process_set_id=1))):
        assert (int(size), int(included)) == (2, ME != 1)
    passing = hvd.add_process_set([0, 1])
    assert hvd.remove_process_set(passing)
    for use, text in (
        (lambda: hvd.allreduce(tf.ones(1), process_set=passing), "or was removed"),
        (lambda: hvd.allgather(tf.ones(1), process_set=7), "hvd.add_process_set()"),
        (lambda: hvd.size_op(7), "no process set with the id 7"),
        (lambda: hvd.init(process_sets="all"), "'dynamic'"),
    ):
        checks.raised(ValueError, use, text)
    if ME == 1:
        checks.raised(ValueError, lambda: hvd.allreduce(tf.ones(1), process_set=ENDS), "worker 1 is not a member")
        checks.raised(ValueError, lambda: hvd.broadcast(tf.ones(1), 0, process_set=ENDS), "worker 1 is not a member")
    else:
        checks.raised(ValueError, lambda: hvd.broadcast(tf.ones(1), 1, process_set=ENDS), "root_rank=1 is not in")
        checks.raised(
            ValueError, lambda: hvd.allreduce(tf.ones(1), compression="onebit", process_set=ENDS), "has no codings"
        )
        checks.raised(
            ValueError,
            lambda: hvd.DistributedGradientTape(tf.GradientTape(), compression="onebit", process_set=ENDS),
            "has no codings",
        )


def check_reductions():
    x = tf.fill((3,), float(ME))
    for chosen, n, total in mine():
        for result, gradient in modes(lambda: with_gradient(lambda t: hvd.allreduce(t, process_set=chosen), x)):
            equal(result, [total / n] * 3)
            equal(gradient, [(total + n) / n] * 3)
        how = {"op": hvd.Sum, "prescale_factor": 2.0, "postscale_factor": 3.0, "process_set": chosen}
        for result, gradient in modes(lambda: with_gradient(lambda t: hvd.allreduce(t, name="x", **how), x)):
            equal(result, [6 * total] * 3)
            equal(gradient, [6 * (total + n)] * 3)
        small = {"compression": hvd.Compression.fp16, "process_set": chosen}
        for one, two in modes(lambda: hvd.grouped_allreduce([x, tf.constant(ME)], op=hvd.Max, **small)):
            equal(one, [chosen.ranks[-1]] * 3)
            equal(two, chosen.ranks[-1])
        rows = tf.IndexedSlices(tf.fill((1, 2), ME + 1.0), tf.constant([ME]), tf.constant([3, 2]))
        for result in modes(lambda: hvd.allreduce(rows, process_set=chosen)):
            equal(tf.convert_to_tensor(result), [[(r + 1) / n * (r in chosen.ranks)] * 2 for r in range(3)])
        whole = tf.reshape(tf.range(10.0), (5, 2))
        begin = 0 if ME == chosen.ranks[0] else 3
        scatter = {"op": hvd.Sum, "process_set": chosen}
        for result, gradient in modes(lambda: with_gradient(lambda t: hvd.reducescatter(t, **scatter), whole)):
            equal(result, n * whole[begin : begin + len(result)])
            equal(gradient, [[n * (r + 1)] * 2 for r, share in zip(chosen.ranks, (3, 2)) for _ in range(share)])
        equal(hvd.grouped_reducescatter([whole], op=hvd.Min, process_set=chosen)[0], whole[begin:][: 3 - begin // 3])


def check_movements():
    for chosen, n, total in mine():
        root, place = chosen.ranks[-1], chosen.ranks.index(ME)
        x = tf.fill((ME + 1, 2), float(ME))
        want = np.concatenate([np.full((r + 1, 2), r) for r in chosen.ranks])
        for result, gradient in modes(lambda: with_gradient(lambda t: hvd.allgather(t, process_set=chosen), x)):
            equal(result, want)
            equal(gradient, np.full((ME + 1, 2), (total + n) / n))
        equal(hvd.grouped_allgather([x], process_set=chosen)[0], want)
        y = tf.fill((2,), float(ME))
        for result, gradient in modes(lambda: with_gradient(lambda t: hvd.broadcast(t, root, process_set=chosen), y)):
            equal(result, [root] * 2)
            equal(gradient, [(total + n) / n if ME == root else 0] * 2)
        equal(hvd.broadcast(tf.complex(y, y), root, process_set=chosen), [root + root * 1j] * 2)
        for result, gradient in modes(
            lambda: with_gradient(lambda t: hvd.alltoall(t + 10.0 * ME, process_set=chosen), tf.range(2.0 * n))
        ):
            equal(result, [10 * r + 2 * place + i for r in chosen.ranks for i in (0, 1)])
            equal(gradient, [r + 1 for r in chosen.ranks for _ in (0, 1)])
        equal(hvd.alltoall(tf.zeros(4), [1, 3], process_set=chosen)[1], [1 + 2 * place] * 2)


def check_state():
    for chosen, _, _ in mine():
        root = chosen.ranks[-1]
        variable, word = tf.Variable([float(ME)]), {"rank": ME, "text": "x" * ME}
        for values in modes(lambda: hvd.broadcast_([variable], root, process_set=chosen)):
            equal(values[0], [root])
            equal(variable, [root])
            variable.assign([float(ME)])
        hvd.broadcast_variables([variable], root, process_set=chosen)
        equal(variable, [root])
        assert hvd.broadcast_object(word, root, process_set=chosen)["text"] == "x" * root
        assert hvd.broadcast_object_fn(root, process_set=chosen)(word)["rank"] == root
        assert [one["rank"] for one in hvd.allgather_object(word, process_set=chosen)] == chosen.ranks


def check_tape():
    """Gradients are reduced among the workers of the set; the other worker keeps its own."""
    table, weights = tf.Variable(tf.zeros((3, 2))), [tf.Variable([1.0 * i]) for i in range(3)]

    def gradients():
        with tf.GradientTape() as tape:
            loss = (weights[0] + weights[2]) * (ME * ME + 1.0) + tf.reduce_sum(tf.gather(table, [ME]))
        tape = hvd.DistributedGradientTape(tape, process_set=ENDS, compression=hvd.Compression.fp16)
        return [one for one in tape.gradient(loss, [table, *weights]) if one is not None]

    for rows, first, last in modes(gradients):
        equal(first, [2 if ME == 1 else 3])
        equal(last, first)
        want = np.zeros((3, 2))
        want[[ME]] = 1
        want = want if ME == 1 else np.array([[0.5, 0.5], [0, 0], [0.5, 0.5]])
        equal(tf.convert_to_tensor(rows), want)


def check_old_optimizer():
    variable = tf.Variable([0.0])
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(1.0)
    optimizer = hvd.DistributedOptimizer(optimizer, op=hvd.Sum, process_set=TAIL)
    for done in range(1, 3):
        pairs = optimizer.compute_gradients(lambda: variable * (ME + 1.0), [variable])
        optimizer.apply_gradients(pairs)
        equal(variable, [-5 * done if TAIL.included() else -done])


def check_graph_of_sessions():
    with tf.Graph().as_default():
        text = "in a graph of sessions its order is undefined"
        for chosen, _, _ in mine():
            checks.raised(NotImplementedError, lambda: hvd.allreduce(tf.ones(2), process_set=chosen), text)


def check_keras():
    for chosen, n, total in mine():
        equal(hvdk.allreduce([1.0, ME], name="k", process_set=chosen), [1, total / n])
        equal(hvdk.broadcast(np.array(ME), chosen.ranks[1], process_set=chosen), chosen.ranks[1])
        equal(hvdk.allgather([[ME]], process_set=chosen), [[r] for r in chosen.ranks])
        equal(hvdk.reducescatter(np.arange(2), op=hvdk.Sum, process_set=chosen), [n * chosen.ranks.index(ME)])


def check_fit():
    """A model of Keras learns with the workers of its set, on whatever backend; metrics are those of the set."""
    keras.utils.set_random_seed(1)
    inputs = np.full((8, 2), ME * ME + 1.0, np.float32)
    for passes in (1, 2):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, use_bias=False)])
        before = model.get_weights()[0]
        optimizer = hvdk.DistributedOptimizer(
            keras.optimizers.SGD(0.5), backward_passes_per_step=passes, op=hvdk.Sum, process_set=ENDS
        )
        model.compile(optimizer, lambda _, y: y)
        averaged = hvdk.callbacks.MetricAverageCallback(process_set=ENDS)
        logs = model.fit(inputs, inputs[:, :1], 4, verbose=0, callbacks=[averaged], shuffle=False).history["loss"]
        moved = (before - model.get_weights()[0])[0, 0]
        assert np.isclose(moved, 0.5 * 2 * (6 if ENDS.included() else 2)), moved
        same = arrays.all_gather(np.array(logs)).tolist()
        assert same[0] == same[2] != same[1], same


if __name__ == "__main__":
    checks.main(globals(), hvd)
