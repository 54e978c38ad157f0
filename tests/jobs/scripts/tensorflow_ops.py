# SPDX-License-Identifier: Apache-2.0
"""push_pull, broadcast and their gradients in TensorFlow: eagerly, in tf.function, in a session of version 1."""

# ruff: noqa: B023 (the functions that are made in loops run at once)
import functools
import threading
import time

import checks
import numpy as np
import tensorflow as tf

import byteps.tensorflow as bps
from byteps._native import bps as native

TYPES = (
    tf.float16,
    tf.bfloat16,
    tf.float32,
    tf.float64,
    tf.int8,
    tf.int16,
    tf.int32,
    tf.int64,
    tf.uint8,
)
v1 = tf.compat.v1
tf.get_logger().setLevel("ERROR")


def mine(shape=(3, 5), dtype=tf.float32):
    """A tensor that differs from worker to worker, of small whole numbers."""
    count = int(np.prod(shape))
    return tf.cast(tf.reshape(tf.range(count) % 7 + bps.rank(), shape), dtype)


def all_of(shape=(3, 5), dtype=tf.float32):
    """What mine() is on each of the workers."""
    count = int(np.prod(shape))
    return [tf.cast(tf.reshape(tf.range(count) % 7 + rank, shape), dtype) for rank in range(bps.size())]


def total(shape=(3, 5), dtype=tf.float32):
    return tf.add_n(all_of(shape, dtype))


def plain(value):
    """The array of a tensor, or of what a session returns."""
    return np.array(value.numpy() if hasattr(value, "numpy") else value)


def equal(result, expected):
    result, expected = plain(result), plain(expected)
    assert result.dtype == expected.dtype, (result.dtype, expected.dtype)
    assert result.shape == expected.shape, (result.shape, expected.shape)
    assert np.array_equal(result, expected), (result, expected)


def in_session(build):
    """Build tensors in a graph of version 1, and return what a session makes of them."""
    with tf.Graph().as_default():
        wanted = build()
        with v1.Session() as session:
            return session.run(wanted)


def modes(function):
    """Yield the results of a function of no arguments in each way that TensorFlow runs it."""
    yield function()
    yield tf.function(function)()
    yield in_session(function)


def check_all_types():
    for dtype in TYPES:
        for shape in ((), (1,), (17,), (3, 5), (2, 3, 4)):
            for result in modes(lambda: bps.push_pull(mine(shape, dtype), op=bps.Sum)):
                equal(result, total(shape, dtype))


def check_reductions():
    everybody = [plain(one) for one in all_of()]
    for op, numpy_op in ((bps.Max, np.max), (bps.Min, np.min), (bps.Product, np.prod)):
        for result in modes(lambda: bps.push_pull(mine(), op=op)):
            equal(result, numpy_op(everybody, axis=0))
    for result in modes(lambda: bps.push_pull(mine())):
        assert np.allclose(result, np.mean(everybody, axis=0), rtol=1e-6)
    odd = tf.constant([bps.rank() % 2 == 1, False, True])
    equal(bps.push_pull(odd, op=bps.Max), tf.constant([bps.size() > 1, False, True]))


def check_floats_of_8_bits():
    for name in ("float8_e4m3fn", "float8_e5m2"):
        try:
            dtype = tf.as_dtype(name)
            ones = tf.cast(tf.ones(5), dtype)
        except (TypeError, tf.errors.OpError):
            continue
        for result in modes(lambda: tf.cast(bps.push_pull(tf.cast(tf.ones(5), dtype), op=bps.Sum), tf.float32)):
            equal(result, bps.size() * tf.ones(5))
        assert bps.broadcast(ones, 0).dtype == dtype


def check_empty():
    for result in modes(lambda: bps.push_pull(tf.zeros((0, 4)))):
        assert result.shape == (0, 4)


def check_shape_unknown():
    @tf.function(input_signature=[tf.TensorSpec(None, tf.float32)])
    def reduced(tensor):
        return bps.push_pull(tensor, op=bps.Sum)

    equal(reduced(mine((4,))), total((4,)))
    equal(reduced(mine((2, 3))), total((2, 3)))


def check_shapes_are_inferred():
    @tf.function
    def shapes(tensor):
        return [tuple(f(tensor).shape) for f in (bps.push_pull, lambda t: bps.broadcast(t, 0))]

    assert shapes(tf.zeros((2, 7))) == [(2, 7), (2, 7)]


