# SPDX-License-Identifier: Apache-2.0
"""Horovod's interface for Keras, made of byteps.keras.

    import byteps.compat.horovod.keras as hvd
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from byteps import _horovod
from byteps import keras as _keras
from byteps._basics import (
    Average,
    Max,
    Min,
    Product,
    Sum,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)
from byteps._horovod import *  # noqa: F403
from byteps._horovod import absent
from byteps.keras import Compression, broadcast_global_variables, elastic, load_model

from .._arguments import init, of_process_sets, without_adasum
from ..process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from . import callbacks, functions
from .functions import *  # noqa: F403

if not TYPE_CHECKING:
    __getattr__ = absent("horovod.keras")

DistributedOptimizer = of_process_sets(without_adasum(_keras.DistributedOptimizer))

__all__ = [
    "Average",
    "Compression",
    "DistributedOptimizer",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "broadcast_global_variables",
    "callbacks",
    "elastic",
    "global_process_set",
    "init",
    "is_initialized",
    "load_model",
    "local_rank",
    "local_size",
    "rank",
    "remove_process_set",
    "shutdown",
    "size",
]
__all__ += _horovod.__all__
__all__ += functions.__all__
