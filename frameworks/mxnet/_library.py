# SPDX-License-Identifier: Apache-2.0
"""Loads framework_mxnet.so among the plugins."""

import ctypes
import os
import re

import mxnet as mx

from byteps._native import find_plugin

_OLDEST, _TESTED = (1, 9), (1, 9)
_RANGE = f"BytePS works with MXNet {_OLDEST[0]}.{_OLDEST[1]} and later, and was tested up to " + ".".join(
    map(str, _TESTED)
)
_PLACE = os.path.dirname(mx.__file__)


def _check_version():
    version = tuple(map(int, re.findall(r"\d+", mx.__version__)[:2]))
    if version < _OLDEST:
        raise ImportError(f"this is MXNet {mx.__version__} ({_PLACE}); {_RANGE}")


def load():
    """Return the functions that push an operation and count them; raise ImportError if this MXNet cannot be used."""
    _check_version()
    library = ctypes.CDLL(find_plugin("framework_mxnet", "MXNet"))
    library.byteps_mxnet_attach.restype = ctypes.c_char_p
    refusal = library.byteps_mxnet_attach(mx.__version__.encode()).decode()
    if refusal:
        raise ImportError(f"this MXNet ({mx.__version__}, {_PLACE}) cannot be used: {refusal}; {_RANGE}")
    push = library.byteps_mxnet_push
    push.restype = ctypes.c_char_p
    push.argtypes = [
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_int64,
        ctypes.c_uint32,
        ctypes.c_int32,
        ctypes.c_double,
        ctypes.c_double,
        ctypes.c_double,
    ]
    pending = library.byteps_mxnet_pending
    pending.restype = ctypes.c_long
    return push, pending
