# SPDX-License-Identifier: Apache-2.0
"""LocalSGD: workers train independently, and average their parameters every few steps.

What it has in common with DiLoCo is here as well: counting steps by hooks of the optimizer, and what is synchronised
when. Synchronisation number k is that of part k modulo the number of parts; each part has one in every period.
"""

from __future__ import annotations

import contextlib
import gc
import operator
import weakref
from typing import TYPE_CHECKING

import torch

from byteps._basics import after_reform, end_step, full_name, job_number, require_equal
from byteps._errors import ConfigurationError, Error, InvalidError, LostError, MismatchError
from byteps._names import unique_name
from byteps._native import bps as _bps

from . import _owners
from ._gradient_names import _users
from ._reducer import _alive as _reducers
from .compression import Compression
from .functions import broadcast_object
from .ops import broadcast_async_, push_pull_async_inplace, wait_all

if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Self

    from .compression import Cast

_MODE_SYNC = 1  # enum bps_mode
_CODED = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))
_entered: weakref.WeakSet[Periodic] = weakref.WeakSet()  # those in whose contexts the program is
_reforms = 0


def _reformed():
    global _reforms
    _reforms += 1


after_reform.append(_reformed)


def whole(name, value, least):
    """Return an argument as an int that is not less than this."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r} is not a whole number") from None
    if number < least:
        raise ValueError(f"{name}={number} is too small; expected {least} or more")
    return number


class Member:
    """A parameter and what is known of it.

    Attributes:
        live: whether it was trained when its part was synchronised last; what was frozen since is so once more.
        base: what all workers had of it then, if that is kept.
    """

    def __init__(self, title, parameter):
        """Make one of a model's parameters."""
        self.title, self.parameter = title, parameter
        self.live = parameter.requires_grad
        self.base = None


class _Flight:
    """A synchronisation under way: [(title, tensor, context of its compression)], and a handle for each."""

    def __init__(self, part, cast):
        self.part, self._cast = part, cast
        self._sent, self._handles = [], []

    def send(self, title, tensor, name, priority):
        small, context = (tensor, None) if self._cast is None else self._cast.compress(tensor)
        handle = push_pull_async_inplace(small, name=name, priority=priority)
        self._sent.append((title, small, context))
        self._handles.append(handle)

    def wait(self):
        """Return {title: average}; an Error is raised when all have ended."""
        wait_all(self._handles)
        cast = self._cast or Compression.none
        return {title: cast.decompress(small, context) for title, small, context in self._sent}


class _Names:
    """The names that are used in a job; the core forgets each when its last user is gone."""

    def __init__(self):
        self._job, self._names = 0, set()

    def declare(self, name, coding):
        """Declare a name, whose rounds are those of all workers, in asynchronous jobs as well."""
        if self._job != job_number():
            self._job, self._names = job_number(), set()
        if name in self._names:
            return
        try:
            _users.add([name], coding is not None)
        except MismatchError:
            gc.collect()  # what has it coded otherwise may be gone, but in a circle of references
            _users.add([name], coding is not None)
        self._names.add(name)
        try:
            _bps.declare([name], coding, _MODE_SYNC)
        except Error as error:
            self._names.discard(name)
            _users.remove(self._job, [name])
            if isinstance(error, ConfigurationError):
                raise InvalidError(f"compression: {error}") from None
            raise

    def give_back(self):
        _users.remove(self._job, list(self._names))


