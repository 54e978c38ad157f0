# SPDX-License-Identifier: Apache-2.0
"""An optimizer in the shape of Optax whose gradients are reduced over all workers."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from byteps._async import refuse
from byteps._basics import choose_op, is_async
from byteps._coded_names import choose_compressor
from byteps._coding import model_coding_text
from byteps._names import unique_name

from .compression import Compression
from .ops import push_pull

if TYPE_CHECKING:
    from typing import Callable, Hashable, Protocol, TypeVar

    from byteps._basics import ReduceOp
    from byteps._types import Coding

    from .compression import NoneCompressor

    class _Transformation(Protocol):
        """As optax.GradientTransformation is one."""

        @property
        def init(self) -> Callable[..., Any]: ...

        @property
        def update(self) -> Callable[..., Any]: ...

        def _replace(self, *, init: Any = ..., update: Any = ...) -> Any: ...

    Optimizer = TypeVar("Optimizer", bound=_Transformation)


class Accumulation(NamedTuple):
    """The state of an optimizer with backward_passes_per_step > 1."""

    passes: jax.Array  # since the last step
    sums: Any  # of their gradients
    inner: Any  # the state of the original optimizer


def distributed(
    optimizer: Optimizer,
    average: bool | None = None,
    op: ReduceOp | None = None,
    compression: type[NoneCompressor] | Coding = Compression.none,
    axis_name: Hashable | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    backward_passes_per_step: int = 1,
) -> Optimizer:
    """Return an optimizer that reduces the gradients over all workers before it uses them.

    Args:
        optimizer: of Optax, or any named tuple with functions ``init(params)`` and ``update(gradients, state,
            params, ...)``. What is to see the reduced gradient, such as clipping, belongs inside:
            ``distributed(optax.chain(clip, adam))``.
        average, op, axis_name, prescale_factor, postscale_factor: as for push_pull().
        compression: likewise, but small gradients lose nothing: those below "min_bytes", or below
            BYTEPS_MIN_COMPRESS_BYTES (64 KiB) if that is not set.
        backward_passes_per_step: so many gradients are averaged on this worker, and only that is sent; meanwhile
            the updates are zero. ``optax.MultiSteps`` outside has the same result, but sends each time.

    Returns:
        An optimizer of the same type. Its state is that of the original, so that saved ones stay valid; with
        backward_passes_per_step > 1 it is an Accumulation.
    """
    op = choose_op(average, op)
    compression = choose_compressor(compression, Compression.none, model_coding_text)
    passes = operator.index(backward_passes_per_step)
    if passes < 1:
        raise ValueError(f"backward_passes_per_step={passes} must be 1 or more")

    def update(gradients, *arguments, **extra):
        if is_async():
            refuse("is not supported for JAX: its parameters are not variables that servers could keep")
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

    reducing = optimizer._replace(update=update)
    return reducing if passes == 1 else _accumulating(reducing, passes)


def _accumulating(optimizer, passes):
    """Return an optimizer that makes a step of the mean of so many gradients."""

    def init(params):
        return _empty(params, optimizer.init(params))

    def update(gradients, state, *arguments, **extra):
        sums = jax.tree_util.tree_map(jnp.add, state.sums, gradients)

        def step():
            mean = jax.tree_util.tree_map(lambda total: total / passes, sums)
            updates, inner = optimizer.update(mean, state.inner, *arguments, **extra)
            return updates, _empty(sums, inner)

        def wait():
            return _zeros(jax.eval_shape(step)[0]), Accumulation(state.passes + 1, sums, state.inner)

        is_last = state.passes == passes - 1
        if isinstance(is_last, jax.core.Tracer):
            return lax.cond(is_last, step, wait)
        return step() if is_last else wait()

    return optimizer._replace(init=init, update=update)


def _empty(like, inner):
    return Accumulation(jnp.zeros((), jnp.int32), _zeros(like), inner)


def _zeros(tree):
    return jax.tree_util.tree_map(lambda leaf: jnp.zeros(jnp.shape(leaf), leaf.dtype), tree)
