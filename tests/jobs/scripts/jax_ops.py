# SPDX-License-Identifier: Apache-2.0
"""push_pull and broadcast for JAX: eagerly, in compiled functions, and under the transformations of JAX."""

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2 " + os.environ.get("XLA_FLAGS", "")

import concurrent.futures
import functools
import time

import checks
import jax
import jax.numpy as jnp
import numpy as np
from jax.errors import JaxRuntimeError
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import byteps.jax as bps
from byteps._native import bps as native

DTYPES = ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "int16", "int32", "uint8")
WAYS = (lambda function: function, jax.jit)


def ranks():
    return sum(range(bps.size()))


def check_types():
    for way in WAYS:
        for name in DTYPES:
            result = way(lambda x: bps.push_pull(x, op=bps.Sum))(jnp.full((2, 3), bps.rank() + 1, name))
            assert result.dtype == name and result.shape == (2, 3), result
            assert np.all(np.asarray(result, "float32") == ranks() + bps.size()), (name, result)
        flag = way(lambda x: bps.push_pull(x, op=bps.Max))(jnp.array([bps.rank() == 0, False]))
        assert flag.dtype == bool and flag.tolist() == [True, False]
    with jax.enable_x64(True):
        for way in WAYS:
            for name in ("float64", "int64"):
                result = way(lambda x: bps.push_pull(x, op=bps.Sum))(jnp.full((2,), 2**40 + bps.rank(), name))
                assert result.dtype == name and result.tolist() == [bps.size() * 2**40 + ranks()] * 2, result


def check_shapes():
    for way in WAYS:
        for shape in ((), (0,), (3, 0, 2), (1,), (5, 7), (3, 100_000)):
            result = way(bps.push_pull)(jnp.full(shape, bps.rank(), "float32"))
            assert result.shape == shape and np.allclose(result, ranks() / bps.size()), shape
    assert bps.push_pull(1.0 * bps.rank()) == ranks() / bps.size()  # a number of Python
    assert bps.push_pull({}) == {}


def check_reductions():
    values = np.arange(4, dtype="float32") + 1 + bps.rank()
    everybody = np.stack([np.arange(4, dtype="float32") + 1 + rank for rank in range(bps.size())])
    for way in WAYS:
        for op, expected in (
            (bps.Average, everybody.mean(0)),
            (bps.Sum, everybody.sum(0)),
            (bps.Min, everybody.min(0)),
            (bps.Max, everybody.max(0)),
            (bps.Product, everybody.prod(0)),
        ):
            assert np.allclose(way(functools.partial(bps.push_pull, op=op))(values), expected), op
        scaled = way(lambda x: bps.push_pull(x, average=False, prescale_factor=3.0, postscale_factor=0.5))
        assert np.allclose(scaled(values), 1.5 * everybody.sum(0))
        for small in (bps.Compression.fp16, bps.Compression.bf16):
            result = way(functools.partial(bps.push_pull, compression=small))(values)
            assert result.dtype == np.float32 and np.allclose(result, everybody.mean(0), rtol=1e-2)


def check_average_and_op():
    checks.average_and_op(bps, functools.partial(bps.push_pull, jnp.float32(bps.rank() + 1)))


def check_trees():
    tree = {"a": jnp.ones(3) * bps.rank(), "b": [jnp.ones((2, 2)), (jnp.int32(bps.rank()),)]}
    for way in WAYS:
        for name in (None, "tree"):
            result = way(functools.partial(bps.push_pull, name=name, op=bps.Sum))(tree)
            assert jax.tree_util.tree_structure(result) == jax.tree_util.tree_structure(tree)
            assert np.allclose(result["a"], ranks()) and int(result["b"][1][0]) == ranks()


