# SPDX-License-Identifier: Apache-2.0
"""Gradients of Keras on JAX: by a callback to the host, which compiled functions may contain."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from byteps._basics import wait_all
from byteps.numpy.ops import push_pull_async


class NoneCompressor:
    """Sends gradients as they are."""

    dtype = None


class FP16Compressor:
    """Sends floating point gradients as float16: 10 bits of fraction, values up to 65504."""

    dtype = jnp.float16


class BF16Compressor:
    """Sends floating point gradients as bfloat16: 7 bits of fraction, the range of float32."""

    dtype = jnp.bfloat16


class Compression:
    """What the argument `compression` may be."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


def _compress(gradient, smaller):
    is_larger = jnp.issubdtype(gradient.dtype, jnp.floating) and smaller is not None and gradient.dtype.itemsize > 2
    return gradient.astype(smaller) if is_larger else gradient


def reduce(how, names, gradients):
    """Return the reduced gradients."""
    small = [_compress(jnp.asarray(gradient), how.compression.dtype) for gradient in gradients]

    def exchange(*arrays):
        return _exchange(how, names, arrays)

    shapes = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in small]
    results = io_callback(exchange, shapes, *small)
    return [result.astype(gradient.dtype) for result, gradient in zip(results, gradients)]


def _exchange(how, names, arrays):
    """Reduce arrays on the host; all are in flight at once. The first ones are the most urgent."""
    before, after = how.scales
    handles = [
        push_pull_async(
            np.asarray(array),
            name=name,
            priority=-i,
            op=how.op,
            prescale_factor=before,
            postscale_factor=after,
        )
        for i, (name, array) in enumerate(zip(names, arrays))
    ]
    return wait_all(handles)