def check_arguments_of_the_original():
    value = mine()
    equal(bps.push_pull(value, "scope/", False, "/cpu:0", "", bps.Compression.none), total())
    equal(bps.push_pull(tf.Variable(value), average=False), total())
    equal(bps.push_pull(value, op=bps.Sum, prescale_factor=2.0, postscale_factor=0.5), total())
    checks.raised(ValueError, lambda: bps.push_pull(value, op=17), "is not a reduction")
    checks.raised(NotImplementedError, lambda: bps.push_pull(value, enable_async=True), "mode=")


def check_average_and_op():
    number = tf.constant(bps.rank() + 1.0)
    checks.average_and_op(
        bps,
        functools.partial(bps.push_pull, number),
        functools.partial(bps.allreduce, number),
        lambda **given: bps.grouped_allreduce([number], **given)[0],
    )


def check_scales_are_exact():
    for result in modes(lambda: bps.push_pull(tf.ones(1, tf.float64), op=bps.Sum, prescale_factor=1 / 3)):
        expected = sum([np.float64(1) * (1 / 3)] * bps.size())
        assert np.isclose(result[0], expected, rtol=1e-15), (result, expected)


def check_compression():
    for compression in (bps.Compression.fp16, bps.Compression.bf16):
        for result in modes(lambda: bps.push_pull(mine(), op=bps.Sum, compression=compression)):
            equal(result, total())
        equal(bps.push_pull(mine(dtype=tf.int32), op=bps.Sum, compression=compression), total(dtype=tf.int32))


def check_broadcast():
    for root in range(bps.size()):
        for dtype in (*TYPES, tf.bool):
            for result in modes(lambda: bps.broadcast(mine((3, 5), dtype), root)):
                equal(result, all_of((3, 5), dtype)[root])
    nan = tf.constant(np.array([np.nan, -0.0, np.inf]) if bps.rank() == 0 else np.zeros(3))
    result = bps.broadcast(nan, 0).numpy()
    assert np.isnan(result[0]) and np.signbit(result[1]) and np.isinf(result[2]), result


def check_questions():
    def questions():
        return [bps.rank_op(), bps.size_op(), bps.local_rank_op(), bps.local_size_op()]

    expected = [bps.rank(), bps.size(), bps.local_rank(), bps.local_size()]
    for result in modes(questions):
        assert [int(number) for number in result] == expected, result


def gradients_of(function, value):
    """Return d sum(weights * function(x)) / dx, in each of the ways."""
    weights = tf.cast(tf.range(value.shape.num_elements()) + 1 + bps.rank(), tf.float32)

    def gradient():
        here, x = tf.identity(weights), tf.identity(value)
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(here * function(x))
        return tape.gradient(loss, x)

    def in_version_1():
        x = tf.constant(value.numpy())
        return tf.gradients(tf.reduce_sum(weights.numpy() * function(x)), x)[0]

    return [gradient(), tf.function(gradient)(), in_session(in_version_1)]


def check_gradients():
    value = tf.range(4, dtype=tf.float32)
    weights = sum(np.arange(4) + 1.0 + rank for rank in range(bps.size()))
    for name in (None, "named"):
        for result in gradients_of(lambda x: bps.push_pull(x, op=bps.Sum, name=name), value):
            assert np.allclose(result, weights), result
        for result in gradients_of(lambda x: bps.push_pull(x, name=name), value):
            assert np.allclose(result, weights / bps.size()), result
        for result in gradients_of(
            lambda x: bps.push_pull(x, op=bps.Sum, name=name, prescale_factor=3.0, postscale_factor=0.5), value
        ):
            assert np.allclose(result, 1.5 * weights), result
        root = bps.size() - 1
        for result in gradients_of(lambda x: bps.broadcast(x, root, name=name), value):
            assert np.allclose(result, weights if bps.rank() == root else 0), result
    checks.raised(
        (NotImplementedError, LookupError), lambda: gradients_of(lambda x: bps.push_pull(x, op=bps.Max), value)
    )


def check_many_in_one_graph():
    values = [mine((100 + i,)) for i in range(40)]

    @tf.function
    def reduced():
        return [bps.push_pull(value, op=bps.Sum, name=f"many.{i}") for i, value in enumerate(values)]

    for _ in range(20):
        for i, result in enumerate(reduced()):
            equal(result, total((100 + i,)))


def check_one_name_in_turn():
    @tf.function
    def twice(a, b):
        return bps.push_pull(a, op=bps.Sum, name="twice"), bps.push_pull(b, op=bps.Max, name="twice")

    for _ in range(5):
        first, second = twice(mine(), mine())
        equal(first, total())
        equal(second, all_of()[-1])


def check_loops():
    @tf.function
    def loop(count):
        result = tf.zeros((3, 5))
        for i in tf.range(count):
            result += bps.push_pull(mine() * tf.cast(i, tf.float32), op=bps.Sum, name="loop")
        return result

    for _ in range(5):
        equal(loop(20), total() * 190)


