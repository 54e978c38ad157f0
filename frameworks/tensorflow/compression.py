# SPDX-License-Identifier: Apache-2.0
"""Smaller element types: gradients are sent as float16 or bfloat16, summed so, and converted back."""

from __future__ import annotations

import tensorflow as tf


class Compressor:
    """Converts a tensor before it is sent and its result afterwards."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, tf.DType | None]:
        """Return the tensor to send, and what decompress() needs to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: tf.Tensor, context: tf.DType | None) -> tf.Tensor:
        """Return the tensor as it was before compress()."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, tf.DType | None]:
        """Return the tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: tf.Tensor, context: tf.DType | None) -> tf.Tensor:
        """Return the tensor itself."""
        return tensor


class _CastCompressor(Compressor):
    dtype: tf.DType

    @classmethod
    def compress(cls, tensor: tf.Tensor) -> tuple[tf.Tensor, tf.DType | None]:
        """Return the tensor in the smaller type, if it has a larger floating point type."""
        if tensor.dtype.is_floating and tensor.dtype.size > cls.dtype.size:
            return tf.cast(tensor, cls.dtype), tensor.dtype
        return tensor, None

    @classmethod
    def decompress(cls, tensor: tf.Tensor, context: tf.DType | None) -> tf.Tensor:
        """Return the tensor in the type that it had."""
        return tensor if context is None else tf.cast(tensor, context)


class FP16Compressor(_CastCompressor):
    """Sends floating point tensors as float16: 10 bits of fraction, values up to 65504."""

    dtype = tf.float16


class BF16Compressor(_CastCompressor):
    """Sends floating point tensors as bfloat16: 7 bits of fraction, the range of float32."""

    dtype = tf.bfloat16


class Compression:
    """What the argument `compression` may be, besides what declare() takes."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
