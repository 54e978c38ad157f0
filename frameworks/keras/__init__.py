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
    rank,
    resume,
    shutdown,
    size,
    suspend,
)
from byteps._horovod import (
    Adasum,
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    missing,
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

# What Horovod has and BytePS has not.
allgather = missing("allgather")
alltoall = missing("alltoall")
reducescatter = missing("reducescatter")
PartialDistributedOptimizer = missing("PartialDistributedOptimizer")
ProcessSet = missing("ProcessSet")
join = missing("join")

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "Max",
    "Min",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "Product",
    "ReduceOp",
    "Sum",
    "allgather",
    "allreduce",
    "alltoall",
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
    "join",
    "load_model",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "push_pull",
    "rank",
    "reducescatter",
    "resume",
    "rocm_built",
    "shutdown",
    "size",
    "suspend",
]
