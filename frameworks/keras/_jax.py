# SPDX-License-Identifier: Apache-2.0
"""Gradients of Keras on JAX."""

from byteps.jax import Compression, push_pull

__all__ = ["Compression", "reduce"]


def reduce(how, names, gradients):
    """Return the reduced gradients."""
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
