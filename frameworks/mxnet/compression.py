# SPDX-License-Identifier: Apache-2.0
"""Smaller element types on the wire: arrays are sent as float16 and converted back."""


class NoneCompressor:
    """Sends arrays as they are."""

    @staticmethod
    def compress(tensor):
        """Return the array to send, and what decompress() needs to know."""
        return tensor, None

    @staticmethod
    def decompress(tensor, ctx):
        """Return the array as it was before compress()."""
        return tensor if ctx is None else tensor.astype(ctx)


class FP16Compressor(NoneCompressor):
    """Sends floating point arrays as float16: 10 bits of fraction, values up to 65504."""

    @staticmethod
    def compress(tensor):
        """Return the array as float16, if it has a larger floating point type."""
        if tensor.dtype.__name__ in ("float32", "float64"):
            return tensor.astype("float16"), tensor.dtype
        return tensor, None


class Compression:
    """What the argument `compression` may be."""

    none = NoneCompressor
    fp16 = FP16Compressor


_METHODS = ("compressor", "ef", "momentum")
_DETAILS = ("scaling", "k", "seed", "partition", "normalize", "threshold")


def from_parameters(parameters):
    """Return the compressor that the original's compression_params mean.

    Raises:
        NotImplementedError: they name a method; there are none yet but fp16.
        ValueError: an unknown key.
    """
    parameters = dict(parameters or {})
    for key in parameters:
        if key not in ("fp16", *_METHODS, *_DETAILS):
            raise ValueError(
                f"compression_params: unknown key {key!r}; known are fp16, {', '.join(_METHODS + _DETAILS)}"
            )
    wanted = [f"{key}={parameters[key]!r}" for key in _METHODS if parameters.get(key)]
    if wanted:
        raise NotImplementedError(
            f"compression_params: {', '.join(wanted)} is not there yet; leave it out, or use {{'fp16': True}}"
        )
    return Compression.fp16 if parameters.get("fp16") else Compression.none
