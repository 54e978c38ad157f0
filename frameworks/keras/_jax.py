# SPDX-License-Identifier: Apache-2.0
"""Gradients of Keras on JAX."""

import jax

from byteps._async import refuse
from byteps.jax import Compression
from byteps.jax.ops import reduce_all

__all__ = ["Compression", "Shared", "reduce", "wait"]


def reduce(how, names, gradients, learning_rate):
    """Return the reduced gradients. The learning rate may be a symbol, which push_pull cannot take along."""
    del learning_rate
    return reduce_all(gradients, names, how.op, how.compression, None, 0, *how.scales)


def wait(variables):
    """Wait until variables have the values of the last step; raise its failure."""
    jax.block_until_ready([variable.value for variable in variables])


class Shared:
    """There is none: a step of JAX has no variables that could be exchanged within it."""

    def __init__(self):
        refuse("is not there for Keras on JAX; use KERAS_BACKEND=tensorflow or torch")
