# SPDX-License-Identifier: Apache-2.0
"""The ways in which a worker with JAX ends."""

import functools

import ends
import jax
import jax.numpy as jnp
import numpy as np
import optax

import byteps.jax as bps


@jax.jit
def reduced(values):
    return [bps.push_pull(value, op=bps.Sum, name=f"values.{i}") for i, value in enumerate(values)]


def reduce(count):
    for result in reduced([jnp.ones(1000)] * count):
        assert np.all(np.asarray(result) == bps.size())


def train(way, end):
    """Train with an optimizer of Optax; end() is called between two steps."""
    optimizer = bps.distributed(optax.sgd(0.01))
    weights = {"a": jnp.ones(5000), "b": jnp.ones(300)}
    state = optimizer.init(weights)

    @way
    def step(weights, state, inputs):
        gradients = jax.grad(lambda w: jnp.sum((w["a"] * inputs) ** 2) + jnp.sum(w["b"]))(weights)
        updates, state = optimizer.update(gradients, state)
        return optax.apply_updates(weights, updates), state

    for number in range(30):
        if number == 15 and end is not None:
            end()
        weights, state = step(weights, state, jax.random.normal(jax.random.key(number), (5000,)))
    jax.block_until_ready(weights)


def scanned(end):
    """All steps are one program."""
    reduce(1)  # so that all have joined
    if end is not None:
        end()

    def step(weights, _):
        return weights - 0.01 * bps.push_pull(weights, name="weights"), None

    jax.block_until_ready(jax.jit(lambda w: jax.lax.scan(step, w, None, 30))(jnp.ones(5000)))


def callback(end):
    """end() is called by a callback in the middle of a program whose gradients are in flight."""

    def between(values):
        if end is not None:
            end()
        return values

    @jax.jit
    def step(weights):
        early = bps.push_pull([weights, weights * 2], name="early")
        late = jax.pure_callback(between, weights, weights)
        return early, bps.push_pull(late, name="late")

    for _ in range(3):
        jax.block_until_ready(step(jnp.ones(5000)))


if __name__ == "__main__":
    loops = {
        "compiled": functools.partial(train, jax.jit),
        "eager": functools.partial(train, lambda step: step),
        "scanned": scanned,
        "callback": callback,
    }
    ends.main(loops, reduce, (jax.errors.JaxRuntimeError,), lambda error: type(error).__name__)
