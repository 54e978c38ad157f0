# SPDX-License-Identifier: Apache-2.0
"""Training in JAX equals that of one process with the batches of all workers, in each way to write the loop."""

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2 " + os.environ.get("XLA_FLAGS", "")

import functools

import checks
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import byteps.jax as bps
from byteps._native import bps as native

jax.config.update("jax_enable_x64", True)
STEPS, BATCH = 20, 12  # the batch of all workers
RATE, MOMENTUM = 0.125, 0.875


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
    return {name: generator.normal(size=shape) / 2 for name, shape in
            {"a": (6, 9), "b": (9,), "c": (9, 1), "d": (1,)}.items()}


def loss(weights, inputs, labels):
    hidden = jnp.tanh(inputs @ weights["a"] + weights["b"])
    return jnp.mean((hidden @ weights["c"] + weights["d"] - labels) ** 2)


def gradients_of(weights, inputs, labels):
    """By NumPy alone."""
    hidden = np.tanh(inputs @ weights["a"] + weights["b"])
    error = 2 * (hidden @ weights["c"] + weights["d"] - labels) / len(inputs)
    inner = error @ weights["c"].T * (1 - hidden**2)
    return {"a": inputs.T @ inner, "b": inner.sum(0), "c": hidden.T @ error, "d": error.sum(0)}


@functools.lru_cache(maxsize=None)
def reference(passes=1, clip=None):
    """The weights after training with all batches, by NumPy alone; the mean of several batches makes a step."""
    weights = first_weights()
    velocity, sums = ({name: 0 * value for name, value in weights.items()} for _ in range(2))
    for step in range(STEPS):
        gradients = gradients_of(weights, *data(step))
        sums = {name: sums[name] + gradients[name] for name in sums}
        if (step + 1) % passes:
            continue
        mean = {name: value / passes for name, value in sums.items()}
        norm = np.sqrt(sum(np.sum(value**2) for value in mean.values()))
        factor = 1 if clip is None else min(1, clip / norm)
        velocity = {name: MOMENTUM * velocity[name] + factor * mean[name] for name in velocity}
        weights = {name: weights[name] - RATE * velocity[name] for name in weights}
        sums = {name: 0 * value for name, value in sums.items()}
    return weights


def assert_trained(weights, tolerance=1e-12, **how):
    for name, value in reference(**how).items():
        assert np.allclose(weights[name], value, rtol=0, atol=tolerance), (name, weights[name] - value)


def sgd():
    return optax.sgd(RATE, MOMENTUM)


def train(optimizer, way=jax.jit, weights=None):
    """Train with an optimizer of Optax and return the weights and its state."""
    weights = bps.broadcast_parameters(weights or first_weights(5 + bps.rank()))
    state = optimizer.init(weights)

    @way
    def step(weights, state, inputs, labels):
        updates, state = optimizer.update(jax.grad(loss)(weights, inputs, labels), state, weights)
        return optax.apply_updates(weights, updates), state

    for number in range(STEPS):
        weights, state = step(weights, state, *map(share, data(number)))
    return jax.block_until_ready((weights, state))


def check_compiled():
    weights, state = train(bps.distributed(sgd()))
    assert_trained(weights)
    plain = sgd().init(first_weights())
    assert jax.tree_util.tree_structure(state) == jax.tree_util.tree_structure(plain)  # so checkpoints stay valid


def check_donated():
    weights, _ = train(bps.distributed(sgd()), functools.partial(jax.jit, donate_argnums=(0, 1)))
    assert_trained(weights)


def check_eager():
    assert_trained(train(bps.distributed(sgd()), lambda step: step)[0])


def check_clipping():
    """Inside, it clips the mean gradient."""
    assert_trained(train(bps.distributed(optax.chain(optax.clip_by_global_norm(0.5), sgd())))[0], clip=0.5)


def check_accumulation():
    """Only sums are sent. Optax's own way has the same result."""
    for way in (jax.jit, lambda step: step):
        before = native.pushed_bytes()
        weights, _ = train(bps.distributed(sgd(), backward_passes_per_step=4), way)
        assert_trained(weights, passes=4)
        elements = sum(value.size for value in weights.values())
        assert native.pushed_bytes() - before == 8 * elements * STEPS / 4 + 32
    weights, _ = train(optax.MultiSteps(bps.distributed(sgd()), 4), jax.jit)
    assert_trained(weights, passes=4, tolerance=1e-7)  # it averages in float32


