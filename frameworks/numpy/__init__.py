# SPDX-License-Identifier: Apache-2.0
"""BytePS for NumPy arrays, and for anything that offers its memory by ``__dlpack__``.

    import numpy as np
    import byteps.numpy as bps

    bps.init()
    mean = bps.push_pull(np.arange(4.0) * bps.rank(), name="x")

Supported are float16, float32, float64, int8, int16, int32, int64, uint8 and bool. All workers call the
same functions for the same tensors. A tensor is known by its name; unnamed ones meet in the order in which
they are used. While an
operation is in flight its memory belongs to the library: do not write or resize it.
"""

from byteps import _basics
from byteps._basics import *  # noqa: F403
from byteps._basics import Handle, declare, poll, synchronize
from byteps._groups import Group, new_group

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
from .functions import broadcast_object
from .ops import (
    broadcast,
    broadcast_async,
    broadcast_inplace,
    empty,
    push_pull,
    push_pull_async,
    push_pull_async_inplace,
    push_pull_inplace,
)
from .sparse import push_pull_sparse, push_pull_sparse_async

__all__ = [
    "Group",
    "Handle",
    "all_gather",
    "all_gather_async",
    "all_to_all",
    "all_to_all_async",
    "broadcast",
    "broadcast_async",
    "broadcast_inplace",
    "broadcast_object",
    "declare",
    "empty",
    "gather",
    "gather_async",
    "new_group",
    "poll",
    "push_pull",
    "push_pull_async",
    "push_pull_async_inplace",
    "push_pull_inplace",
    "push_pull_sparse",
    "push_pull_sparse_async",
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
    "synchronize",
]
__all__ += _basics.__all__
