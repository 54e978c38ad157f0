# SPDX-License-Identifier: Apache-2.0
"""Training in TensorFlow equals that of one process with the batches of all workers, in each way to write the loop."""

import functools
import os
import unittest

import checks
import numpy as np
import tensorflow as tf

import byteps
import byteps.tensorflow as bps
from byteps.tensorflow.distribute import MirroredStrategy

v1 = tf.compat.v1
tf.get_logger().setLevel("ERROR")
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
STEPS, BATCH = 20, 12  # the batch of all workers
RATE, MOMENTUM = 0.125, 0.875  # exact in float32, which old optimizers compute with


def data(step):
    """The batch of a step, of all workers."""
    generator = np.random.default_rng(step)
    inputs = generator.normal(size=(BATCH, 6))
    return inputs, np.sin(inputs.sum(axis=1, keepdims=True))


def share(array):
    """This worker's part of it."""
    return array[bps.rank() :: bps.size()]


def first_weights(seed=5):
    generator = np.random.default_rng(seed)
    return [generator.normal(size=shape) / 2 for shape in ((6, 9), (9,), (9, 1), (1,))]


class Model(tf.Module):
    """Two layers."""

    def __init__(self, weights):
        super().__init__(name="net")
        self.all = [tf.Variable(value, dtype=tf.float64, name=f"of_{bps.rank()}") for value in weights]

    def loss(self, inputs, labels):
        a, b, c, d = self.all
        return tf.reduce_mean((tf.tanh(inputs @ a + b) @ c + d - labels) ** 2)


class Momentum:
    """SGD with momentum, for loops of our own."""

    def __init__(self, variables):
        self.variables, self.velocity = variables, [tf.Variable(tf.zeros_like(v)) for v in variables]

    def apply(self, gradients):
        for variable, velocity, gradient in zip(self.variables, self.velocity, gradients):
            velocity.assign(MOMENTUM * velocity + gradient)
            variable.assign_sub(RATE * velocity)


@functools.lru_cache(maxsize=None)
def reference(passes=1, average=True):
    """The weights after training with all batches, by NumPy alone; several batches add up to a step."""
    weights = first_weights()
    velocity, sums = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    for step in range(STEPS):
        inputs, labels = data(step)
        sums = [total + gradient for total, gradient in zip(sums, gradients_of(weights, inputs, labels))]
        if (step + 1) % passes == 0:
            velocity = [MOMENTUM * v + total / (passes if average else 1) for v, total in zip(velocity, sums)]
            weights = [w - RATE * v for w, v in zip(weights, velocity)]
            sums = [np.zeros_like(w) for w in weights]
    return weights


def gradients_of(weights, inputs, labels):
    a, b, c, d = weights
    hidden = np.tanh(inputs @ a + b)
    error = 2 * (hidden @ c + d - labels) / len(labels)
    before = (error @ c.T) * (1 - hidden**2)
    return [inputs.T @ before, before.sum(0), hidden.T @ error, error.sum(0)]


def same(weights, expected=None):
    for mine, wanted in zip(weights, expected or reference()):
        difference = np.max(np.abs(np.asarray(mine) - wanted))
        assert difference < 1e-12, difference


def own_model():
    """A model with weights of its own, which a broadcast replaces."""
    model = Model(first_weights(5 if bps.rank() == 0 else 77))
    bps.broadcast_variables(model.all, root_rank=0)
    return model


def train_by_tape(decorate, **options):
    model = own_model()
    optimizer = Momentum(model.all)

    def step(inputs, labels):
        with tf.GradientTape() as tape:
            loss = model.loss(inputs, labels)
        tape = bps.DistributedGradientTape(tape, **options)
        optimizer.apply(tape.gradient(loss, model.all))
        return loss

    step = decorate(step)
    for number in range(STEPS):
        step(*(tf.constant(share(array)) for array in data(number)))
    return model.all


def check_tape():
    for decorate in (lambda step: step, tf.function):
        same([v.numpy() for v in train_by_tape(decorate)])
    same([v.numpy() for v in train_by_tape(tf.function, gradient_predivide_factor=2.0, num_groups=2)])