def check_broadcast():
    for way in WAYS:
        for root in range(bps.size()):
            send = way(functools.partial(bps.broadcast, root_rank=root))
            assert np.array_equal(send(jnp.full(5, bps.rank(), "int32")), np.full(5, root))
            assert send(jnp.array([1, 2**32 - 1 - bps.rank()], "uint32")).tolist() == [1, 2**32 - 1 - root]
            assert send(jnp.array([bps.rank() + 2j])).tolist() == [root + 2j]
            key = send(jax.random.key(bps.rank()))
            assert np.array_equal(jax.random.key_data(key), jax.random.key_data(jax.random.key(root)))
            nan = jnp.array([0x7FC00000 + bps.rank()], "uint32").view("float32")
            assert send(nan).view("uint32").tolist() == [0x7FC00000 + root]


def check_gradients():
    weights = jnp.arange(3.0) + 1

    def loss(x):
        return jnp.sum(bps.push_pull(x**2, op=bps.Average) * weights * (bps.rank() + 1))

    def scaled(x):
        return jnp.sum(bps.push_pull(x, op=bps.Sum, prescale_factor=2.0, postscale_factor=4.0))

    x = jnp.array([1.0, 2.0, 3.0])
    mean = (ranks() + bps.size()) / bps.size()
    for way in WAYS:
        assert np.allclose(way(jax.grad(loss))(x), 2 * x * weights * mean)
        assert np.allclose(way(jax.grad(scaled))(x), 8 * bps.size())
        value, tangent = way(lambda x: jax.jvp(loss, (x,), (jnp.ones(3),)))(x)
        assert np.allclose(tangent, jnp.sum(2 * x * weights * (bps.rank() + 1))), (value, tangent)
        hessian = way(jax.hessian(lambda x: jnp.sum(bps.push_pull(x**2))))(x)
        assert np.allclose(hessian, 2 * np.eye(3))
        root = way(jax.grad(lambda x: jnp.sum(bps.broadcast(x, 0) * (bps.rank() + 1))))(x)
        assert np.allclose(root, (ranks() + bps.size()) * (bps.rank() == 0))
        both = way(jax.grad(lambda tree: jnp.sum(bps.push_pull(tree)["a"])))({"a": x, "b": x})
        assert np.allclose(both["a"], 1) and np.allclose(both["b"], 0)
    checks.raised(
        NotImplementedError, lambda: jax.grad(lambda x: jnp.sum(bps.push_pull(x, op=bps.Max)))(x), "no gradient"
    )
    result, names = jax.value_and_grad(lambda x, n: jnp.sum(bps.push_pull((x, n))[0]))(x, 3)
    assert np.allclose(names, 1) and np.allclose(result, 6)


def check_transformations():
    batch = jnp.arange(12.0).reshape(4, 3) + bps.rank()
    mean = np.arange(12.0).reshape(4, 3) + ranks() / bps.size()
    for way in WAYS:
        assert np.allclose(way(jax.vmap(bps.push_pull))(batch), mean)
        assert np.allclose(way(jax.vmap(bps.push_pull, in_axes=1, out_axes=1))(batch), mean)
        both = way(jax.vmap(lambda x, y: bps.push_pull((x, y)), in_axes=(0, None), out_axes=(0, None)))
        assert np.allclose(both(batch, batch[0])[1], mean[0])
        per_row = way(jax.vmap(jax.grad(lambda x: jnp.sum(bps.push_pull(x) ** 2))))(batch)
        assert np.allclose(per_row, 2 * mean)
        total, rows = way(lambda xs: jax.lax.scan(lambda c, x: (c + 1, bps.push_pull(x)), 0, xs))(batch)
        assert np.allclose(rows, mean) and int(total) == 4
        counted = way(lambda x: jax.lax.fori_loop(0, 5, lambda i, x: bps.push_pull(x, op=bps.Average) + 1, x))
        assert np.allclose(counted(batch), mean + 5)
        branch = way(lambda x: jax.lax.cond(x[0, 0] > -1, bps.push_pull, lambda x: x, x))(batch)
        assert np.allclose(branch, mean)
        again = way(jax.grad(jax.checkpoint(lambda x: jnp.sum(jnp.sin(bps.push_pull(x))))))(batch)
        assert np.allclose(again, np.cos(mean), atol=1e-5)