class Periodic:
    """Counts the steps of an optimizer, and synchronises parts of a model at the steps that _when() says."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        every: int,
        cast: Cast | None = None,
        coding: str | None = None,
    ) -> None:
        """Take the arguments; nothing is hooked or sent yet."""
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
        check_optimizer("optimizer", optimizer)
        self.model, self.optimizer = model, optimizer
        self._every = whole("every", every, 1)
        self._cast, self._coding = cast, coding
        self._members = [Member(title, parameter) for title, parameter in model.named_parameters()]
        for member in self._members:
            _check_parameter(member.title, member.parameter)
        if not any(member.live for member in self._members):
            raise ValueError("the model has no parameter that is trained")
        self._own = {id(member.parameter): member for member in self._members}
        self._check_owned("the optimizer", optimizer)
        self._parts = [self._members]
        self._steps = 0
        self._done = 0  # synchronisations
        self._flight = None
        self._results = None  # of the next synchronisation, if its operations have ended
        self._job = None  # in which all workers have begun alike
        self._names = _Names()
        self._hooks = []
        weakref.finalize(self, self._names.give_back).atexit = False

    # ---- what differs ------------------------------------------------------------------------------------

    def _text(self):
        """Return what must be the same on all workers."""
        return f"every={self._every}"

    def _when(self, number):
        """Return after which step a synchronisation starts, and after which one it takes effect."""
        last = (number + 1) * self._every
        return last, last

    def _content(self, member):
        """Return a new tensor: what is averaged."""
        return member.parameter.detach().clone()

    def _common(self, member):
        """Return a new tensor: where a worker begins."""
        return member.parameter.detach().clone()

    def _take(self, averages):
        """Use the averages of a part: [(member, tensor)]."""
        for member, average in averages:
            member.parameter.copy_(average)

    def _track(self):
        """Note which parameters are trained now, before a step."""

    def _share(self):
        """Broadcast what else there is."""

    # ---- the context -------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Hook the optimizer's step."""
        named = [(member.title, member.parameter) for member in self._members]
        for other in _entered:
            title = next((title for title, parameter in named if id(parameter) in other._own), None)
            if title is not None:
                raise ValueError(
                    f"{type(self).__name__}: parameter {title!r} is synchronised by a {type(other).__name__} already, "
                    "whose context has not been left"
                )
        try:
            _owners.check(None, named, _reducers)
        except ValueError as error:
            raise ValueError(f"{type(self).__name__} leaves gradients local, but {error}") from None
        self._hooks = [
            self.optimizer.register_step_pre_hook(self._before_step),
            self.optimizer.register_step_post_hook(self._after_step),
        ]
        _entered.add(self)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Take the hooks away. What is in flight is waited for and used; after an exception, when it is entered again.

        Raises:
            LostError, Error: what was in flight has failed.
        """
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        _entered.discard(self)
        if kind is None and self._job == _this_job() and self._is_under_way():
            self._finish()

    @torch.no_grad()
    def _before_step(self, optimizer, arguments, options):
        del optimizer, arguments, options
        if self._job != _this_job():
            self._begin()
        self._track()

    @torch.no_grad()
    def _after_step(self, optimizer, arguments, options):
        del optimizer, arguments, options
        self._steps += 1
        while self._advance():
            pass
        end_step(self)

    # ---- synchronisations --------------------------------------------------------------------------------

    def _is_under_way(self):
        return self._flight is not None or self._results is not None

    def _advance(self):
        """Do what is due; return whether a synchronisation has ended."""
        first, last = self._when(self._done)
        if not self._is_under_way() and self._steps >= first:
            self._flight = self._launch(self._done % len(self._parts))
        if not self._is_under_way() or self._steps < last:
            return False
        self._finish()
        return True

    def _launch(self, part):
        flight = _Flight(part, self._cast)
        members = [member for member in self._parts[part] if member.live or member.parameter.requires_grad]
        try:
            for i, member in enumerate(members):
                tensor = self._content(member)
                flight.send(member.title, tensor, self._name("Change", member.title, tensor, self._coding), -i)
            if part == len(self._parts) - 1:
                for title, buffer in _buffers(self.model):
                    name = self._name("Buffer", title, buffer)
                    flight.send(_buffer(title), buffer.clone(), name, -len(members))
        except Exception:
            with contextlib.suppress(Error):
                flight.wait()  # so that these names can be used again
            raise
        return flight

    def _name(self, use, title, tensor, coding=None):
        """Return the name of a tensor, which is declared."""
        name = unique_name(f"{type(self).__name__}.{use}.{title}", self.model)
        self._names.declare(full_name(name), coding if tensor.dtype in _CODED else None)
        return name

    def _land(self):
        """Wait for what is in flight; its results are in _results then. After an Error they are lost."""
        if self._flight is not None:
            try:
                self._results = self._flight.wait()
            except Error:
                self._flight = None
                raise
            self._flight = None

    @torch.no_grad()
    def _finish(self):
        self._land()
        part = self._parts[self._done % len(self._parts)]
        self._take([(member, self._results[member.title]) for member in part if member.title in self._results])
        for title, buffer in _buffers(self.model):
            if _buffer(title) in self._results:
                buffer.copy_(self._results[_buffer(title)])
        for member in part:
            member.live = member.parameter.requires_grad
        self._results = None
        self._done += 1

    # ---- the state ---------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return how far it is. What is in flight is waited for; if a worker was lost meanwhile, it is done again."""
        with contextlib.suppress(LostError):
            self._land()
        live = {member.title: member.live for member in self._tracked()}
        return {"steps": self._steps, "done": self._done, "live": live, "results": self._results}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there, in the next step. The model and its optimizer have states of their own."""
        check_state(state_dict, ("steps", "done", "live", "results"))
        unknown = sorted(set(state_dict["live"]) - {member.title for member in self._members})
        if unknown:
            raise ValueError(f"the state has parameters that the model does not have: {', '.join(unknown)}")
        with contextlib.suppress(Error):
            self._land()
        for member in self._members:
            member.live = state_dict["live"].get(member.title, False)
        results = state_dict["results"]
        if results is not None:
            places = {member.title: member.parameter for member in self._members}
            places.update((_buffer(title), buffer) for title, buffer in _buffers(self.model))
            results = {title: tensor.to(places[title].device, copy=True) for title, tensor in results.items()}
        self._results = results
        self._steps, self._done = state_dict["steps"], state_dict["done"]

    def _tracked(self):
        return self._members

    def _begin(self):
        """Give all workers what rank 0 has, in a new job or with other workers; nothing is changed if that fails."""
        lines = [f"{m.title} {tuple(m.parameter.shape)} {m.parameter.dtype}" for m in self._members]
        require_equal(f"{self._text()}, " + ", ".join(lines), f"the arguments and parameters of {type(self).__name__}")
        if self._steps == 0:
            for member in self._members:
                member.live = member.parameter.requires_grad
        mine = Periodic.state_dict(self)
        if mine["results"] is not None:
            mine["results"] = {title: tensor.cpu() for title, tensor in mine["results"].items()}
        state = broadcast_object(mine)
        fresh = 0 in (self._steps, state["steps"])
        members = [member for member in self._members if member.title in state["live"]]
        commons = self._first(members)
        for member, common in zip(members, commons):
            self._name("Change", member.title, common, self._coding)
        self._share()
        Periodic.load_state_dict(self, state)
        self._keep({member.title: common for member, common in zip(members, commons)})
        if fresh:
            for member, common in zip(members, commons):
                member.parameter.copy_(common)
        self._job = _this_job()

    def _first(self, members):
        """Return where rank 0 begins with these."""
        tensors = [self._common(member) for member in members]
        names = [self._name("Begin", member.title, tensor) for member, tensor in zip(members, tensors)]
        wait_all([broadcast_async_(tensor, 0, name, -i) for i, (tensor, name) in enumerate(zip(tensors, names))])
        return tensors

    def _keep(self, commons):
        """Keep where all begin: {title: tensor}."""

    def _check_owned(self, what, optimizer):
        """Raise ValueError if an optimizer has parameters that are not the model's."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in self._own:
                    raise ValueError(
                        f"{what} has a parameter of shape {tuple(parameter.shape)} that is not the model's, and "
                        "would never be synchronised"
                    )


