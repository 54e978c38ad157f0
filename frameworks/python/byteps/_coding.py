# SPDX-License-Identifier: Apache-2.0
"""How a tensor is coded on the network, as applications say it: a dictionary, in our words or in the original's."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._types import Coding

# The original's names of what every compressor can have. Its other ones are "compressor_" and the option's name.
_RENAMED = {
    "compressor_type": "compressor",
    "compressor_onebit_scaling": "scaling",
    "ef_type": "ef",
    "momentum_type": "momentum",
    "momentum_mu": "mu",
    "dithering_partition": "partition",
    "dithering_normalize": "normalize",
}
_FEEDBACK = {"vanilla": True, True: True, "none": False, None: False, False: False}

# Models are sensitive to what is lost of biases and last layers, and these are few of the bytes.
_SMALL = "65536"


def _value(value):
    """Return an option's value as the configuration has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _renamed(key):
    if not isinstance(key, str):
        raise TypeError(f"compression: the key {key!r} is not a string")
    key = key.removeprefix("byteps_") if hasattr(key, "removeprefix") else key
    return _RENAMED.get(key, key[len("compressor_") :] if key.startswith("compressor_") else key)


def _feedback(options):
    """Take "ef" (or "feedback") out of the options."""
    given = options.pop("ef", options.pop("feedback", False))
    if given not in _FEEDBACK:
        raise ValueError(f'compression: ef={given!r} is not known; expected "vanilla", or None for none')
    return _FEEDBACK[given]


def coding_text(compression: Coding) -> str | None:
    """Return the text that the core takes for how a tensor is coded; None: as configured.

    Args:
        compression: None; False for no coding; the name of a compressor, such as "onebit"; or a dictionary with
            its name as "compressor", its options, and "ef" ("vanilla": error feedback), "momentum" ("nesterov"),
            "mu" (its factor), "min_bytes" and "seed". The keys of the original are understood, too: "compressor_type",
            "compressor_k", "compressor_onebit_scaling", "ef_type", "momentum_type", "momentum_mu" and so on.
    """
    if compression is None:
        return None
    if compression is False:
        return ""
    if isinstance(compression, str):
        compression = {"compressor": compression}
    if not isinstance(compression, dict):
        raise TypeError(
            f"compression: {compression!r} is not known; expected a dictionary such as "
            '{"compressor": "onebit", "ef": "vanilla"}, or the name of a compressor'
        )
    options = {_renamed(key): value for key, value in compression.items()}
    name = options.pop("compressor", None)
    if name == "dithering" and "k" in options:
        options["levels"] = options.pop("k")
    if not isinstance(name, str):
        raise ValueError(f'compression: {compression!r} names no compressor; expected "compressor": "onebit", say')
    parts = [f"plugin={name}", f"feedback={_value(_feedback(options))}"]
    parts += [f"{key}={_value(value)}" for key, value in options.items() if value is not None]
    if any(mark in part for part in parts for mark in ";\n"):
        raise ValueError(f"compression: {compression!r} has a ';' or a line break in it")
    return "; ".join(parts)


def _parts(text):
    """Return what such a text says, option by option."""
    return dict(part.split("=", 1) for part in (text or "").split("; ") if part)


def _min_bytes():
    """Return the size below which gradients lose nothing: that of the original's variable, or its default."""
    given = os.environ.get("BYTEPS_MIN_COMPRESS_BYTES") or _SMALL
    if not given.isdecimal():
        raise ValueError(
            f"BYTEPS_MIN_COMPRESS_BYTES = {given!r} is not a number of bytes; expected one such as {_SMALL}, below "
            "which gradients are not coded, or 0 to code all of them"
        )
    return given


def model_coding_text(compression: Coding) -> str | None:
    """Return the same for all gradients of a model: unless "min_bytes" is given, small ones lose nothing."""
    text = coding_text(compression)
    return text if not text or "min_bytes" in _parts(text) else f"{text}; min_bytes={_min_bytes()}"


def asks_for_momentum(text: str | None) -> bool:
    """Return whether such a text does."""
    return _parts(text).get("momentum", "none") != "none"


def check_momentum(text: str | None, of_optimizer: bool) -> None:
    """Raise ValueError if such a text asks for momentum, and the optimizer has some, too."""
    if asks_for_momentum(text) and of_optimizer:
        raise ValueError(
            "compression: momentum is requested, and the optimizer has momentum, too, so that gradients would have "
            "it twice; make the optimizer with momentum=0, or leave momentum out of the compression"
        )
