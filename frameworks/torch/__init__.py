# SPDX-License-Identifier: Apache-2.0
"""BytePS for PyTorch.

    import torch
    import byteps.torch as bps

    bps.init()
    bps.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = bps.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

and the training loop stays as it was. Horovod's names work as well. Tensors are dense, and on the CPU or,
where the configuration says worker.use = "cuda", on GPUs; float16, bfloat16, float32, float64, float8_e4m3fn,
float8_e5m2, int8, int16, int32, int64, uint8 and bool are supported. All workers call the same functions for the
same tensors. Every failure is an exception, on every worker that took part, whose message states the cause.
"""

from typing import TYPE_CHECKING

from byteps import _basics, _horovod
from byteps._basics import *  # noqa: F403
from byteps._basics import Handle, declare, poll, synchronize
from byteps._groups import Group, new_group
from byteps._horovod import *  # noqa: F403
from byteps._horovod import COMPLETE_FOR_TORCH, absent

from ._amp import reduce_before_unscaling
from ._shared import empty
from ._storage import free_after_operations
from .collectives import (
    all_gather,
    all_gather_async,
    all_to_all,
    all_to_all_async,
    gather,
    gather_async,
    recv,
    recv_async,
    reduce,
    reduce_async,
    reduce_scatter,
    reduce_scatter_async,
    scatter,
    scatter_async,
    send,
    send_async,
)
from .compression import Compression
from .diloco import DiLoCo
from .functions import broadcast_object, broadcast_optimizer_state, broadcast_parameters
from .local_sgd import LocalSGD
from .ops import (
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    push_pull,
    push_pull_async,
    push_pull_async_inplace,
    push_pull_inplace,
    sparse_allreduce_async,
)
from .optimizer import DistributedOptimizer
from .power_sgd import PowerSGDState, powerSGD_hook
from .sync_batch_norm import SyncBatchNorm

from . import cross_barrier, ddp_hook, elastic, parallel  # isort: skip

byteps_push_pull = push_pull_async_inplace
reduce_before_unscaling()
free_after_operations()
if not TYPE_CHECKING:  # else every name would be known
    __getattr__ = absent(__name__, "byteps.compat.horovod.torch", COMPLETE_FOR_TORCH)

__all__ = [
    "Compression",
    "DiLoCo",
    "DistributedOptimizer",
    "Group",
    "Handle",
    "LocalSGD",
    "PowerSGDState",
    "SyncBatchNorm",
    "all_gather",
    "all_gather_async",
    "all_to_all",
    "all_to_all_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "byteps_push_pull",
    "cross_barrier",
    "ddp_hook",
    "declare",
    "elastic",
    "empty",
    "gather",
    "gather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "new_group",
    "parallel",
    "poll",
    "powerSGD_hook",
    "push_pull",
    "push_pull_async",
    "push_pull_async_inplace",
    "push_pull_inplace",
    "recv",
    "recv_async",
    "reduce",
    "reduce_async",
    "reduce_scatter",
    "reduce_scatter_async",
    "scatter",
    "scatter_async",
    "send",
    "send_async",
    "sparse_allreduce_async",
    "synchronize",
]
__all__ += _basics.__all__
__all__ += _horovod.__all__
