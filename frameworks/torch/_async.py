# SPDX-License-Identifier: Apache-2.0
"""Asynchronous training: the servers keep the parameters, and no worker waits for the others.

Each step changes the parameters of this worker by what its own gradients say. That change is pushed; the servers add it
to the parameters that they keep, with those of all workers, and what these are then is where the worker goes on.

Of a parameter with a sparse gradient, as of ``Embedding(sparse=True)``, only the rows of that travel, if the optimizer
changes no others.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch

from byteps._async import Values
from byteps._basics import end_step
from byteps._names import unique_name

from . import _rows
from .ops import broadcast_async_, push_pull_async, push_pull_async_inplace

if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

    _Base = torch.optim.Optimizer
else:
    _Base = object


def _leaves_other_rows(kind, group):
    """Return whether an optimizer of this class changes no row that a sparse gradient lacks."""
    if kind is torch.optim.SGD:
        return group["momentum"] == 0 and group["weight_decay"] == 0
    return kind in (torch.optim.SparseAdam, torch.optim.Adagrad)


class _All:
    """The change of a parameter by a step, and what it is then."""

    def __init__(self, parameter):
        self._parameter = parameter
        self._change = parameter.detach().clone(memory_format=torch.contiguous_format)

    def start(self, name, priority):
        torch.sub(self._parameter.detach(), self._change, out=self._change)
        self._handle = push_pull_async_inplace(self._change, average=False, name=name, priority=priority)

    def land(self):
        self._handle.wait()
        self._parameter.copy_(self._change)


class _Some:
    """The same of some rows of it."""

    def __init__(self, parameter, rows):
        self._parameter, self._rows = parameter, rows
        self._before = parameter.detach().index_select(0, rows)

    def start(self, name, priority):
        change = self._parameter.detach().index_select(0, self._rows) - self._before
        change = torch.sparse_coo_tensor(self._rows.unsqueeze(0), change, self._parameter.shape)
        self._handle = push_pull_async(change, average=False, name=name, priority=priority)

    def land(self):
        now = self._handle.wait()
        self._parameter.index_copy_(0, now._indices()[0], now._values())


class Shared:
    """The parameters of an optimizer as the servers keep them.

    Attributes:
        named: [(name, parameter)], the same names on all workers. Two optimizers may have parameters of one name.
    """

    def __init__(self, named):
        self.named = []
        self.names, self._changes = [], []
        self._values = Values()
        self.extend(named)

    def extend(self, named):
        """Add parameters."""
        for name, parameter in named:
            if not parameter.is_floating_point():
                raise TypeError(f"parameter {name} is of {parameter.dtype}; asynchronous training takes floating point")
            self.named.append((name, parameter))
        self._name()
        self._values.forget()

    def _name(self):
        """Name them: in each job anew, for names that are older may be others' now."""
        self.names = [unique_name(f"AsyncParam.{name}", parameter) for name, parameter in self.named]

    @torch.no_grad()
    def begin(self, rows=None):
        """Before a step: keep what the parameters are; those that the servers do not have yet are set by rank 0.

        Args:
            rows: {parameter: the rows of it that the step may change}, of some parameters.
        """
        rows = rows or {}
        self._set()
        self._changes = [
            _Some(parameter, rows[parameter]) if parameter in rows else _All(parameter) for _, parameter in self.named
        ]

    def _set(self):
        self._name()
        if self._values.must_be_set(self.names):
            handles = [
                broadcast_async_(parameter.data, 0, name, -i)
                for i, (name, (_, parameter)) in enumerate(zip(self.names, self.named))
            ]
            for handle in handles:
                handle.wait()
            self._values.have_been_set(self.names)

    @torch.no_grad()
    def exchange(self):
        """After it: push by how much it has changed them, and take what they are with the changes of all workers."""
        for i, (name, change) in enumerate(zip(self.names, self._changes)):
            change.start(name, -i)
        for change in self._changes:
            change.land()
        self._changes = []

    @torch.no_grad()
    def pull(self, parameter, rows):
        """Take what these rows of a parameter are now; all workers have begun."""
        self._set()
        name = next(name for name, (_, known) in zip(self.names, self.named) if known is parameter)
        change = _Some(parameter, rows)
        change.start(name, 0)
        change.land()


class Asynchronous(_Base):
    """What is added to the class of the wrapped optimizer. Its own state is in _byteps."""

    _byteps: Shared

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make the step of the wrapped optimizer, and meet the parameters that all workers change.

        Raises:
            LostError, Error: these could not be reached; the step of this worker has been made.
        """
        self._byteps.begin(self._touched() if closure is None else {})  # a closure makes the gradients
        loss = super().step(closure)
        self._byteps.exchange()
        end_step(self)
        return loss

    def _touched(self):
        kind = type(self).__bases__[1]
        return {
            parameter: parameter.grad._indices()[0].unique()
            for group in self.param_groups
            for parameter in group["params"]
            if _rows.is_sparse(parameter.grad) and parameter.grad.sparse_dim() == 1 and _leaves_other_rows(kind, group)
        }

    def pull_rows(self, parameter: torch.Tensor, rows: torch.Tensor) -> None:
        """Take from the servers what these rows of a parameter are now, such as those that the next batch needs.

        Otherwise each row is as the servers had it when this worker had a gradient of it last. To them it is a push of
        zeros, so that with worker.staleness it counts.

        Args:
            parameter: one of this optimizer's.
            rows: their numbers, in any order.

        Raises:
            LostError, Error: the servers could not be reached.
        """
        self._byteps.pull(parameter, rows.unique())

    def synchronize(self) -> None:
        """Do nothing: gradients stay this worker's own."""

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Return a context without effect, for programs that also train synchronously."""
        yield

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Do nothing: a step takes what gradients there are."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters; all workers must do so, and the next step of rank 0 sets all parameters."""
        super().add_param_group(param_group)
        known = {parameter for _, parameter in self._byteps.named}
        new = [parameter for parameter in self.param_groups[-1]["params"] if parameter not in known]
        count = len(self._byteps.named)
        self._byteps.extend((f"noname.{count + i}", parameter) for i, parameter in enumerate(new))

    def __reduce_ex__(self, protocol):
        """Pickle and copy the wrapped optimizer: what the servers keep belongs to the job. Wrap what comes of it."""
        base = type(self).__bases__[1]
        return object.__new__, (base,), base.__getstate__(self)
