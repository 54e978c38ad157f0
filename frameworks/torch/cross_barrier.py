# SPDX-License-Identifier: Apache-2.0
"""CrossBarrier: the next forward pass begins while gradients are still on their way.

step() returns at once. Each module of the model waits, just before its forward pass, for the gradients of
its own parameters only, and makes the optimizer's step for just these. So the communication of the last
layers overlaps the next iteration's forward pass of the first ones.

    import byteps.torch.cross_barrier as bps

    optimizer = bps.CrossBarrier(model, optimizer, model.named_parameters(), num_steps=steps)

The module also has all names of byteps.torch.
"""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, overload

import torch

from byteps._basics import Average, end_step
from byteps._coding import check_momentum, model_coding_text

from ._reducer import Reducer
from .compression import Compression, choose
from .optimizer import _check_passes, _Distributed, have_momentum, name_parameters, unwrap, wrap

if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, NoReturn

    from . import *  # noqa: F403
    from .compression import Choice
    from .optimizer import Loss
else:

    def __getattr__(name):
        return getattr(sys.modules[__package__], name)


class _Plan:
    """Knows before which module's forward pass each parameter has to be up to date.

    The model has it, and it keeps the optimizer alive only while a step is due.
    """

    def __init__(self, model, optimizer):
        """Watch all modules of the model; the optimizer makes its step before the forward pass of one."""
        self._model = model
        self._optimizer, self._due = weakref.ref(optimizer), None
        self._called = set()  # modules that have been called so far
        self._before = {}  # module -> indexes
        for module in model.modules():
            module.register_forward_pre_hook(self._hook)

    def _hook(self, module, inputs):
        self._called.add(module)
        indexes, optimizer = self._before.get(module), self._optimizer()
        if indexes and optimizer is not None:
            optimizer._update(indexes)

    def keep(self, due):
        """Note whether a step is due for a parameter."""
        self._due = self._optimizer() if due else None

    def make(self, index_of, count):
        """Assign each parameter to its modules; return those that must not wait at all.

        A module that is never called, as its owner uses its parameters directly, is served by the nearest
        module around it that is.
        """
        self._before = {}
        assigned = set()
        for chain in self._chains(self._model, ()):
            indexes = {index_of(p) for p in chain[0]._parameters.values() if p is not None} - {None}
            target = next((module for module in chain if module in self._called), None)
            if indexes and target is not None:
                self._before.setdefault(target, set()).update(indexes)
                assigned |= indexes
        return set(range(count)) - assigned

    def _chains(self, module, around):
        """Yield (module, the module around it, ..., the model) for every place of every module."""
        chain = (module, *around)
        yield chain
        for child in module.children():
            yield from self._chains(child, chain)