def check_programs():
    """Constants, results that nobody uses, equal operations, arguments that are given away, several programs."""
    x = jnp.full(3, bps.rank(), "float32")
    constant = jax.jit(lambda: bps.push_pull(x, op=bps.Sum))
    assert constant().tolist() == [ranks()] * 3 == constant().tolist()
    twice = jax.jit(lambda x: (bps.push_pull(x), bps.push_pull(x), (bps.push_pull(x), 0)[1]))(x)
    assert np.allclose(twice[0], ranks() / bps.size()) and np.allclose(twice[1], twice[0])
    before = native.pushed_bytes()
    unused = jax.jit(lambda x: (bps.push_pull(x) if bps.rank() == 0 else [bps.push_pull(x), x][1]) * 0)
    assert unused(x).tolist() == [0] * 3 and native.pushed_bytes() - before == 12
    given = jax.jit(lambda x, y: (bps.push_pull(x, op=bps.Sum), x + y), donate_argnums=0)
    first, second = given(jnp.full(1000, bps.rank(), "float32"), jnp.ones(1000))
    assert np.allclose(first, ranks()) and np.allclose(second, bps.rank() + 1)
    again = jax.jit(lambda x: bps.push_pull(x, op=bps.Sum))
    results = [again(jnp.full(5, float(i))) for i in range(50)]  # the next is dispatched before the last has ended
    assert all(np.allclose(result, i * bps.size()) for i, result in enumerate(results))
    assert np.allclose(x, bps.rank())  # JAX's arrays never change


def check_two_devices_of_one_worker():
    first, second = jax.devices()[:2]
    assert np.allclose(bps.push_pull(jax.device_put(jnp.ones(3), second), op=bps.Sum), bps.size())
    assert bps.push_pull(jax.device_put(jnp.ones(3), second)).devices() == {second}
    mesh = Mesh(np.array([first, second]), ("i",))
    split = NamedSharding(mesh, P("i"))
    x = jax.device_put(jnp.arange(10, dtype="float32") + bps.rank(), split)
    mean = np.arange(10) + ranks() / bps.size()
    assert np.allclose(bps.push_pull(x), mean) and bps.push_pull(x).sharding == split
    assert np.allclose(jax.jit(bps.push_pull)(x), mean)
    parts = jax.jit(jax.shard_map(bps.push_pull, mesh=mesh, in_specs=P("i"), out_specs=P("i")))
    for _ in range(20):
        assert np.allclose(parts(x), mean)

    def reduce(x, op):
        return bps.push_pull({"x": x, "y": x[:3]}, op=op, axis_name="i")

    for op, share in ((bps.Sum, 2 * bps.size()), (bps.Average, 1)):
        whole = jax.shard_map(functools.partial(reduce, op=op), mesh=mesh, in_specs=P(), out_specs=P())
        for way in WAYS:
            result = way(whole)(jnp.arange(7, dtype="float32") + bps.rank())
            assert np.allclose(result["x"], (np.arange(7) + ranks() / bps.size()) * share), result
            assert np.allclose(result["y"], (np.arange(3) + ranks() / bps.size()) * share), result

    def total(x):
        return jax.lax.psum(jnp.sum(bps.push_pull(x)), "i")

    loss = jax.shard_map(total, mesh=mesh, in_specs=P("i"), out_specs=P())
    assert np.allclose(jax.jit(jax.grad(loss))(x), 1)
    each = jax.pmap(lambda x: jax.lax.psum(bps.push_pull(x) + 1, "j"), axis_name="j")
    for _ in range(20):
        assert np.allclose(each(x.reshape(2, 5)), (mean.reshape(2, 5) + 1).sum(0))


def check_all_are_in_flight_at_once():
    """While no other worker has begun, a worker has started all the operations of its program."""
    if bps.size() == 1:
        return
    arrays = [jnp.full(256, float(i)) for i in range(32)]
    step = jax.jit(lambda xs: [bps.push_pull(jnp.sin(x) * 2, name=f"flight.{i}") for i, x in enumerate(xs)])
    compiled = step.lower(arrays).compile()
    bps.barrier()
    before = native.pushed_bytes()
    if bps.rank() == 0:
        with concurrent.futures.ThreadPoolExecutor() as executor:
            running = executor.submit(compiled, arrays)
            while native.pushed_bytes() - before < 32 * 1024:
                time.sleep(0.001)
            bps.push_pull(0.0, name="go")
            results = running.result()
    else:
        bps.push_pull(0.0, name="go")
        results = compiled(arrays)
    for i, result in enumerate(results):
        assert np.allclose(result, np.sin(float(i)) * 2)


