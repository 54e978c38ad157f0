# SPDX-License-Identifier: Apache-2.0
"""BytePS for Keras 3, on TensorFlow, PyTorch and JAX.

    import keras
    import byteps.keras as bps

    bps.init()
    optimizer = bps.DistributedOptimizer(keras.optimizers.SGD(0.1 * bps.size()))
    model.compile(optimizer, loss)
    model.fit(inputs, labels, callbacks=[
        bps.callbacks.BroadcastGlobalVariablesCallback(0),
        bps.callbacks.MetricAverageCallback(),
    ])

Each worker trains on its own part of the data. Horovod's names work as well.
"""

from typing import TYPE_CHECKING

from byteps._basics import (
    Average,
    Max,
    Min,
    Product,
    ReduceOp,
    Sum,
    barrier,
    cross_rank,
    cross_size,
    declare,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    metrics,
    rank,
    resume,
    shutdown,
    size,
    step,
    suspend,
)
from byteps._horovod import (
    Adasum,
    absent,
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rocm_built,
)
from byteps.common import get_pushpull_speed

from . import callbacks
from ._backend import Compression
from .functions import (
    allreduce,
    broadcast,
    broadcast_global_variables,
    broadcast_variables,
    load_model,
    push_pull,
)
from .optimizer import DistributedOptimizer

if not TYPE_CHECKING:  # else every name would be known
    __getattr__ = absent(__name__)

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "Max",
    "Min",
    "Product",
    "ReduceOp",
    "Sum",
    "allreduce",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_variables",
    "callbacks",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "declare",
    "get_pushpull_speed",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "load_model",
    "local_rank",
    "local_size",
    "metrics",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "push_pull",
    "rank",
    "resume",
    "rocm_built",
    "shutdown",
    "size",
    "step",
    "suspend",
]
