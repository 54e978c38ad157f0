# SPDX-License-Identifier: Apache-2.0
"""Horovod's interface for TensorFlow, made of byteps.tensorflow.

    import byteps.compat.horovod.tensorflow as hvd
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from byteps import _horovod
from byteps import tensorflow as _tensorflow
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

from .._arguments import without_adasum
from ..process_sets import global_process_set
from . import functions, mpi_ops
from .functions import *  # noqa: F403
from .mpi_ops import *  # noqa: F403

if not TYPE_CHECKING:
    __getattr__ = absent("horovod.tensorflow")

DistributedGradientTape = without_adasum(_tensorflow.DistributedGradientTape)
DistributedOptimizer = without_adasum(_tensorflow.DistributedOptimizer)

__all__ = [
    "Average",
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "Max",
    "Min",
    "Product",
    "Sum",
    "broadcast_global_variables",
    "elastic",
    "global_process_set",
    "is_initialized",
    "local_rank",
    "local_size",
    "shutdown",
]
__all__ += _horovod.__all__
__all__ += functions.__all__
__all__ += mpi_ops.__all__
