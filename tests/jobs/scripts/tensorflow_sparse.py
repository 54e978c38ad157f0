# SPDX-License-Identifier: Apache-2.0
"""IndexedSlices of TensorFlow: only rows travel, and training is as with dense gradients, also in Keras."""

import os
import tempfile

import checks
import keras
import numpy as np
import tensorflow as tf

import byteps.keras
import byteps.tensorflow as bps
from byteps._native import bps as native

v1 = tf.compat.v1
tf.get_logger().setLevel("ERROR")
ROWS, WIDTH, STEPS = 3000, 8, 3


def slices(rank, seed, most=60, dtype=np.float32):
    """What a worker has: some rows twice; the last worker has none."""
    random = np.random.default_rng(100 * seed + rank)
    count = 0 if rank and rank == bps.size() - 1 else int(random.integers(1, most))
    index = np.concatenate([[5] * min(count, 2), random.integers(0, ROWS, count)])
    values = random.integers(-4, 5, (len(index), WIDTH)).astype(dtype)
    return tf.IndexedSlices(tf.constant(values), tf.constant(index, tf.int32), tf.constant([ROWS, WIDTH]))


def dense(seed, **how):
    return sum(tf.convert_to_tensor(slices(rank, seed, **how)) for rank in range(bps.size()))


def same(result, expected, tolerance=1e-6):
    assert isinstance(result, tf.IndexedSlices), result
    assert np.all(np.diff(result.indices) > 0)
    assert result.dense_shape is not None
    result = tf.convert_to_tensor(result)
    assert result.dtype == expected.dtype
    assert np.allclose(tf.cast(result, tf.float64), tf.cast(expected, tf.float64), tolerance, tolerance)


def check_slices():
    for number, decorate in enumerate((lambda call: call, tf.function)):
        total = decorate(lambda one, n=number: bps.push_pull(one, op=bps.Sum, name=f"sum {n}"))
        mean = decorate(lambda one, n=number: bps.allreduce(one, name=f"mean {n}", compression=bps.Compression.fp16))
        for seed in range(3):
            mine = slices(bps.rank(), seed)
            result = total(mine)
            same(result, dense(seed))
            assert result.indices.dtype == tf.int32
            same(mean(mine), dense(seed) / bps.size(), 1e-2)
    for dtype in (np.float64, np.float16, np.int64):
        mine = slices(bps.rank(), 9, dtype=dtype)
        same(bps.push_pull(mine, op=bps.Sum, name=f"type {dtype}"), dense(9, dtype=dtype))
    scaled = bps.push_pull(slices(bps.rank(), 4), op=bps.Sum, name="scaled", prescale_factor=2.0, postscale_factor=3.0)
    same(scaled, 6 * dense(4))
    same(bps.push_pull(slices(bps.rank(), 4), op=bps.Sum, name="coded", compression="onebit"), dense(4))
    plain = tf.IndexedSlices(tf.Variable([[1.0, 2.0]]), [3], [9, 2])
    same(bps.push_pull(plain, name="plain"), tf.scatter_nd([[3]], [[1.0, 2.0]], [9, 2]))


def check_nobody_has_a_row():
    none = tf.IndexedSlices(tf.zeros([0, 3]), tf.zeros([0], tf.int64), tf.constant([7, 3], tf.int64))
    result = bps.push_pull(none, name="none")
    assert result.values.shape == (0, 3)
    assert result.indices.shape == (0,)


def check_sessions():
    with tf.Graph().as_default(), v1.Session() as session:
        one = bps.push_pull(slices(bps.rank(), 2), op=bps.Sum)
        index, values = session.run([one.indices, one.values])
    same(tf.IndexedSlices(values, index, tf.constant([ROWS, WIDTH])), dense(2))


