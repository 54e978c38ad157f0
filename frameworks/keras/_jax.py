# SPDX-License-Identifier: Apache-2.0
"""Gradients of Keras on JAX."""

from byteps.jax import Compression, push_pull

__all__ = ["Compression", "reduce"]


def reduce(how, names, gradients, learning_rate):
    """Return the reduced gradients. The learning rate may be a symbol, which push_pull cannot take along."""
    del learning_rate
    before, after = how.scales
    results = push_pull(
        dict(zip(names, gradients)),
        name="",
        op=how.op,
        compression=how.compression,
        prescale_factor=before,
        postscale_factor=after,
    )
    return [results[name] for name in names]