def check_refusals():
    checks.raised(TypeError, lambda: bps.push_pull(jnp.ones(1, "uint32")), "uint32 is not supported", "float16")
    checks.raised(TypeError, lambda: jax.jit(bps.push_pull)(jnp.ones(1) * 1j), "complex64 is not supported")
    checks.raised(TypeError, lambda: bps.push_pull(jnp.ones(1), name=3), "must be a str")
    checks.raised(ValueError, lambda: bps.push_pull(jnp.ones(1), op=17), "not a reduction")
    checks.raised(ValueError, lambda: bps.broadcast(jnp.ones(1), bps.size()), "not the rank of a worker")
    if bps.size() > 1:
        other = jnp.ones(3 + bps.rank())
        for way in WAYS:
            work = way(functools.partial(bps.push_pull, name="other"))
            text = "worker 1 pushed [4] float32, worker 0 pushed [3] float32"
            checks.raised(JaxRuntimeError, lambda w=work: w(other).block_until_ready(), "FAILED_PRECONDITION", text)


def check_one_name_twice():
    """The error comes whichever of the two is first, and what comes after it is right."""
    inner = jax.jit(lambda x: bps.push_pull(x, name="same"))
    outer = jax.jit(lambda x, y: inner(x) + inner(y))
    checks.raised(
        JaxRuntimeError,
        lambda: outer(jnp.ones(3), jnp.zeros(3)).block_until_ready(),
        "INVALID_ARGUMENT",
        "a name of its own",
    )
    bps.barrier()
    assert np.allclose(jax.jit(functools.partial(bps.push_pull, name="next"))(jnp.ones(3)), 1)


def check_failure_of_another_operation():
    """A program that ends in the middle, by an exception of the user's, leaves nothing that disturbs the next."""

    def fail(_):
        raise ZeroDivisionError("mine")

    @jax.jit
    def step(x, broken):
        y = bps.push_pull(x, name="before", op=bps.Sum)
        z = jax.lax.cond(broken, lambda x: jax.pure_callback(fail, x, x), lambda x: x, x)
        return y, bps.push_pull(z, name="after", op=bps.Sum)

    x = jnp.ones(100_000)
    for _ in range(3):
        try:
            jax.block_until_ready(step(x, True))
        except JaxRuntimeError as error:
            assert "mine" in str(error), error
        else:
            raise AssertionError("no exception")
        bps.barrier()
        y, z = step(x, False)
        assert np.allclose(y, bps.size()) and np.allclose(z, bps.size())


def check_parameters():
    import optax

    tree = {"w": jnp.full(3, bps.rank(), "float32"), "key": jax.random.key(bps.rank()), "step": bps.rank()}
    state = optax.adam(1e-3).init({"w": tree["w"]})
    got, state = bps.broadcast_parameters((tree, state), bps.size() - 1)
    last = bps.size() - 1
    assert np.allclose(got["w"], last) and got["step"] == last and type(got["step"]) is int
    assert np.array_equal(jax.random.key_data(got["key"]), jax.random.key_data(jax.random.key(last)))
    assert bps.broadcast_object({"rank": bps.rank()}, last) == {"rank": last}
    if bps.size() > 1:
        import byteps

        checks.raised(
            byteps.MismatchError, lambda: bps.broadcast_parameters({f"w{bps.rank()}": jnp.ones(2)}), "differ"
        )
        checks.shapes_without_a_name(bps, jax.errors.JaxRuntimeError, lambda shape: bps.push_pull(jnp.ones(shape)))


if __name__ == "__main__":
    checks.main(globals(), bps)
