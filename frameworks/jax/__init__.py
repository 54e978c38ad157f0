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

Every failure of an operation is a jax.errors.JaxRuntimeError, on every worker that took part. Its message states the
cause.
"""

from byteps import _basics
from byteps._basics import *  # noqa: F403
from byteps._basics import cross_rank, cross_size, declare, is_homogeneous
from byteps.common import get_pushpull_speed
from byteps.numpy import broadcast_object

from .compression import Compression
from .functions import broadcast_parameters
from .ops import broadcast, push_pull
from .optimizer import distributed

__all__ = [
    "Compression",
    "broadcast",
    "broadcast_object",
    "broadcast_parameters",
    "cross_rank",
    "cross_size",
    "declare",
    "distributed",
    "get_pushpull_speed",
    "is_homogeneous",
    "push_pull",
]
__all__ += _basics.__all__
