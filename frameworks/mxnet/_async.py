# SPDX-License-Identifier: Apache-2.0
"""Asynchronous training: the servers keep the weights, and no worker waits for the others.

Of a weight with a row-sparse gradient, as of ``Embedding(sparse_grad=True)``, only the rows of that travel, if the
optimizer changes no others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mxnet as mx
import numpy as np

from byteps._async import Values, refuse
from byteps._basics import Sum

from ._failures import wait_all
from ._rows import Trip, is_rows
from .ops import broadcast_inplace, push_pull_inplace

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping


class _All:
    """The change of a weight by a step, and what it is then."""

    def __init__(self, weight):
        self._weight = weight
        self._before = weight.copy()

    def start(self, name, priority):
        self._change = self._weight - self._before
        push_pull_inplace(self._change, False, name, priority)

    def wait_to_read(self):
        self._change.wait_to_read()

    def land(self):
        self._change.copyto(self._weight)


class _Some:
    """The same of some rows of it."""

    def __init__(self, weight, rows):
        self._weight, self._rows = weight, rows
        self._before = self._now()

    def _now(self):
        if len(self._rows) == 0:  # which MXNet takes for a size that is not known yet
            return np.zeros((0, *self._weight.shape[1:]), self._weight.dtype)
        return self._weight.take(self._place(self._rows)).asnumpy()

    def _place(self, rows):
        return mx.nd.array(rows, self._weight.context, "int64")

    def start(self, name, priority):
        change = self._now() - self._before
        self._trip = Trip(self._rows, change, self._weight.shape[0], name, Sum, priority)

    def wait_to_read(self):
        self._result = self._trip.wait()

    def land(self):
        rows, values = self._result
        if len(rows) > 0:
            self._weight[self._place(rows)] = mx.nd.array(values, self._weight.context, values.dtype)


class Shared:
    """What an optimizer knows of its weights as the servers keep them."""

    def __init__(self, root: int = 0) -> None:
        """Make it; root: the worker whose weights all begin with."""
        self._root, self._values = root, Values()

    def step(
        self,
        weights: Mapping[str, mx.nd.NDArray],
        update: Callable[[], Any],
        waits: bool = False,
        touched: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """Make a step by update(), and meet the weights that all workers change.

        Args:
            weights: by the names of tensors; the first ones are the most urgent.
            update: changes them.
            waits: whether to change nothing after update() before all answers are there.
            touched: by name, the rows of a weight that update() may change, of some of them. Only these travel.
        """
        if self._values.must_be_set(list(weights)):
            for i, (name, weight) in enumerate(weights.items()):
                _require_floating_point(name, weight)
                broadcast_inplace(weight, self._root, name, -i)
            wait_all(weights.values())
            self._values.have_been_set(list(weights))
        touched = touched or {}
        changes = {
            name: _Some(weight, touched[name]) if name in touched else _All(weight) for name, weight in weights.items()
        }
        update()
        places = {name: i for i, name in enumerate(weights)}
        for name in sorted(weights, key=lambda name: name in touched):  # rows last, as Python waits for them
            changes[name].start(name, -places[name])
        wait_all(change for name, change in changes.items() if waits or name in touched)
        for change in changes.values():
            change.land()


def touched_rows(
    optimizer: mx.optimizer.Optimizer, weight: mx.nd.NDArray, gradient: mx.nd.NDArray
) -> np.ndarray | None:
    """Return the rows of a weight that a step may change, if these are the gradient's; None: it may change all."""
    lazy = type(optimizer) in (mx.optimizer.SGD, mx.optimizer.Adam) and optimizer.lazy_update
    if not lazy or not is_rows(gradient) or weight.stype != "default":
        return None
    return np.unique(gradient.indices.asnumpy()).astype(np.int64, copy=False)


def check_optimizer(optimizer: mx.optimizer.Optimizer) -> None:
    """Refuse one that keeps copies of the weights: the changes of others would not get there."""
    if getattr(optimizer, "multi_precision", False):
        refuse("has no multi_precision=True, which keeps weights of its own")


def _require_floating_point(name, weight):
    if weight.dtype.__name__ not in ("float16", "float32", "float64"):
        raise TypeError(f"{name} is of {weight.dtype.__name__}; asynchronous training takes floating point")
