# SPDX-License-Identifier: Apache-2.0
"""DiLoCo: workers train by themselves, and an outer optimizer makes a step of what they have changed.

Streaming DiLoCo as well: the model is cut into fragments, each with its own time in a period, and the workers go on
while what one has changed is on its way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from byteps._coding import check_momentum, model_coding_text

from .compression import Compression, choose
from .functions import broadcast_optimizer_state
from .local_sgd import Periodic, check_optimizer, check_state, whole
from .optimizer import have_momentum

if TYPE_CHECKING:
    from typing import Any, Iterable, Sequence, Union

    from .compression import Choice

    Fragment = Union[torch.nn.Module, Iterable[torch.nn.Parameter]]


class DiLoCo(Periodic):
    """Each worker trains independently; the changes of some steps make one step of an outer optimizer.

        outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
        with bps.DiLoCo(model, inner, outer, every=20):
            for batch in loader:
                inner.zero_grad()
                loss_of(model, batch).backward()
                inner.step()

    By what a worker has changed its parameters since they were the same everywhere, with the sign of a gradient, is
    averaged over the workers and given to the outer optimizer as the gradient of the global parameters; the local ones
    then become these. All workers make the same number of steps, and have the same parameters frozen at each. The first
    step gives all what rank 0 has. Buffers of floating point are averaged at the end of each period.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        inner: torch.optim.Optimizer,
        outer: torch.optim.Optimizer,
        every: int,
        fragments: int | Sequence[Fragment] = 1,
        delay: int = 0,
        *,
        alpha: float = 0.0,
        compression: Choice = Compression.none,
    ) -> None:
        """Synchronise a model in the steps of its inner optimizer.

        Args:
            model: whose parameters both optimizers have, and no others.
            inner: the optimizer that the program calls.
            outer: the one that is called here; it has all parameters that are trained.
            every: the length of a period, in steps; each fragment is synchronised once in it.
            fragments: into how many the model is cut, which are about equally large; or a list with the modules, or
                sequences of parameters, that are one each. Fragment i of n takes effect after step
                (i + 1) * every // n of a period.
            delay: for how many steps before that what was changed is on its way. What the worker changes meanwhile is
                lost but for `alpha`.
            alpha: the part of the local parameters in what follows, from 0 (they become the global ones) to 1.
            compression: how what was changed is sent: one of Compression, or how it is coded on the network, as for
                DistributedOptimizer.

        Raises:
            TypeError, ValueError: an argument is wrong.
        """
        cast, coding = choose(compression, model_coding_text)
        super().__init__(model, inner, every, None if cast is Compression.none else cast, coding)
        check_optimizer("outer", outer)
        if outer is inner:
            raise ValueError("outer is the same optimizer as inner; make a separate one over the same parameters")
        if isinstance(outer, torch.optim.LBFGS):
            raise ValueError("outer: torch.optim.LBFGS evaluates the model within a step; take one that does not")
        check_momentum(coding, have_momentum(outer.param_groups))
        self.outer = outer
        self._alpha = float(alpha)
        if not 0 <= self._alpha <= 1:
            raise ValueError(f"alpha={alpha!r} is out of range; expected 0 to 1")
        self._check_owned("outer", outer)
        if hasattr(fragments, "__iter__"):
            self._parts = self._given(fragments)
        else:
            self._parts = cut(self._members, whole("fragments", fragments, 1))
        self._delay = whole("delay", delay, 0)
        self._check_times()
        self._check_outer([member for member in self._members if member.live])

    def _given(self, fragments):
        """Return the parts of a list of modules or of sequences of parameters."""
        parts, seen = [], set()
        for number, fragment in enumerate(fragments):
            whose = fragment.parameters() if isinstance(fragment, torch.nn.Module) else fragment
            if not hasattr(whose, "__iter__"):
                raise TypeError(f"fragments[{number}] is {whose!r}; expected a module or a sequence of parameters")
            part = [self._own.get(id(parameter)) for parameter in whose]
            if not part:
                raise ValueError(f"fragments[{number}] has no parameters")
            for member in part:
                if member is None:
                    raise ValueError(f"fragments[{number}] has a parameter that is not the model's")
                if member.title in seen:
                    raise ValueError(f"fragments[{number}]: parameter {member.title!r} is in fragments twice")
                if not member.parameter.is_floating_point():
                    raise TypeError(
                        f"parameter {member.title!r} is of {member.parameter.dtype}; only floating point "
                        "can be averaged"
                    )
                seen.add(member.title)
            parts.append(part)
        left = [member.title for member in self._members if member.live and member.title not in seen]
        if left:
            raise ValueError(f"parameter {left[0]!r} is in none of the fragments, and would never be synchronised")
        return parts

    def _check_times(self):
        count = len(self._parts)
        if count > self._every:
            raise ValueError(f"{count} fragments need a period of as many steps; every={self._every} is less")
        if self._delay >= self._every // count:
            raise ValueError(
                f"delay={self._delay} is too long: with every={self._every} and {count} fragments one follows the "
                f"other after {self._every // count} steps, and only one is on its way at a time"
            )

    def _check_outer(self, members):
        has = {id(parameter) for group in self.outer.param_groups for parameter in group["params"]}
        for member in members:
            if id(member.parameter) not in has:
                raise ValueError(f"outer does not have the parameter {member.title!r}, which is trained")

    # ---- what differs from LocalSGD ----------------------------------------------------------------------

    def _text(self):
        sizes = [len(part) for part in self._parts]
        return f"every={self._every}, delay={self._delay}, alpha={self._alpha}, fragments of {sizes} parameters"

    def _when(self, number):
        period, part = divmod(number, len(self._parts))
        last = period * self._every + (part + 1) * self._every // len(self._parts)
        return last - self._delay, last

    def _content(self, member):
        return member.base - member.parameter.detach()

    def _common(self, member):
        kept = self._steps > 0 and member.base is not None
        return (member.base if kept else member.parameter.detach()).clone()

    def _keep(self, commons):
        for member in self._members:
            member.base = commons.get(member.title)

    def _tracked(self):
        return [member for member in self._members if member.base is not None or member.live]

    def _track(self):
        """Of what is trained from now on, keep where all workers begin; all unfreeze it at the same step."""
        fresh = [member for member in self._members if member.base is None and member.parameter.requires_grad]
        if fresh:
            self._check_outer(fresh)
            placed = {id(member) for part in self._parts for member in part}
            for member in fresh:
                if id(member) not in placed:
                    raise ValueError(f"parameter {member.title!r} is trained now, but in none of the fragments")
            for member, common in zip(fresh, self._first(fresh)):
                member.parameter.copy_(common)
                member.base = common

    def _share(self):
        broadcast_optimizer_state(self.outer, prefix="DiLoCo.Outer.")

    def _take(self, averages):
        """Make a step of the outer optimizer with these gradients; those of the program stay."""
        every = [parameter for group in self.outer.param_groups for parameter in group["params"]]
        gradients = [parameter.grad for parameter in every]
        own = [member.parameter.clone() for member, _ in averages] if self._alpha > 0 else []
        try:
            for parameter in every:
                parameter.grad = None  # what has none is left out
            for member, average in averages:
                member.parameter.copy_(member.base)
                member.parameter.grad = average
            self.outer.step()
        finally:
            for parameter, gradient in zip(every, gradients):
                parameter.grad = gradient
        for member, _ in averages:
            member.base.copy_(member.parameter)
        for (member, _), local in zip(averages, own):
            if member.parameter.requires_grad:  # what was frozen meanwhile is the same everywhere from now on
                member.parameter.lerp_(local, self._alpha)

    def state_dict(self) -> dict[str, Any]:
        """Return how far it is, the global parameters, and the state of the outer optimizer.

        What is in flight is waited for; if a worker was lost meanwhile, it is done again.
        """
        state = super().state_dict()
        bases = {member.title: member.base for member in self._members if member.base is not None}
        return {**state, "parameters": bases, "outer": self.outer.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there, in the next step. The model and the inner optimizer have states of their own."""
        check_state(state_dict, ("parameters", "outer"))
        super().load_state_dict(state_dict)
        for member in self._members:
            base = state_dict["parameters"].get(member.title)
            member.base = None if base is None else base.to(member.parameter.device, copy=True)
        self.outer.load_state_dict(state_dict["outer"])


def cut(members, count):
    """Return so many parts, in their order and of about as many elements each, none of them empty."""
    if count > len(members):
        raise ValueError(f"{count} fragments are more than the {len(members)} parameters of the model")
    total = sum(member.parameter.numel() for member in members)
    parts, done = [[]], 0
    for i, member in enumerate(members):
        needed = count - len(parts)  # parts that are still to come
        full = done >= total * len(parts) / count
        if parts[-1] and needed > 0 and (full or len(members) - i <= needed):
            parts.append([])
        parts[-1].append(member)
        done += member.parameter.numel()
    return parts
