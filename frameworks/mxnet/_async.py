# SPDX-License-Identifier: Apache-2.0
"""Asynchronous training: the servers keep the weights, and no worker waits for the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byteps._async import Values, refuse

from ._failures import wait_all
from .ops import broadcast_inplace, push_pull_inplace

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping

    import mxnet as mx


class Shared:
    """What an optimizer knows of its weights as the servers keep them."""

    def __init__(self, root: int = 0) -> None:
        """Make it; root: the worker whose weights all begin with."""
        self._root, self._values = root, Values()

    def step(self, weights: Mapping[str, mx.nd.NDArray], update: Callable[[], Any], waits: bool = False) -> None:
        """Make a step by update(), and meet the weights that all workers change.

        Args:
            weights: by the names of tensors; the first ones are the most urgent.
            update: changes them.
            waits: whether to change nothing after update() before all answers are there.
        """
        if self._values.must_be_set(list(weights)):
            for i, (name, weight) in enumerate(weights.items()):
                _require_floating_point(name, weight)
                broadcast_inplace(weight, self._root, name, -i)
            wait_all(weights.values())
            self._values.have_been_set(list(weights))
        before = [weight.copy() for weight in weights.values()]
        update()
        changes = [weight - value for weight, value in zip(weights.values(), before)]
        for i, (name, change) in enumerate(zip(weights, changes)):
            push_pull_inplace(change, False, name, -i)
        if waits:
            wait_all(changes)
        for weight, change in zip(weights.values(), changes):
            change.copyto(weight)


def check_optimizer(optimizer: mx.optimizer.Optimizer) -> None:
    """Refuse one that keeps copies of the weights: the changes of others would not get there."""
    if getattr(optimizer, "multi_precision", False):
        refuse("has no multi_precision=True, which keeps weights of its own")


def _require_floating_point(name, weight):
    if weight.dtype.__name__ not in ("float16", "float32", "float64"):
        raise TypeError(f"{name} is of {weight.dtype.__name__}; asynchronous training takes floating point")
