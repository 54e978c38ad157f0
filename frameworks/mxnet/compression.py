# SPDX-License-Identifier: Apache-2.0
"""Smaller element types on the wire: arrays are sent as float16 and converted back. And the original's parameters, by
which the core codes gradients on the network."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from byteps._coded_names import coded
from byteps._coding import model_coding_text

if TYPE_CHECKING:
    import mxnet as mx


class NoneCompressor:
    """Sends arrays as they are."""

    @staticmethod
    def compress(tensor: mx.nd.NDArray) -> tuple[mx.nd.NDArray, Any]:
        """Return the array to send, and what decompress() needs to know."""
        return tensor, None

    @staticmethod
    def decompress(tensor: mx.nd.NDArray, ctx: Any) -> mx.nd.NDArray:
        """Return the array as it was before compress()."""
        return tensor if ctx is None else tensor.astype(ctx)


class FP16Compressor(NoneCompressor):
    """Sends floating point arrays as float16: 10 bits of fraction, values up to 65504."""

    @staticmethod
    def compress(tensor: mx.nd.NDArray) -> tuple[mx.nd.NDArray, Any]:
        """Return the array as float16, if it has a larger floating point type."""
        if tensor.dtype.__name__ in ("float32", "float64"):
            return tensor.astype("float16"), tensor.dtype
        return tensor, None


class Compression:
    """What the argument `compression` may be."""

    none = NoneCompressor
    fp16 = FP16Compressor


_METHODS = ("compressor", "ef", "momentum")

# The original's programs have the keys of all its compressors in one dictionary, whichever of them they use.
_DETAILS = {
    "onebit": {"scaling"},
    "topk": {"k"},
    "randomk": {"k", "seed"},
    "dithering": {"k", "seed", "partition", "normalize"},
}
_ALL_DETAILS = set().union(*_DETAILS.values())


def _is_off(parameters):
    """Return whether a compressor is named there, and it is none."""
    return "compressor" in parameters and not parameters["compressor"]


def from_parameters(parameters):
    """Return the compressor that the original's compression_params mean.

    What is empty there is left out, "threshold" is without effect, and so are the keys of other compressors. With an
    empty "compressor" nothing is coded.

    Raises:
        TypeError, ValueError: as for byteps.mxnet.declare(), or there is a detail of a compressor without its name.
    """
    parameters = dict(parameters or {})
    base = Compression.fp16 if parameters.pop("fp16", False) else Compression.none
    parameters.pop("threshold", None)
    compressor = parameters.get("compressor")
    others = _ALL_DETAILS - _DETAILS[compressor] if compressor in _DETAILS else set()
    given = {
        key: value
        for key, value in parameters.items()
        if value not in (None, "") and not (key in _METHODS and value is False) and key not in others
    }
    if not any(given.values()):
        return base
    if _is_off(parameters):
        lost = [key for key in ("ef", "momentum") if key in given]
        if lost:
            text = f"compression_params name no compressor, so there is no effect of {' and '.join(lost)}"
            warnings.warn(text, stacklevel=3)
        return base
    return coded(base, model_coding_text(given))


def sends_signs(parameters):
    """Return whether such parameters send signs alone, whose sum says nothing of the size of gradients."""
    parameters = parameters or {}
    return parameters.get("compressor") == "onebit" and parameters.get("scaling") is False


def take_momentum(compression_params, optimizer_params):
    """Return both, with the optimizer's momentum in the first one if that gives gradients momentum already.

    Raises:
        KeyError: the optimizer has none.
    """
    if not (compression_params or {}).get("momentum") or _is_off(compression_params):
        return compression_params, optimizer_params
    rest = dict(optimizer_params or {})
    return {**compression_params, "mu": rest.pop("momentum")}, rest
