# SPDX-License-Identifier: Apache-2.0
"""BytePS for TensorFlow.

    import tensorflow as tf
    import byteps.tensorflow as bps

    bps.init()
    bps.broadcast_variables(model.variables, root_rank=0)
    with tf.GradientTape() as tape:
        loss = ...
    tape = bps.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)

or, with model.fit(), byteps.tensorflow.keras. Horovod's names work as well. Eager mode, tf.function and the sessions of
version 1 are alike. All workers call the same functions for the same tensors.

Every failure of an operation is a TensorFlow error, on every worker that took part, whose text has the cause.
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

from .compression import Compression
from .functions import (
    BroadcastGlobalVariablesHook,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from .gradients import DistributedGradientTape, DistributedOptimizer
from .ops import (
    allreduce,
    broadcast,
    grouped_allreduce,
    local_rank_op,
    local_size_op,
    push_pull,
    rank_op,
    size_op,
)

if not TYPE_CHECKING:  # else every name would be known
    __getattr__ = absent(__name__)

__all__ = [
    "Adasum",
    "Average",
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
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
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "declare",
    "get_pushpull_speed",
    "gloo_built",
    "gloo_enabled",
    "grouped_allreduce",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_rank_op",
    "local_size",
    "local_size_op",
    "metrics",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "push_pull",
    "rank",
    "rank_op",
    "resume",
    "rocm_built",
    "shutdown",
    "size",
    "size_op",
    "step",
    "suspend",
]
