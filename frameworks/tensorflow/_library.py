# SPDX-License-Identifier: Apache-2.0
"""Loads the operations: framework_tensorflow.so among the plugins, by tf.load_op_library()."""

import ctypes
import os
import re

import tensorflow as tf
from tensorflow.python.framework import auto_control_deps

from byteps._native import find_plugin

_OLDEST, _TESTED = (2, 13), (2, 21)
_RANGE = f"BytePS works with TensorFlow {_OLDEST[0]}.{_OLDEST[1]} and later, and was tested up to " + ".".join(
    map(str, _TESTED)
)
_PLACE = os.path.dirname(tf.__file__)


def _check_version():
    version = tuple(map(int, re.findall(r"\d+", tf.__version__)[:2]))
    if version < _OLDEST:
        raise ImportError(f"this is TensorFlow {tf.__version__} ({_PLACE}); {_RANGE}")


def _load():
    """Return the module with a function for each operation."""
    _check_version()
    path = find_plugin("framework_tensorflow", "TensorFlow")
    library = tf.load_op_library(path)
    attach = ctypes.CDLL(path).byteps_tensorflow_attach  # the same library, not a second time
    attach.restype = ctypes.c_char_p
    refusal = attach(tf.__version__.encode()).decode()
    if refusal:
        raise ImportError(f"this TensorFlow ({tf.__version__}, {_PLACE}) cannot be used: {refusal}; {_RANGE}")
    return library


def _run_side_by_side(*names):
    """Let tf.function run operations of these types in any order, though they have effects.

    TensorFlow lets only its own types; others of one function run one after the other. Without this they would
    do so here, too: right, but slow.
    """
    known = getattr(auto_control_deps, "MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS", None)
    if known is not None:
        auto_control_deps.MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS = known | frozenset(names)


operations = _load()
_run_side_by_side("BytepsPushPull", "BytepsPushPullRows", "BytepsBroadcast")