class LocalSGD(Periodic):
    """Each worker trains independently; every `every` steps all take the average of their parameters.

        with bps.LocalSGD(model, optimizer, every=16):
            for batch in loader:
                optimizer.zero_grad()
                loss_of(model, batch).backward()
                optimizer.step()

    All workers make the same number of steps, and have the same parameters frozen at each. The first step gives all
    what rank 0 has. Buffers of floating point, such as the statistics of batch normalisation, are averaged as well;
    the state of the optimizer is each worker's own.
    """

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, every: int) -> None:
        """Synchronise the parameters of a model in each step of an optimizer whose number is a multiple of `every`.

        The optimizer is a plain one, which has no other parameters; if it has not all, it is the one that is stepped
        last.
        """
        super().__init__(model, optimizer, every)


def check_optimizer(name, optimizer):
    """Raise what is wrong with an optimizer."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"{name}: expected a torch.optim.Optimizer, got {type(optimizer).__name__}")
    if hasattr(optimizer, "_byteps"):
        raise ValueError(f"{name}: this optimizer is distributed already, and averages gradients; give the plain one")


def check_state(state_dict, keys):
    """Raise ValueError if a state lacks some of these."""
    missing = [key for key in keys if key not in state_dict]
    if missing:
        raise ValueError(f"this is another kind of state: it has no {', '.join(map(repr, missing))}")


def _check_parameter(title, parameter):
    if parameter.layout is not torch.strided:
        raise TypeError(f"parameter {title!r} is sparse ({parameter.layout}); only dense ones can be averaged")
    if parameter.requires_grad and not parameter.is_floating_point():
        raise TypeError(f"parameter {title!r} is of {parameter.dtype}; only floating point can be averaged")


def _buffers(model):
    return [(title, buffer) for title, buffer in model.named_buffers() if buffer.is_floating_point()]


def _buffer(title):
    return f"buffer {title}"


def _this_job():
    return job_number(), _reforms
