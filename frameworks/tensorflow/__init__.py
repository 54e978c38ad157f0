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

Every failure of an operation is a TensorFlow error, on every worker that took part, whose message states the cause.
"""

from typing import TYPE_CHECKING

from byteps import _basics, _horovod
from byteps._basics import *  # noqa: F403
from byteps._basics import declare
from byteps._groups import Group, new_group
from byteps._horovod import *  # noqa: F403
from byteps._horovod import COMPLETE, absent
from byteps.common import get_pushpull_speed

from . import elastic
from .collectives import all_gather, all_to_all, reduce_scatter
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
    __getattr__ = absent(__name__, "byteps.compat.horovod.tensorflow", COMPLETE)

__all__ = [
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "Group",
    "all_gather",
    "all_to_all",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "declare",
    "elastic",
    "get_pushpull_speed",
    "grouped_allreduce",
    "local_rank_op",
    "local_size_op",
    "new_group",
    "push_pull",
    "rank_op",
    "reduce_scatter",
    "size_op",
]
__all__ += _basics.__all__
__all__ += _horovod.__all__
