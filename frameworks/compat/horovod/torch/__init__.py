# SPDX-License-Identifier: Apache-2.0
"""Horovod's interface for PyTorch, made of byteps.torch.

    import byteps.compat.horovod.torch as hvd
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
    rank,
    shutdown,
    size,
)
from byteps._horovod import *  # noqa: F403
from byteps._horovod import absent
from byteps.torch import elastic
from byteps.torch.compression import Compression
from byteps.torch.elastic import HorovodInternalError

from .. import _arguments
from ..process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from . import _joining, mpi_ops
from .functions import allgather_object, broadcast_object, broadcast_optimizer_state, broadcast_parameters
from .mpi_ops import *  # noqa: F403
from .optimizer import DistributedOptimizer
from .sync_batch_norm import SyncBatchNorm

if TYPE_CHECKING:
    from typing import Sequence
else:
    __getattr__ = absent("horovod.torch")


def init(comm: object = None, process_sets: Sequence[ProcessSet] | str | None = None) -> None:
    """Join the job and wait until all its members are there, as byteps.torch.init().

    Args:
        comm: None or an empty list: all workers. Others are refused.
        process_sets: those that are there from the start, the same on all workers; further ones are added by
            add_process_set(), also without "dynamic".
    """
    begins = not is_initialized()
    _arguments.init(comm, process_sets)
    if begins:
        _joining.begin()


__all__ = [
    "Average",
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "SyncBatchNorm",
    "add_process_set",
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "elastic",
    "global_process_set",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "rank",
    "remove_process_set",
    "shutdown",
    "size",
]
__all__ += _horovod.__all__
__all__ += mpi_ops.__all__
