# SPDX-License-Identifier: Apache-2.0
"""BytePS for MXNet.

    import mxnet as mx
    import byteps.mxnet as bps

    bps.init()
    trainer = bps.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.01 * bps.size()})
    with mx.autograd.record():
        loss = ...
    loss.backward()
    trainer.step(batch_size)

or, with Module, DistributedOptimizer and broadcast_parameters. Horovod's names work as well. All workers call the same
functions for the same tensors.

Every failure of an operation is an mxnet.base.MXNetError where its result is used, on every worker that took part,
whose text has the cause.
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
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    metrics,
    rank,
    resume,
    size,
    step,
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
from byteps.numpy import broadcast_object

from ._life import shutdown, suspend
from .compression import Compression
from .functions import broadcast_parameters
from .kvstore import BytePS
from .ops import (
    allreduce,
    allreduce_,
    broadcast,
    broadcast_,
    broadcast_inplace,
    byteps_declare_tensor,
    byteps_push_pull,
    grouped_allreduce,
    grouped_allreduce_,
    push_pull,
    push_pull_inplace,
)
from .optimizer import DistributedOptimizer
from .trainer import DistributedTrainer

if not TYPE_CHECKING:  # else every name would be known
    __getattr__ = absent(__name__)

__all__ = [
    "Adasum",
    "Average",
    "BytePS",
    "Compression",
    "DistributedOptimizer",
    "DistributedTrainer",
    "Max",
    "Min",
    "Product",
    "ReduceOp",
    "Sum",
    "allreduce",
    "allreduce_",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_inplace",
    "broadcast_object",
    "broadcast_parameters",
    "byteps_declare_tensor",
    "byteps_push_pull",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "get_pushpull_speed",
    "gloo_built",
    "gloo_enabled",
    "grouped_allreduce",
    "grouped_allreduce_",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "metrics",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "push_pull",
    "push_pull_inplace",
    "rank",
    "resume",
    "rocm_built",
    "shutdown",
    "size",
    "step",
    "suspend",
]
