# SPDX-License-Identifier: Apache-2.0
"""Smaller element types: arrays are sent as float16 or bfloat16, summed so, and converted back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax.numpy as jnp

if TYPE_CHECKING:
    from typing import ClassVar

    import jax
    from jax.typing import DTypeLike


class NoneCompressor:
    """Sends arrays as they are."""

    dtype: ClassVar[DTypeLike | None] = None

    @classmethod
    def compress(cls, array: jax.Array) -> jax.Array:
        """Return the array to send."""
        is_larger = cls.dtype is not None and jnp.issubdtype(array.dtype, jnp.floating) and array.dtype.itemsize > 2
        return array.astype(cls.dtype) if is_larger else array


class FP16Compressor(NoneCompressor):
    """Sends floating point arrays as float16: 10 bits of fraction, values up to 65504."""

    dtype = jnp.float16


class BF16Compressor(NoneCompressor):
    """Sends floating point arrays as bfloat16: 7 bits of fraction, the range of float32."""

    dtype = jnp.bfloat16


class Compression:
    """What the argument `compression` may be, besides what declare() takes."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
