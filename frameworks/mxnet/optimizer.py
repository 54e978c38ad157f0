# SPDX-License-Identifier: Apache-2.0
"""An optimizer of MXNet whose gradients are averaged over all workers, for the Module interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping

import mxnet as mx
import numpy as np

from byteps._async import check_arguments, refuse
from byteps._basics import Average, is_async, is_elastic
from byteps._horovod import predivide_scales
from byteps._names import unique_name

from . import _grouped
from ._async import Shared, check_optimizer, touched_rows
from .ops import push_pull_inplace

if TYPE_CHECKING:
    from byteps._groups import Group


class DistributedOptimizer(mx.optimizer.Optimizer):
    """Averages each gradient before the optimizer inside uses it; for ``Module.fit(kvstore=None)``.

    With BYTEPS_ENABLE_ASYNC=1 (``worker.async``) gradients stay this worker's own. The optimizer inside changes a
    weight by them, and the weight becomes what it is with the changes of all workers.

    Attributes:
        inner: the optimizer.
    """

    def __init__(
        self,
        optimizer: mx.optimizer.Optimizer,
        sym: Any = None,
        gradient_predivide_factor: float = 1.0,
        group: Group | None = None,
    ) -> None:
        """Wrap an optimizer.

        Args:
            optimizer: an optimizer of MXNet.
            sym: accepted for compatibility; without effect.
            gradient_predivide_factor: divides before the sum; the rest of the average comes after it.
            group: the process group that averages the gradients, see new_group(); None: all workers. That of a
                worker that is not a member makes its steps alone.

        Raises:
            ValueError: an argument makes no sense.
        """
        del sym
        self._shared = None
        if is_async():
            check_arguments(compressed=False, predivide=gradient_predivide_factor)
            if group is not None:
                refuse("shares the weights of all workers: leave group= out")
            check_optimizer(optimizer)
            self._shared = Shared()
        self.inner, self._group = optimizer, group
        self._scales = predivide_scales(gradient_predivide_factor, Average)

    def __getattr__(self, name):
        """Return what the optimizer inside has."""
        if name == "inner":  # while an object is made by unpickling
            raise AttributeError(name)
        return getattr(self.inner, name)

    def create_state(self, index: Any, weight: Any) -> Any:
        """Return the state of the optimizer inside."""
        return self.inner.create_state(index, weight)

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        """Return the state of the optimizer inside."""
        return self.inner.create_state_multi_precision(index, weight)

    def _average(self, index, gradient):
        """Average gradients, given one by one or in lists; the first parameters are the most urgent."""
        if self._group is not None:
            if self._group.rank() >= 0:
                several = gradient if isinstance(index, (tuple, list)) else [gradient]
                _grouped.reduce(several, Average, self._scales, self._group)
            return
        if isinstance(index, (tuple, list)):
            for one, its in zip(index, gradient):
                self._average(one, its)
            return
        before, after = self._scales
        name = f"{unique_name('gradient', self)}_{index}"
        rate = self.inner.learning_rate
        push_pull_inplace(gradient, None, name, -_number(index), Average, before, after, rate)

    def _step(self, update, index, weight, grad, state):
        if self._shared is None:
            self._average(index, grad)
            update(index, weight, grad, state)
            return
        several = isinstance(index, (tuple, list))
        prefix = unique_name("AsyncWeight", self)
        each = list(zip(index, weight, grad)) if several else [(index, weight, grad)]
        weights = {f"{prefix}_{i}": one for i, one, _ in each}
        touched = {f"{prefix}_{i}": touched_rows(self.inner, one, its) for i, one, its in each}
        touched = {name: rows for name, rows in touched.items() if rows is not None}
        self._shared.step(weights, lambda: update(index, weight, grad, state), is_elastic(), touched)

    def pull_rows(self, index: Any, weight: Any, rows: Any = None) -> None:
        """Take what these rows of a weight are now, or all, in asynchronous training; as pull_rows() of the trainer."""
        if self._shared is None:
            raise ValueError("pull_rows() is for asynchronous training (worker.async, BYTEPS_ENABLE_ASYNC)")
        name = f"{unique_name('AsyncWeight', self)}_{index}"
        touched = {} if rows is None else {name: np.unique(np.asarray(rows, np.int64))}
        self._shared.step({name: weight}, lambda: None, is_elastic(), touched)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Average the gradient and update the weight."""
        self._step(self.inner.update, index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Average the gradient and update the weight."""
        self._step(self.inner.update_multi_precision, index, weight, grad, state)

    def set_learning_rate(self, lr: float) -> None:
        """Set that of the optimizer inside."""
        self.inner.set_learning_rate(lr)

    def set_lr_mult(self, args_lr_mult: Mapping[Any, float]) -> None:
        """Set those of the optimizer inside."""
        self.inner.set_lr_mult(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: Mapping[Any, float]) -> None:
        """Set those of the optimizer inside."""
        self.inner.set_wd_mult(args_wd_mult)


def _number(index):
    return index if isinstance(index, int) else 0