def check_tape_as_context():
    model = own_model()
    inputs, labels = map(share, data(0))
    with bps.DistributedGradientTape(tf.GradientTape(persistent=True)) as tape:
        loss = model.loss(inputs, labels)
    one, (two,) = tape.gradient(loss, model.all[0]), tape.gradient(loss, {"b": model.all[0]}).values()
    assert np.array_equal(one, two)
    unused = tf.Variable(1.0)
    assert tape.gradient(loss, [model.all[0], unused])[1] is None


def check_compressed():
    for compression in (bps.Compression.fp16, bps.Compression.bf16):
        weights = train_by_tape(tf.function, compression=compression)
        for mine, wanted in zip(weights, reference()):
            assert np.max(np.abs(mine - wanted)) < 0.05
            checked = bps.broadcast(mine, 0)
            assert np.array_equal(checked, mine)


def check_variables_that_differ():
    if bps.size() == 1:
        return
    variables = [tf.Variable(tf.zeros(3 + bps.rank()))]
    checks.raised(byteps.MismatchError, lambda: bps.broadcast_variables(variables, 0), "differ")


def check_variables_of_many_models():
    """TensorFlow warns of a function that is traced in each of five calls."""
    with unittest.TestCase().assertNoLogs(tf.get_logger(), "WARNING"):
        for size in range(1, 9):
            bps.broadcast_variables([tf.Variable(tf.ones(size)), tf.Variable(tf.ones(2))], 0)


def check_session():
    for optimizer_of in (bps.DistributedOptimizer, lambda o: bps.DistributedOptimizer(o, "named", True)):
        with tf.Graph().as_default():
            model = Model(first_weights(5 if bps.rank() == 0 else 77))
            inputs, labels = v1.placeholder(tf.float64, (None, 6)), v1.placeholder(tf.float64, (None, 1))
            optimizer = optimizer_of(v1.train.MomentumOptimizer(RATE, MOMENTUM))
            train = optimizer.minimize(model.loss(inputs, labels), var_list=model.all)
            hooks = [bps.BroadcastGlobalVariablesHook(0)]
            with v1.train.MonitoredTrainingSession(hooks=hooks) as session:
                for number in range(STEPS):
                    mine = [share(array) for array in data(number)]
                    session.run(train, dict(zip((inputs, labels), mine)))
                same(session.run(model.all))
            assert len(optimizer.variables()) == len(model.all)
            assert optimizer.get_slot_names() == ["momentum"]
            assert optimizer.get_slot(model.all[0], "momentum").shape == (6, 9)


def check_global_variables():
    checks.raised(RuntimeError, lambda: bps.broadcast_global_variables(0), "does not support eager execution")
    with tf.Graph().as_default():
        variable = v1.get_variable("x", initializer=tf.constant([float(bps.rank()), 2.0]))
        counter = v1.get_variable("n", initializer=tf.constant(bps.rank(), tf.uint32), trainable=False)
        operation = bps.broadcast_global_variables(bps.size() - 1)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(operation)
            last = bps.size() - 1
            assert session.run(variable).tolist() == [float(last), 2.0]
            assert session.run(counter) == last


def check_passes_in_a_session():
    for average in (False, True):
        with tf.Graph().as_default():
            model = Model(first_weights())
            inputs, labels = v1.placeholder(tf.float64, (None, 6)), v1.placeholder(tf.float64, (None, 1))
            optimizer = bps.DistributedOptimizer(
                v1.train.MomentumOptimizer(RATE, MOMENTUM),
                backward_passes_per_step=2,
                average_aggregated_gradients=average,
            )
            train = optimizer.minimize(model.loss(inputs, labels), var_list=model.all)
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                for number in range(STEPS):
                    mine = [share(array) for array in data(number)]
                    session.run(train, dict(zip((inputs, labels), mine)))
                same(session.run(model.all), reference(2, average))


