# SPDX-License-Identifier: Apache-2.0
"""An optimizer in the shape of Optax whose gradients are reduced over all workers."""

from byteps._basics import choose_op
from byteps._names import unique_name

from .compression import Compression
from .ops import push_pull


def distributed(
    optimizer,
    average=None,
    op=None,
    compression=Compression.none,
    axis_name=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
):
    """Return an optimizer that reduces the gradients over all workers before it uses them.

    Args:
        optimizer: of Optax, or any named tuple with functions ``init(params)`` and ``update(gradients, state,
            params, ...)``. To clip the mean gradient, clip inside: ``distributed(optax.chain(clip, adam))``. To
            accumulate, do that outside: ``optax.MultiSteps(distributed(adam), 4)``.
        average, op, compression, axis_name, prescale_factor, postscale_factor: as for push_pull().

    Returns:
        An optimizer of the same type; its state is that of the original, so that saved states stay valid.
    """
    op = choose_op(average, op)

    def update(gradients, *arguments, **extra):
        gradients = push_pull(
            gradients,
            name=unique_name("Gradient", update),
            op=op,
            compression=compression,
            axis_name=axis_name,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
        )
        return optimizer.update(gradients, *arguments, **extra)

    return optimizer._replace(update=update)
