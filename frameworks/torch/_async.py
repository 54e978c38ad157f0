# SPDX-License-Identifier: Apache-2.0
"""Asynchronous training: the servers keep the parameters, and no worker waits for the others.

Each step changes the parameters of this worker by what its own gradients say. That change is pushed; the servers add it
to the parameters that they keep, with those of all workers, and what these are then is where the worker goes on.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch

from byteps._async import Values
from byteps._basics import end_step
from byteps._names import unique_name

from .ops import broadcast_async_, push_pull_async_inplace

if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

    _Base = torch.optim.Optimizer
else:
    _Base = object


class Shared:
    """The parameters of an optimizer as the servers keep them.

    Attributes:
        named: [(name, parameter)], the same names on all workers. Two optimizers may have parameters of one name.
    """

    def __init__(self, named):
        self.named = []
        self.names, self.before = [], []
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
    def begin(self):
        """Before a step: keep what the parameters are; those that the servers do not have yet are set by rank 0."""
        self._name()
        if self._values.must_be_set(self.names):
            handles = [
                broadcast_async_(parameter.data, 0, name, -i)
                for i, (name, (_, parameter)) in enumerate(zip(self.names, self.named))
            ]
            for handle in handles:
                handle.wait()
            self._values.have_been_set(self.names)
        self.before = [parameter.detach().clone(memory_format=torch.contiguous_format) for _, parameter in self.named]

    @torch.no_grad()
    def exchange(self):
        """After it: push by how much it has changed them, and take what they are with the changes of all workers."""
        for (_, parameter), before in zip(self.named, self.before):
            torch.sub(parameter.detach(), before, out=before)
        handles = [
            push_pull_async_inplace(change, average=False, name=name, priority=-i)
            for i, (name, change) in enumerate(zip(self.names, self.before))
        ]
        for handle, (_, parameter), change in zip(handles, self.named, self.before):
            handle.wait()
            parameter.copy_(change)
        self.before = []


class Asynchronous(_Base):
    """What is added to the class of the wrapped optimizer. Its own state is in _byteps."""

    _byteps: Shared

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make the step of the wrapped optimizer, and meet the parameters that all workers change.

        Raises:
            LostError, Error: these could not be reached; the step of this worker has been made.
        """
        self._byteps.begin()
        loss = super().step(closure)
        self._byteps.exchange()
        end_step(self)
        return loss

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
