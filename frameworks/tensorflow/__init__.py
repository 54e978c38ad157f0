# SPDX-License-Identifier: Apache-2.0
"""BytePS for TensorFlow.

    import tensorflow as tf
    import byteps.tensorflow as bps

    bps.init()

Every failure of an operation is a TensorFlow error, on every worker that took part, whose text has the cause.
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
from byteps.common import get_pushpull_speed

from .compression import Compression
from .ops import broadcast, local_rank_op, local_size_op, push_pull, rank_op, size_op

__all__ = [
    "Average",
    "Compression",
    "Max",
    "Min",
    "Product",
    "ReduceOp",
    "Sum",
    "barrier",
    "broadcast",
    "cross_rank",
    "cross_size",
    "declare",
    "get_pushpull_speed",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_rank_op",
    "local_size",
    "local_size_op",
    "push_pull",
    "rank",
    "rank_op",
    "resume",
    "shutdown",
    "size",
    "size_op",
    "suspend",
]
