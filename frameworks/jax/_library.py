# SPDX-License-Identifier: Apache-2.0
"""Loads framework_jax.so among the plugins, and tells XLA of its handlers."""

import ctypes
import os
import re

import jax

from byteps._native import find_plugin

_OLDEST, _TESTED = (0, 7), (0, 10)
_RANGE = (
    f"BytePS works with JAX {_OLDEST[0]}.{_OLDEST[1]} and later, and was tested up to {_TESTED[0]}.{_TESTED[1]}"
)
_PLACE = os.path.dirname(jax.__file__)


def _check_version():
    version = tuple(map(int, re.findall(r"\d+", jax.__version__)[:2]))
    if version < _OLDEST:
        raise ImportError(f"this is JAX {jax.__version__} ({_PLACE}); {_RANGE}")


def load() -> None:
    """Load the plugin; raise ImportError if this JAX cannot be used."""
    _check_version()
    library = ctypes.CDLL(find_plugin("framework_jax", "JAX"))
    library.byteps_jax_attach.restype = ctypes.c_char_p
    refusal = library.byteps_jax_attach(jax.__version__.encode()).decode()
    if refusal:
        raise ImportError(f"this JAX ({jax.__version__}, {_PLACE}) cannot be used: {refusal}; {_RANGE}")
    for name in ("byteps_start", "byteps_finish"):
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(library, name)), platform="cpu")