def check_what_is_wrong():
    mine = slices(bps.rank(), 1)
    checks.raised(ValueError, lambda: bps.push_pull(mine), "need a name")
    checks.raised(ValueError, lambda: bps.push_pull(mine, name="wrong", op=bps.Max), "sum and average")
    shapeless = tf.IndexedSlices(mine.values, mine.indices)
    checks.raised(ValueError, lambda: bps.push_pull(shapeless, name="wrong"), "dense_shape")
    momentum = {"compressor": "onebit", "momentum": "nesterov"}
    checks.raised(ValueError, lambda: bps.push_pull(mine, name="wrong", compression=momentum), "momentum")
    outside = tf.IndexedSlices(tf.ones([1, 2]), [7], tf.constant([7, 2]))
    checks.raised(tf.errors.InvalidArgumentError, lambda: bps.push_pull(outside, name="wrong"), "row 7", "0..6")
    if bps.size() > 1:
        one = mine if bps.rank() else tf.convert_to_tensor(mine)
        checks.raised(tf.errors.FailedPreconditionError, lambda: bps.push_pull(one, name="differs"))
    same(bps.push_pull(mine, name="wrong", op=bps.Sum), dense(1))


def words(step, rank):
    return np.random.default_rng(1000 * step + rank).integers(0, ROWS, (6, 4))


def tables():
    """Two of the same shape, the first of which is used twice, and a small one."""
    random = np.random.default_rng(3)
    shapes = (ROWS, WIDTH), (ROWS, WIDTH), (5, WIDTH)
    return [tf.Variable(random.normal(size=shape), dtype=tf.float32) for shape in shapes]


def loss_of(variables, rows):
    one, other, small = variables
    picked = tf.gather(one, rows) + tf.gather(other, rows) * tf.gather(one, (rows + 1) % ROWS)
    return tf.reduce_mean(tf.square(picked + tf.gather(small, rows % 5)))


def clipped(gradients):
    return tf.clip_by_global_norm(gradients, 0.05)[0]


def of_all(change=lambda gradients: gradients):
    """What one process makes of the batches of all workers."""
    variables = tables()
    for step in range(STEPS):
        with tf.GradientTape() as tape:
            rows = np.concatenate([words(step, rank) for rank in range(bps.size())])
            loss = loss_of(variables, rows)
        gradients = [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, variables)]
        for variable, gradient in zip(variables, change(gradients)):
            variable.assign_sub(0.5 * gradient)
    return variables


def equal(variables, expected, tolerance=1e-5):
    for variable, other in zip(variables, expected):
        assert np.allclose(variable, other, tolerance, tolerance), np.abs(np.array(variable) - np.array(other)).max()


def step_of(variables, change):
    """A step of a loop, whose gradients must stay sparse."""

    def step(rows):
        with tf.GradientTape() as tape:
            loss = loss_of(variables, rows)
        gradients = bps.DistributedGradientTape(tape).gradient(loss, variables)
        for variable, gradient in zip(variables, change(gradients)):
            assert isinstance(gradient, tf.IndexedSlices), gradient
            variable.scatter_sub(tf.IndexedSlices(0.5 * gradient.values, gradient.indices))

    return step


def check_tape():
    for change in (lambda gradients: gradients, clipped):
        expected = of_all(change)
        for decorate in (lambda step: step, tf.function):
            variables = tables()
            step = decorate(step_of(variables, change))
            for number in range(STEPS):
                step(tf.constant(words(number, bps.rank())))
            equal(variables, expected)


def check_only_rows_travel():
    if bps.size() == 1:
        return
    table = tf.Variable(tf.zeros([200_000, 16]))
    before = native.pushed_bytes()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(table, [1, bps.rank()]))
    result = bps.DistributedGradientTape(tape).gradient(loss, [table])[0]
    assert isinstance(result, tf.IndexedSlices)
    assert native.pushed_bytes() - before < 1 << 20


