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
whose message states the cause; the loss of a member is a LostError as well.
"""

from typing import TYPE_CHECKING

from byteps import _basics, _horovod
from byteps._basics import *  # noqa: F403
from byteps._groups import Group, new_group
from byteps._horovod import *  # noqa: F403
from byteps._horovod import COMPLETE, absent
from byteps.common import get_pushpull_speed
from byteps.numpy import broadcast_object

from ._life import shutdown as shutdown
from ._life import suspend as suspend
from .collectives import all_gather, all_to_all, reduce_scatter
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

from . import elastic  # isort: skip

if not TYPE_CHECKING:  # else every name would be known
    __getattr__ = absent(__name__, "byteps.compat.horovod.mxnet", COMPLETE)

__all__ = [
    "BytePS",
    "Compression",
    "DistributedOptimizer",
    "DistributedTrainer",
    "Group",
    "all_gather",
    "all_to_all",
    "allreduce",
    "allreduce_",
    "broadcast",
    "broadcast_",
    "broadcast_inplace",
    "broadcast_object",
    "broadcast_parameters",
    "byteps_declare_tensor",
    "byteps_push_pull",
    "elastic",
    "get_pushpull_speed",
    "grouped_allreduce",
    "grouped_allreduce_",
    "new_group",
    "push_pull",
    "push_pull_inplace",
    "reduce_scatter",
]
__all__ += _basics.__all__
__all__ += _horovod.__all__
