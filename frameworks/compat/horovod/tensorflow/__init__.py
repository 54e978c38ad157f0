# SPDX-License-Identifier: Apache-2.0
"""Horovod's interface for TensorFlow, made of byteps.tensorflow.

    import byteps.compat.horovod.tensorflow as hvd
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from byteps import _horovod
from byteps._basics import (
    Average,
    Max,
    Min,
    Product,
    Sum,
    is_initialized,
    local_rank,
    local_size,
    shutdown,
)
from byteps._horovod import *  # noqa: F403
from byteps._horovod import absent
from byteps.tensorflow import BroadcastGlobalVariablesHook, broadcast_global_variables, elastic
from byteps.tensorflow.compression import Compression

from ..process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from . import functions, mpi_ops, training
from .functions import *  # noqa: F403
from .mpi_ops import *  # noqa: F403
from .training import *  # noqa: F403

if not TYPE_CHECKING:
    __getattr__ = absent("horovod.tensorflow")

__all__ = [
    "Average",
    "BroadcastGlobalVariablesHook",
    "Compression",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "broadcast_global_variables",
    "elastic",
    "global_process_set",
    "is_initialized",
    "local_rank",
    "local_size",
    "remove_process_set",
    "shutdown",
]
__all__ += _horovod.__all__
__all__ += functions.__all__
__all__ += mpi_ops.__all__
__all__ += training.__all__
