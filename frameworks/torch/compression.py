# SPDX-License-Identifier: Apache-2.0
"""Smaller element types: gradients are pushed as float16 or bfloat16 and converted back. And the choice between that,
where the sums are made in the smaller type, too, and coding on the network only, by a compressor of the core."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from byteps._coding import coding_text

if TYPE_CHECKING:
    from typing import Any, Type, Union

    from byteps._types import Coding

    Cast = Union[Type["Compressor"], "Compressor"]
    Choice = Union[Cast, Coding]


class Compressor:
    """Converts a tensor before it is sent and its result afterwards."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return the tensor to send, and what decompress() needs to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, context: Any) -> torch.Tensor:
        """Return the tensor as it was before compress()."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, context: None) -> torch.Tensor:
        """Return the tensor itself."""
        return tensor


class _CastCompressor(Compressor):
    dtype: torch.dtype

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype | None]:
        """Return the tensor in the smaller type, if it has a larger floating point type."""
        if tensor.is_floating_point() and tensor.dtype.itemsize > cls.dtype.itemsize:
            return tensor.to(cls.dtype), tensor.dtype
        return tensor, None

    @classmethod
    def decompress(cls, tensor: torch.Tensor, context: torch.dtype | None) -> torch.Tensor:
        """Return the tensor in the type that it had."""
        return tensor if context is None else tensor.to(context)


class FP16Compressor(_CastCompressor):
    """Sends floating point tensors as float16: 10 bits of fraction, values up to 65504."""

    dtype = torch.float16


class BF16Compressor(_CastCompressor):
    """Sends floating point tensors as bfloat16: 7 bits of fraction, the range of float32."""

    dtype = torch.bfloat16


class Compression:
    """What the argument `compression` may be, besides what byteps.torch.declare() takes."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


def choose(compression, text_of=coding_text):
    """Return which of Compression an argument means, and the text of how tensors are to be coded on the network.

    The text is None if the configuration says that; that of a whole model is by model_coding_text().
    """
    if hasattr(compression, "compress") and hasattr(compression, "decompress"):
        return compression, None
    return Compression.none, text_of(compression)