class _CrossBarrier(_Distributed):
    """What is added to the class of the wrapped optimizer."""

    _num_steps: int
    _steps: int
    _pending: set[int]
    _cleared: dict[int, bool]
    _options: list[dict[str, Any]]
    _plan: _Plan

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], Loss]) -> Loss: ...

    def step(self, closure: Callable[[], Any] | None = None) -> float | torch.Tensor | None:
        """Note that a step is due for every parameter, and return at once.

        After synchronize(), which a GradScaler calls, it makes the whole step now.

        Raises:
            MismatchError, LostError, Error: reducing failed, here or for the step before.
        """
        loss = None if closure is None else closure()
        self._check_known()
        self.flush()  # what this iteration has not used
        if self._byteps.reduced and not self._byteps.dirty:
            self._byteps.end_step()
            self._steps += 1
            super(_Distributed, self).step()
        else:
            self._begin_step()
        self._byteps.steps += 1
        end_step(self)
        return loss

    def _begin_step(self):
        self._byteps.end_step()
        self._byteps.launch(whole=True)
        count = len(self._byteps.parameters)
        self._pending = {index for index in range(count) if self._byteps.in_flight(index)}
        self._plan.keep(self._pending)
        self._options = [
            {
                key: value.clone() if isinstance(value, torch.Tensor) else value
                for key, value in group.items()
                if key != "params"
            }
            for group in self.param_groups
        ]
        self._steps += 1
        self._update(self._pending if self._steps >= self._num_steps else self._plan.make(self._byteps.index, count))

    def flush(self) -> None:
        """Wait for all gradients and bring all parameters up to date."""
        self._update(self._pending)

    def synchronize(self) -> None:
        """Bring all parameters up to date; after backward(), wait until its gradients have been reduced.

        Call it before you look at parameters, and before you read or change gradients, as by
        clip_grad_norm_().
        """
        self._reduce()

    def _reduce(self):
        self.flush()
        if self._byteps.dirty:
            self._byteps.finish()

    def skip_synchronize(self) -> NoReturn:
        """Not possible here: the step is made while gradients arrive."""
        raise NotImplementedError("CrossBarrier calls step() automatically; use DistributedOptimizer to skip it")

    def _update(self, indexes):
        """Make the step for those of the parameters for which it is due."""
        due = sorted(self._pending & set(indexes))
        if not due:
            return
        try:
            for index in due:
                if self._byteps.restore(index):
                    self._cleared[index] = True
            self._byteps.collect(due)
        except BaseException:
            self._pending = set()
            self._plan.keep(self._pending)
            self._byteps.forget()
            raise
        self._pending.difference_update(due)
        self._plan.keep(self._pending)
        self._step_only({self._byteps.parameters[index] for index in due})
        for index in due:
            if index in self._cleared:
                _clear(self._byteps.parameters[index], self._cleared.pop(index))

    def _step_only(self, parameters):
        """Make the wrapped optimizer's step for some parameters, with the options at the time of step()."""
        groups = self.param_groups
        chosen = []
        for group, options in zip(groups, self._options):
            some = [p for p in group["params"] if p in parameters]
            if some:
                chosen.append({**options, "params": some})
        self.param_groups = chosen
        try:
            super(_Distributed, self).step()
        finally:
            self.param_groups = groups

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients; those that are on their way when they have been used."""
        if not self._byteps.busy:
            self._byteps.reset()
        for group in self.param_groups:
            for parameter in group["params"]:
                index = self._byteps.index(parameter)
                if index is not None and index in self._pending:
                    self._cleared[index] = set_to_none
                elif index is not None and self._byteps.in_flight(index):
                    raise AssertionError("zero_grad() was called between backward() and step()")
                else:
                    _clear(parameter, set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """Bring all parameters up to date and return the state of the optimizer."""
        self.flush()
        return super().state_dict()

    def __reduce_ex__(self, protocol):
        """Bring all parameters up to date; then as DistributedOptimizer."""
        self.flush()
        return super().__reduce_ex__(protocol)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Bring all parameters up to date and take the state of an optimizer."""
        self.flush()
        super().load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters; all workers must do so at the same point."""
        self.flush()
        super().add_param_group(param_group)

    def _check_used(self, index):
        if index in self._pending:
            raise RuntimeError(
                f"parameter {index} was used in forward() before its update had been made: the module that "
                "owns it was not called, although it had been before. Call optimizer.synchronize() before "
                "such a forward pass, or use DistributedOptimizer."
            )


if TYPE_CHECKING:

    class _Crossing(_CrossBarrier, Any):
        """An optimizer of the class given to CrossBarrier(), too, whichever that is."""


def _clear(parameter, set_to_none):
    if set_to_none:
        parameter.grad = None
    elif parameter.grad is not None:
        parameter.grad.detach_().zero_()


def CrossBarrier(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: Choice = Compression.none,
    backward_passes_per_step: int = 1,
    num_steps: int = 10**6,
) -> _Crossing:
    """Return an optimizer whose step() does not wait; see the module's text.

    It works with every optimizer whose update of a parameter depends on this parameter only (SGD, Adam, and
    so on; not LBFGS). Learning rates count as they are when step() is called. Between step() and the next
    forward pass the parameters are in between: call ``synchronize()`` before reading them; ``state_dict()`` of model
    and optimizer do so by themselves, and so does the last step.

    Args:
        model: the module whose forward pass uses the parameters.
        optimizer: a torch.optim.Optimizer; use only the returned one from then on.
        named_parameters, compression, backward_passes_per_step: as for DistributedOptimizer.
        num_steps: after this number of steps, step() waits again.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("CrossBarrier cannot be used with LBFGS")
    passes = _check_passes(backward_passes_per_step)
    check_momentum(choose(compression, model_coding_text)[1], have_momentum(optimizer.param_groups))
    named = name_parameters(optimizer, named_parameters)
    unwrap(optimizer)
    reducer = Reducer(named, compression, Average, passes)
    wrapped = wrap(optimizer, _CrossBarrier, reducer)
    wrapped._num_steps = num_steps
    wrapped._steps = 0
    wrapped._pending = set()  # indexes of the parameters for which the step is due
    wrapped._cleared = {}  # index -> set_to_none of a zero_grad() that came before the step
    wrapped._options = []
    wrapped._plan = _Plan(model, wrapped)
    reducer.on_gradient = wrapped._check_used
    model.register_state_dict_pre_hook(_flush_hook(weakref.ref(wrapped)))
    return wrapped


def _flush_hook(reference):
    def flush(*_):
        optimizer = reference()
        if optimizer is not None:
            optimizer.flush()

    return flush
