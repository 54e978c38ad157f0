# SPDX-License-Identifier: Apache-2.0
"""Gradients of Keras on JAX."""

import jax
import numpy as np
from jax.experimental import io_callback

from byteps import numpy as arrays
from byteps._async import refuse
from byteps._basics import wait_all
from byteps.jax import Compression
from byteps.jax.ops import reduce_all

__all__ = ["Compression", "Shared", "reduce", "wait"]


def reduce(how, names, gradients, learning_rate):
    """Return the reduced gradients. The learning rate may be a symbol, which push_pull cannot take along."""
    del learning_rate
    if how.group is not None:
        return _reduce_in_group(how, gradients)
    return reduce_all(gradients, names, how.op, how.compression, None, 0, *how.scales)


def _reduce_in_group(how, gradients):
    """Return the gradients that a process group has reduced, by a function of Python."""
    before, after = how.scales

    def exchange(*values):
        handles = [
            arrays.push_pull_async(np.asarray(value), None, None, -i, how.op, before, after, group=how.group)
            for i, value in enumerate(values)
        ]
        return wait_all(handles)

    small = [how.compression.compress(gradient) for gradient in gradients]
    results = io_callback(exchange, [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in small], *small, ordered=True)
    return [result.astype(gradient.dtype) for result, gradient in zip(results, gradients)]


def wait(variables):
    """Wait until variables have the values of the last step; raise its failure."""
    jax.block_until_ready([variable.value for variable in variables])


class Shared:
    """There is none: a step of JAX has no variables that could be exchanged within it."""

    def __init__(self):
        refuse("is not supported for Keras on JAX; use KERAS_BACKEND=tensorflow or torch")