def check_optimizer_of_version_1():
    expected = [variable.numpy() for variable in of_all()]
    for passes in (1, 2):
        with tf.Graph().as_default(), v1.Session() as session:
            optimizer = bps.DistributedOptimizer(
                v1.train.GradientDescentOptimizer(0.5), backward_passes_per_step=passes,
                average_aggregated_gradients=True,
            )
            rows = v1.placeholder(tf.int64, [None, 4])
            variables = tables()
            train = optimizer.minimize(loss_of(variables, rows), var_list=variables)
            session.run(v1.global_variables_initializer())
            for number in range(STEPS):
                for _ in range(passes):
                    session.run(train, {rows: words(number, bps.rank())})
            equal(session.run(variables), expected)


# ---- Keras -----------------------------------------------------------------------------------------------


def model(policy="float32"):
    """Two embeddings of the same shape, one of them shared by two branches."""
    keras.utils.set_random_seed(7)
    first, second = keras.Input((4,), dtype="int32"), keras.Input((4,), dtype="int32")
    shared = keras.layers.Embedding(ROWS, WIDTH, dtype=policy)
    own = keras.layers.Embedding(ROWS, WIDTH, dtype=policy)
    both = keras.layers.Multiply(dtype=policy)([shared(first), own(second)])
    both = keras.layers.Add(dtype=policy)([both, shared(second)])
    out = keras.layers.Dense(1, dtype="float32")(keras.layers.Flatten(dtype=policy)(both))
    return keras.Model([first, second], out)


def batches(ranks):
    parts = [(words(2 * step, rank), words(2 * step + 1, rank)) for step in range(STEPS) for rank in ranks]
    x = [np.concatenate([part[i] for part in parts]) for i in range(2)]
    return x, np.sin(x[0].sum(axis=1, keepdims=True)).astype("float32")


def fitted(optimizer, ranks, policy="float32", **how):
    net = model(policy)
    net.compile(optimizer, loss="mse", jit_compile=False, **how)
    x, y = batches(ranks)
    net.fit(x, y, batch_size=6 * len(ranks), epochs=2, shuffle=False, verbose=0)
    return net


def compare(make, tolerance=1e-4, squares=False, **how):
    """Sparse gradients train as dense ones, and as one process does, unless Keras squares a row that comes twice."""
    weights = [
        fitted(byteps.keras.DistributedOptimizer(make(), sparse_as_dense=as_dense), [bps.rank()], **how).get_weights()
        for as_dense in (False, True)
    ]
    equal(*weights)
    if not squares:
        equal(weights[0], fitted(make(), range(bps.size()), **how).get_weights(), tolerance)


def check_keras():
    compare(lambda: keras.optimizers.SGD(0.5))
    compare(lambda: keras.optimizers.Adam(0.01), squares=True, steps_per_execution=3)
    compare(lambda: keras.optimizers.SGD(0.5, momentum=0.5, global_clipnorm=0.1), squares=True)
    compare(lambda: keras.optimizers.SGD(0.5), run_eagerly=True)
    compare(lambda: keras.optimizers.SGD(0.5, gradient_accumulation_steps=3))


def check_keras_mixed_precision():
    scaled = keras.optimizers.LossScaleOptimizer
    compare(lambda: scaled(keras.optimizers.SGD(0.5), initial_scale=8.0), 2e-2, policy="mixed_float16")
    compare(lambda: keras.optimizers.SGD(0.5), 5e-2, policy="mixed_bfloat16")


def check_keras_saved():
    net = fitted(byteps.keras.DistributedOptimizer(keras.optimizers.Adam(0.01)), [bps.rank()])
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "net.keras")
        net.save(path)
        loaded = byteps.keras.load_model(path)
    x, y = batches([bps.rank()])
    for one in (net, loaded):
        one.fit(x, y, batch_size=6, shuffle=False, verbose=0)
    equal(loaded.get_weights(), net.get_weights())


if __name__ == "__main__":
    checks.main(globals(), bps)
