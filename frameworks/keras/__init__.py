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

from byteps import _basics, _horovod
from byteps._basics import *  # noqa: F403
from byteps._basics import declare
from byteps._groups import Group, new_group
from byteps._horovod import *  # noqa: F403
from byteps._horovod import absent
from byteps.common import get_pushpull_speed

from . import callbacks, elastic
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
    _COMPLETE = ("ProcessSet", "add_process_set", "allgather", "reducescatter", "remove_process_set")
    __getattr__ = absent(__name__, "byteps.compat.horovod.keras", _COMPLETE)

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "Group",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_variables",
    "callbacks",
    "declare",
    "elastic",
    "get_pushpull_speed",
    "load_model",
    "new_group",
    "push_pull",
]
__all__ += _basics.__all__
__all__ += _horovod.__all__
