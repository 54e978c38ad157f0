# SPDX-License-Identifier: Apache-2.0
"""BytePS for JAX.

    import optax
    import byteps.jax as bps

    bps.init()
    optimizer = bps.distributed(optax.adam(1e-3 * bps.size()))
    params = bps.broadcast_parameters(params, root_rank=0)
    state = optimizer.init(params)

    @jax.jit
    def step(params, state, batch):
        gradients = jax.grad(loss)(params, batch)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

or, without Optax, push_pull(gradients). All workers call the same functions for the same tensors.

Every failure of an operation is a jax.errors.JaxRuntimeError, on every worker that took part, whose text has the cause.
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
    metrics,
    rank,
    resume,
    shutdown,
    size,
    step,
    suspend,
)
from byteps.common import get_pushpull_speed
from byteps.numpy import broadcast_object

from .compression import Compression
from .functions import broadcast_parameters
from .ops import broadcast, push_pull
from .optimizer import distributed

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
    "broadcast_object",
    "broadcast_parameters",
    "cross_rank",
    "cross_size",
    "declare",
    "distributed",
    "get_pushpull_speed",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "metrics",
    "push_pull",
    "rank",
    "resume",
    "shutdown",
    "size",
    "step",
    "suspend",
]