def check_old_optimizer_without_a_session():
    for decorate in (lambda step: step, tf.function):
        for passes in (1, 2):
            model = own_model()
            optimizer = bps.DistributedOptimizer(
                v1.train.MomentumOptimizer(RATE, MOMENTUM),
                backward_passes_per_step=passes,
                average_aggregated_gradients=True,
            )

            def step(inputs, labels, model=model, optimizer=optimizer):
                optimizer.minimize(lambda: model.loss(inputs, labels), var_list=model.all)

            step = decorate(step)
            for number in range(STEPS):
                step(*(tf.constant(share(array)) for array in data(number)))
            same([v.numpy() for v in model.all], reference(passes))


def check_mirrored_strategy():
    if BATCH % (2 * bps.size()):
        return
    strategy = MirroredStrategy(["/cpu:0", "/cpu:1"])
    assert strategy.num_replicas_in_sync == 2
    with strategy.scope():
        variables = [tf.Variable(value, name=f"weight_{i}") for i, value in enumerate(first_weights())]
        optimizer = v1.train.MomentumOptimizer(RATE, MOMENTUM)

    def replica_step(inputs, labels):
        a, b, c, d = variables
        with tf.GradientTape() as tape:
            errors = (tf.tanh(inputs @ a + b) @ c + d - labels) ** 2
            loss = tf.reduce_mean(errors) / strategy.num_replicas_in_sync
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    @tf.function
    def step(inputs, labels):
        strategy.run(replica_step, (inputs, labels))

    for number in range(STEPS):
        halves = [[tf.constant(half) for half in np.split(share(array), 2)] for array in data(number)]
        inputs, labels = (
            strategy.experimental_distribute_values_from_function(
                lambda context, parts=parts: parts[context.replica_id_in_sync_group]
            )
            for parts in halves
        )
        step(inputs, labels)
    same([variable.numpy() for variable in variables])


def check_embedding():
    table = tf.Variable(tf.zeros((50, 4)), name="table")

    def step(rows):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, rows))
        return bps.DistributedGradientTape(tape, sparse_as_dense=True, op=bps.Sum).gradient(loss, table)

    for decorate in (lambda step: step, tf.function):
        gradient = decorate(step)(tf.constant([1 + bps.rank(), 20]))
        expected = np.zeros((50, 4), np.float32)
        for rank in range(bps.size()):
            expected[[1 + rank, 20]] += 1
        assert np.array_equal(gradient, expected)


def check_objects():
    thing = {"epoch": 3, "history": list(range(1000)), "rank": bps.rank()}
    for _ in range(2):
        assert bps.broadcast_object(thing)["rank"] == 0
    assert bps.broadcast_object_fn(bps.size() - 1, name="thing")(thing)["rank"] == bps.size() - 1
    with tf.Graph().as_default(), v1.Session() as session:
        assert bps.broadcast_object(thing, session=session)["rank"] == 0


def check_horovod():
    assert np.array_equal(bps.allreduce(tf.ones(3), average=False), [bps.size()] * 3)
    results = bps.grouped_allreduce([tf.ones(3), tf.ones((2, 2))], op=bps.Sum, name="group")
    assert [result.shape for result in results] == [(3,), (2, 2)] and np.all(results[1] == bps.size())
    for name in ("allgather", "alltoall", "reducescatter", "join", "add_process_set"):
        checks.raised(NotImplementedError, getattr(bps, name), name)
    checks.raised(NotImplementedError, lambda: bps.allreduce(tf.ones(3), process_set=3), "process sets")
    assert not bps.mpi_built() and not bps.gloo_enabled()
    assert os.path.basename(bps.__file__) == "__init__.py"


def check_mistakes():
    old = v1.train.GradientDescentOptimizer(0.1)
    checks.raised(ValueError, lambda: bps.DistributedOptimizer("sgd"), "expected a tf.compat.v1.train.Optimizer")
    checks.raised(ValueError, lambda: bps.DistributedOptimizer(old, backward_passes_per_step=0), "at least 1")
    checks.raised(ValueError, lambda: bps.DistributedOptimizer(old, op=bps.Adasum), "is not a reduction")
    checks.raised(
        ValueError, lambda: bps.DistributedOptimizer(old, op=bps.Sum, gradient_predivide_factor=2.0), "op=Average"
    )


if __name__ == "__main__":
    checks.main(globals(), bps)