def check_by_hand():
    weights = bps.broadcast_parameters(first_weights(5 + bps.rank()))
    velocity = jax.tree_util.tree_map(jnp.zeros_like, weights)

    @jax.jit
    def step(weights, velocity, inputs, labels):
        value, gradients = jax.value_and_grad(loss)(weights, inputs, labels)
        gradients = bps.push_pull(gradients, name="gradients")
        velocity = jax.tree_util.tree_map(lambda v, g: MOMENTUM * v + g, velocity, gradients)
        weights = jax.tree_util.tree_map(lambda w, v: w - RATE * v, weights, velocity)
        return weights, velocity, bps.push_pull(value)

    for number in range(STEPS):
        inputs, labels = data(number)
        expected = loss(weights, inputs, labels)
        weights, velocity, mean = step(weights, velocity, share(inputs), share(labels))
        assert np.allclose(mean, expected)
    assert_trained(weights)


def check_steps_in_a_loop_of_xla():
    optimizer = bps.distributed(sgd())
    batches = [np.stack([share(part) for part in parts]) for parts in zip(*map(data, range(STEPS)))]

    def step(carry, batch):
        weights, state = carry
        updates, state = optimizer.update(jax.grad(loss)(weights, *batch), state)
        return (optax.apply_updates(weights, updates), state), None

    weights = jax.tree_util.tree_map(jnp.asarray, first_weights())
    (weights, _), _ = jax.jit(lambda c, b: jax.lax.scan(step, c, b))((weights, optimizer.init(weights)), batches)
    assert_trained(weights)


def check_two_devices_of_each_worker():
    mesh = Mesh(np.array(jax.devices()[:2]), ("i",))
    optimizer = bps.distributed(sgd(), axis_name="i")

    def step(weights, state, inputs, labels):
        own = jax.tree_util.tree_map(lambda w: jax.lax.pcast(w, "i", to="varying"), weights)
        updates, state = optimizer.update(jax.grad(loss)(own, inputs, labels), state, weights)
        return optax.apply_updates(weights, updates), state

    step = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=(P(), P(), P("i"), P("i")), out_specs=P()))
    weights = bps.broadcast_parameters(first_weights(5 + bps.rank()))
    state = optimizer.init(weights)
    for number in range(STEPS):
        weights, state = step(weights, state, *map(share, data(number)))
    assert_trained(weights)


def check_two_models():
    """Two optimizers in one program have gradients of the same names."""
    first, second = bps.distributed(sgd()), bps.distributed(sgd())
    weights = [jax.tree_util.tree_map(jnp.asarray, first_weights())] * 2
    states = [first.init(weights[0]), second.init(weights[1])]

    @jax.jit
    def step(weights, states, inputs, labels):
        done = []
        for optimizer, its, state in zip((first, second), weights, states):
            updates, state = optimizer.update(jax.grad(loss)(its, inputs, labels), state)
            done.append((optax.apply_updates(its, updates), state))
        return [one[0] for one in done], [one[1] for one in done]

    for number in range(STEPS):
        weights, states = step(weights, states, *map(share, data(number)))
    for its in weights:
        assert_trained(its)


def check_smaller_types():
    """Compressed gradients train to about the same, and half or a quarter of the bytes are sent."""
    for compression in (bps.Compression.fp16, bps.Compression.bf16):
        before = native.pushed_bytes()
        weights, _ = train(bps.distributed(sgd(), compression=compression))
        elements = sum(value.size for value in weights.values())
        assert native.pushed_bytes() - before == 2 * elements * STEPS + 32
        for name, value in reference().items():
            assert np.allclose(weights[name], value, atol=0.05), name


def refuses_asynchronous_training():
    optimizer = bps.distributed(optax.sgd(0.1))
    gradients = {"w": jnp.ones(3)}
    checks.raised(ValueError, lambda: optimizer.update(gradients, optimizer.init(gradients)), "not supported for JAX")


if __name__ == "__main__":
    checks.main(globals(), bps)
