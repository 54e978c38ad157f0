# SPDX-License-Identifier: Apache-2.0
"""Gradients of JAX that are coded on the network, against the formulas."""

import checks
import coded_ops
import jax
import jax.numpy as jnp
import numpy as np
import optax

import byteps
import byteps.jax as bps

COUNT, ROUNDS = 300, 4
ONEBIT = {"compressor": "onebit", "ef": "vanilla"}
ALL = {**ONEBIT, "min_bytes": 0}  # else the gradients of these checks would be too small
ORIGINAL = {"compressor_type": "onebit", "ef_type": "vanilla", "compressor_onebit_scaling": True}


def follow(reduce, coder=None, average=True):
    """Each round of a function from this worker's gradient to the reduced one is what the coder says."""
    coder = coder or coded_ops.Job()
    before, _ = byteps.coded_bytes()
    for number in range(ROUNDS):
        gradients = coded_ops.everyone(number, COUNT)
        found = np.array(reduce(jnp.asarray(gradients[bps.rank()])))
        coded_ops.close(found, coder.round(gradients, average=average))
        coded_ops.same_everywhere(found, "found")
    assert byteps.coded_bytes()[0] - before == ROUNDS * COUNT * 4 * coder.codes, byteps.coded_bytes()


def twice(reduce):
    """The same in a second job, for which nothing is compiled again."""
    for _ in range(2):
        follow(reduce)
        bps.shutdown()
        bps.init()


def check_outside_of_compiled_functions():
    for name, compression in (("eager", ONEBIT), ("eager.original", ORIGINAL)):
        twice(lambda x: bps.push_pull(x, name=name, compression=compression))  # noqa: B023
    follow(lambda x: bps.push_pull(x, name="eager.sum", average=False, compression=ONEBIT), average=False)
    plain = {"compressor": "onebit", "momentum": "nesterov", "mu": 0.5, "scaling": False}
    coder = coded_ops.Job(feedback=False, mu=0.5, scaling=False)
    follow(lambda x: bps.push_pull(x, name="eager.momentum", compression=plain), coder)


def check_compiled():
    reduce = jax.jit(lambda x: bps.push_pull(x, name="compiled", compression=ONEBIT))
    twice(reduce)
    assert reduce._cache_size() == 1


def updating(compression):
    """Return a function from a gradient to what an optimizer takes for it."""
    optimizer = bps.distributed(optax.sgd(1.0), compression=compression)

    @jax.jit
    def update(x):
        params = {"weight": jnp.zeros(COUNT)}
        gradients = jax.grad(lambda p: jnp.sum(p["weight"] * x))(params)
        return -optimizer.update(gradients, optimizer.init(params), params)[0]["weight"]

    return update


def check_an_optimizer():
    twice(updating(ALL))


def check_small_gradients_lose_nothing():
    follow(updating(ONEBIT), coded_ops.Exact())


def check_nothing_is_coded_without():
    x, coded = jnp.asarray(coded_ops.everyone(0, COUNT)[bps.rank()]), byteps.coded_bytes()
    want = np.mean(coded_ops.everyone(0, COUNT), axis=0)
    for i, compression in enumerate((None, False, bps.Compression.none)):
        found = bps.push_pull(x, name=f"uncoded.{i}", compression=compression)
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
    assert byteps.coded_bytes() == coded


def check_the_gradient_of_what_is_coded():
    def reduced(x):
        return jnp.sum(bps.push_pull(x, name="forward", average=False, compression="onebit"))

    found = jax.jit(jax.grad(reduced))(jnp.ones(COUNT))
    np.testing.assert_array_equal(found, np.full(COUNT, bps.size(), np.float32))


def check_refusals():
    x = jnp.ones(COUNT)
    for compression, kind, text in (
        ({"ef": "vanilla"}, ValueError, "names no compressor"),
        ({"compresor": "onebit"}, ValueError, "names no compressor"),
        ({**ONEBIT, "ef": "sparse"}, ValueError, "vanilla"),
        (3, TypeError, "dictionary"),
    ):
        checks.raised(kind, lambda: bps.push_pull(x, name="x", compression=compression), text)  # noqa: B023
        checks.raised(kind, lambda: bps.distributed(optax.sgd(0.1), compression=compression), text)  # noqa: B023
    checks.raised(ValueError, lambda: bps.push_pull(x, compression=ONEBIT), "needs a name")
    for i, (compression, text) in enumerate((("twobit", "twobit"), ({**ONEBIT, "scalling": True}, "scaling"))):
        def reduce(x):
            return bps.push_pull(x, name=f"wrong.{i}", compression=compression)  # noqa: B023

        for function in (reduce, jax.jit(reduce)):
            checks.raised(jax.errors.JaxRuntimeError, lambda: np.asarray(function(x)), text)  # noqa: B023


def check_workers_that_disagree():
    def reduce(x):
        return bps.push_pull(x, name="disagree", compression={**ONEBIT, "scaling": bps.rank() == 0})

    for function in (reduce, jax.jit(reduce)):
        def differ():
            return np.asarray(function(jnp.ones(COUNT)))  # noqa: B023

        checks.raised(jax.errors.JaxRuntimeError, differ, "scaling=true", "scaling=false")


if __name__ == "__main__":
    checks.main(globals(), bps)
