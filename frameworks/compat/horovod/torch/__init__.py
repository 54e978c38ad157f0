# SPDX-License-Identifier: Apache-2.0
"""Horovod's interface for PyTorch, made of byteps.torch.

    import byteps.compat.horovod.torch as hvd
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from byteps import _horovod
from byteps import torch as _torch
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

from .. import process_sets as _sets
from .._arguments import check_comm
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
    check_comm(comm)
    if isinstance(process_sets, str) and process_sets != "dynamic":
        raise ValueError(f"init(process_sets={process_sets!r}): expected a list of process sets, or 'dynamic'")
    begins = not is_initialized()
    _torch.init()
    if begins:
        _joining.begin()
        _sets.forget()
        _sets.add_first(() if isinstance(process_sets, str) else process_sets or ())


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