def check_all_run():
    """Neither the same one twice, nor one of a constant, nor one without a use, is left out."""

    @tf.function
    def thrice():
        bps.push_pull(tf.ones(1000))
        return bps.push_pull(tf.ones(1000)) + bps.push_pull(tf.ones(1000))

    for function in (thrice, thrice):
        before = native.pushed_bytes()
        function()
        assert native.pushed_bytes() - before == 3 * 4000, native.pushed_bytes() - before
    assert bps.get_pushpull_speed()[1] > 0


def check_all_are_in_flight_at_once():
    """The first worker has started all of a graph before any other has started one."""
    count, bytes_each = 32, 4 * 1000
    values = [tf.fill([1000], float(i + bps.rank())) for i in range(count)]

    @tf.function
    def reduced():
        return [bps.push_pull(value, op=bps.Sum, name=f"flight.{i}") for i, value in enumerate(values)]

    bps.barrier()
    if bps.rank() == 0:
        before = native.pushed_bytes()
        results = []
        thread = threading.Thread(target=lambda: results.extend(reduced()))
        thread.start()
        while native.pushed_bytes() - before < count * bytes_each:
            time.sleep(0.001)
        assert bps.size() == 1 or not results
        bps.barrier()
        thread.join()
    else:
        bps.barrier()
        results = reduced()
    for i, result in enumerate(results):
        equal(result, tf.fill([1000], sum(float(i + rank) for rank in range(bps.size()))))


def check_indexed_slices():
    slices = tf.IndexedSlices(tf.ones((2, 3)), tf.constant([0, 2]), dense_shape=tf.constant([4, 3]))
    result = bps.push_pull(slices, op=bps.Sum, name="slices")
    equal(result.indices, tf.constant([0, 2]))
    equal(result.values, tf.fill((2, 3), float(bps.size())))


def check_what_cannot_be_sent():
    checks.raised((TypeError, tf.errors.OpError), lambda: bps.push_pull(tf.constant(["text"])))
    checks.raised((TypeError, tf.errors.OpError), lambda: bps.push_pull(tf.constant([1j])))
    checks.raised(TypeError, lambda: bps.push_pull(tf.ragged.constant([[1], [2, 3]])), "Ragged")
    checks.raised(TypeError, lambda: bps.push_pull(tf.sparse.eye(3)), "Sparse")


def check_names_and_roots():
    ones = tf.ones(3)
    checks.raised(ValueError, lambda: bps.broadcast(ones, -1), "root_rank=-1")
    checks.raised(TypeError, lambda: bps.broadcast(ones, 0.5))
    checks.raised(TypeError, lambda: bps.push_pull(ones, name=5), "must be a str")
    checks.raised(ValueError, lambda: bps.push_pull(ones, name="a\0b"), "NUL")
    checks.raised(tf.errors.InvalidArgumentError, lambda: bps.push_pull(ones, name="x" * 1020), "1 to 1023")
    checks.raised(tf.errors.InvalidArgumentError, lambda: bps.push_pull(tf.zeros([1] * 65)), "64 dimensions")
    equal(bps.push_pull(ones, name="ü", op=bps.Sum), bps.size() * ones)


def check_xla():
    compiled = tf.function(lambda: bps.push_pull(tf.ones(3), name="xla"), jit_compile=True)
    checks.raised(tf.errors.OpError, compiled, "BytepsPushPull")


def check_disagreement():
    """All get a TensorFlow error, and the job goes on."""
    if bps.size() == 1:
        return
    for way in (lambda f: f, tf.function):
        for name, call, kind in (
            ("shape", lambda: bps.push_pull(tf.ones(3 + bps.rank()), name="shape"), tf.errors.FailedPreconditionError),
            ("op", lambda: bps.push_pull(tf.ones(3), name="op", op=bps.Sum if bps.rank() else bps.Max),
             tf.errors.FailedPreconditionError),
            ("root", lambda: bps.broadcast(tf.ones(3), bps.rank(), name="root"), tf.errors.FailedPreconditionError),
        ):
            checks.raised(kind, way(call), name)
    checks.raised(tf.errors.InvalidArgumentError, lambda: bps.broadcast(tf.ones(3), bps.size(), name="none"))
    checks.shapes_without_a_name(
        bps,
        tf.errors.FailedPreconditionError,
        lambda shape: bps.push_pull(tf.ones(shape)),
        lambda shape: bps.broadcast(tf.ones(shape), 0),
    )
    equal(bps.push_pull(mine(), op=bps.Sum), total())


if __name__ == "__main__":
    checks.main(globals(), bps)
