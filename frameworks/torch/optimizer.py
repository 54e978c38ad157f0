# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: an optimizer that reduces the gradients over all workers before each step."""

from __future__ import annotations

import contextlib
import warnings
from types import MappingProxyType
from typing import TYPE_CHECKING, overload

import torch

from byteps._async import check_arguments, refuse
from byteps._basics import Average, choose_op, end_step, is_async
from byteps._coding import check_momentum, model_coding_text
from byteps._horovod import predivide_scales

from . import _feedback
from ._async import Asynchronous, Shared
from ._rates import rates_of
from ._reducer import Reducer, may_train
from .compression import Compression, choose

if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Iterator, Sequence, TypeVar, Union

    from byteps._basics import ReduceOp
    from byteps._groups import Group

    from .compression import Choice

    Loss = TypeVar("Loss", bound=Union[float, torch.Tensor])
    _Base = torch.optim.Optimizer
else:
    _Base = object

_SYNCHRONIZED = (
    "optimizer.step() called without optimizer.skip_synchronize() context after optimizer.synchronize(). "
    "The gradients are not reduced again here, but Horovod and the original BytePS would do so: in a program "
    "for them, too, put step() into 'with optimizer.skip_synchronize():'."
)


class _Distributed(_Base):
    """What is added to the class of the wrapped optimizer. Its own state is in _byteps and _byteps_skip."""

    _byteps: Reducer
    _byteps_skip: bool

    def synchronize(self) -> None:
        """Wait until all gradients have been reduced, unless they have been since the last backward().

        backward(), step() and a GradScaler do it by themselves, but for a backward() with backward_passes_per_step > 1
        after which gradients are missing. Call it before these are read or changed::

            optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            with optimizer.skip_synchronize():
                optimizer.step()
        """
        self._reduce()
        self._byteps.asked = True

    def _reduce(self):
        if self._byteps.dirty or not self._byteps.reduced:
            self._byteps.finish()

    @property
    def seconds_waited(self) -> float:
        """The time that this worker has spent waiting for gradients to be reduced."""
        return self._byteps.waited

    # What programs for the original read in its optimizer.

    @property
    def backward_passes_per_step(self) -> int:
        """After how many backward passes the gradients are sent."""
        return self._byteps.passes

    @property
    def _compression(self):
        return self._byteps.compression

    @property
    def _handles(self):
        return MappingProxyType(self._byteps.handles)

    @property
    def _parameter_names(self):
        return MappingProxyType(self._byteps.titles)

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Return a context in which step() does not reduce the gradients."""
        self._byteps_skip = True
        try:
            yield
        finally:
            self._byteps_skip = False

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Set after how many backward passes the gradients are sent."""
        self._byteps.reset(_check_passes(passes))

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], Loss]) -> Loss: ...

    def step(self, closure: Callable[[], Any] | None = None) -> float | torch.Tensor | None:
        """Reduce the gradients over all workers and make the step of the wrapped optimizer.

        Raises:
            MismatchError, LostError, Error: reducing failed; no parameter was changed.
            RuntimeError: a gradient has not been reduced.
        """
        self._check_known()
        if closure is None:
            self._synchronize_for_step()
            self._byteps.steps += 1
            loss = super().step()
            end_step(self)
            return loss

        def reduced():
            loss = closure()
            self._synchronize_for_step()
            return loss

        loss = super().step(reduced)
        self._byteps.steps += 1
        end_step(self)
        return loss

    def _check_known(self):
        """Raise if a gradient is there that is never reduced."""
        for number, group in enumerate(self.param_groups):
            for parameter in self._byteps.unknown(group["params"]):
                if parameter.grad is not None:
                    raise RuntimeError(
                        f"a parameter of shape {tuple(parameter.shape)} in group {number} of the optimizer has a "
                        "gradient that is not reduced: it was frozen and not in named_parameters when the optimizer "
                        "was wrapped, or has come into param_groups since. Give all parameters names, and use "
                        "add_param_group()"
                    )

    def _synchronize_for_step(self):
        if not self._byteps_skip:
            self._reduce()
            if self._byteps.asked:
                warnings.warn(_SYNCHRONIZED, stacklevel=3)
        elif self._byteps.busy:
            raise RuntimeError("step() with skip_synchronize(), but without synchronize() after backward()")
        self._byteps.end_step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients. Not allowed while they are being reduced."""
        if self._byteps.busy:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                "optimizer.synchronize(). This is prohibited as it can cause a race condition."
            )
        self._byteps.reset()
        super().zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the wrapped optimizer, and the error feedback of gradients on this worker.

        A plain optimizer takes it, too. To go on as if there had been no end, save and load it on every worker.
        """
        return _feedback.put(super().state_dict(), self._byteps)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the state of an optimizer; its error feedback applies only on the worker that has saved it."""
        super().load_state_dict(_feedback.take(state_dict, self._byteps))

    def __reduce_ex__(self, protocol):
        """Pickle and copy the wrapped optimizer: what reduces gradients belongs to the job. Wrap what comes of it."""
        base = type(self).__bases__[1]
        return object.__new__, (base,), base.__getstate__(self)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters; all workers must do so at the same point."""
        check_momentum(self._byteps.coding, have_momentum([{**self.defaults, **param_group}]))
        super().add_param_group(param_group)
        known = self._byteps.index
        new = [p for p in self.param_groups[-1]["params"] if may_train(p) and known(p) is None]
        count = len(self._byteps.parameters)
        try:
            self._byteps.extend((f"noname.{count + i}", p) for i, p in enumerate(new))
        except ValueError:
            self.param_groups.pop()
            raise


if TYPE_CHECKING:

    class _Wrapped(_Distributed, Any):
        """An optimizer of the class given to DistributedOptimizer(), too, whichever that is."""


def _check_passes(passes):
    if not isinstance(passes, int) or passes < 1:
        raise ValueError(f"backward_passes_per_step={passes!r} must be an integer of at least 1")
    return passes


def have_momentum(groups):
    """Return whether an optimizer with these groups of parameters gives gradients momentum."""
    return any(group.get("momentum") for group in groups)


def name_parameters(optimizer, named_parameters):
    """Return [(name, parameter)] of what an optimizer trains, now or later, each once, in the model's order."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"expected a torch.optim.Optimizer, got {type(optimizer).__name__}")
    if isinstance(optimizer, (_Distributed, Asynchronous)):
        raise ValueError("the optimizer is distributed already")
    groups = [(group, p) for group in optimizer.param_groups for p in group["params"]]
    known = list(dict.fromkeys(p for _, p in groups if may_train(p)))
    if named_parameters is None:
        return [(f"noname.{i}", p) for i, p in enumerate(known)]
    named = list(named_parameters)
    if any(not isinstance(pair, tuple) or len(pair) != 2 for pair in named):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), usually produced by "
            "model.named_parameters()."
        )
    names = [name for name, _ in named]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise ValueError(f"Parameter names in named_parameters must be unique. Found duplicates: {', '.join(twice)}")
    known = set(known)
    missing = {p for p in known if p.requires_grad} - {p for _, p in named}
    if missing:
        raise ValueError(
            f"named_parameters was specified, but {len(missing)} of the optimizer's parameters are not in it"
        )
    return list({p: (name, p) for name, p in reversed(named) if p in known}.values())[::-1]


def _check_groups(groups, num_groups):
    """Raise ValueError unless the arguments are groups of tensors, or a number of groups."""
    if num_groups != 0:
        warnings.warn("num_groups has been replaced by groups", DeprecationWarning, stacklevel=3)
    groups = num_groups if groups is None and num_groups != 0 else groups
    if groups is None:
        return
    if not isinstance(groups, list):
        if not isinstance(groups, int) or isinstance(groups, bool) or groups < 1:
            raise ValueError(f"groups={groups!r} should be a positive integer or a list of lists of torch.Tensor")
        return
    if any(not isinstance(group, (list, tuple)) for group in groups):
        raise ValueError("groups should be a list of lists of torch.Tensor")
    tensors = [tensor for group in groups for tensor in group]
    if any(not isinstance(tensor, torch.Tensor) for tensor in tensors):
        raise ValueError("groups must consist of torch.Tensor")
    if len(set(tensors)) < len(tensors):
        raise ValueError("a parameter can only appear once in groups")


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: Choice = Compression.none,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[torch.Tensor]] | None = None,
    sparse_as_dense: bool = False,
    group: Group | None = None,
) -> _Wrapped:
    """Return an optimizer that reduces the gradients over all workers before each step.

    It is an instance of a subclass of the optimizer's class, with the same name, that shares parameters,
    groups and state with the optimizer given; use only the new one from then on. Gradients are sent while
    backward() runs, those that it finishes last with the highest priority, as the next forward pass needs
    them first. A parameter that only some workers have used gets zeros from the others; one that
    nobody has used keeps grad None. One that is frozen is left out until it is unfrozen, which all workers do at the
    same step.

    When backward() returns, the gradients are those of all workers, and may be clipped, unscaled (by a
    GradScaler: an infinity on one worker makes all skip the step) or logged. All workers call backward() equally often
    in a step. With several backward passes per step, while some gradients are missing, others may still be on their
    way; then synchronize() or step() ends the round, and a change before that is an error.

    With BYTEPS_ENABLE_ASYNC=1 (``worker.async``) training is asynchronous: gradients stay this worker's own. step()
    changes the parameters by them, pushes that change to the servers, which keep the parameters and add the changes
    of all workers, and takes what they are then. No worker waits for another one, and each may make as many steps as
    it likes. The first step sets the servers' parameters to those of rank 0. Of a parameter with a sparse gradient, as
    of ``Embedding(sparse=True)``, only the rows of that travel, both ways, if the optimizer is SparseAdam, Adagrad, or
    SGD without momentum and weight decay, and step() is called without a closure. So a row is as new as this worker's
    last gradient of it; ``optimizer.pull_rows(parameter, rows)`` takes what rows are now.

    Args:
        optimizer: any torch.optim.Optimizer.
        named_parameters: usually ``model.named_parameters()``. The names must be the same on all workers;
            without them the parameters are numbered.
        compression: Compression.none, .fp16 or .bf16: the type of what is pushed. Or how gradients of float16,
            bfloat16, float32 and float64 are coded on the network, the same on all workers, as for declare(): a
            dictionary such as {"compressor": "onebit", "ef": "vanilla"}, the name of a compressor, or False for not
            at all. Those below 64 KiB lose nothing, unless "min_bytes" or BYTEPS_MIN_COMPRESS_BYTES says another
            size. What error feedback keeps is scaled by the learning rate of the parameter's group, which is read
            when the gradient is pushed (a learning rate on a GPU is not read). With {"momentum": "nesterov"} the
            optimizer must have no momentum. To train on with another compression, first delete this optimizer.
        backward_passes_per_step: how many backward passes add up to one step.
        op: Average, Sum, Min, Max or Product.
        gradient_predivide_factor: f divides by f before the sum and by size() / f after it, against sums
            that are too large for a small type; for Average only.
        num_groups, groups: accepted for compatibility; without effect, as results do not depend on what is
            sent together. A number of groups, or a list of lists of parameters.
        sparse_as_dense: make sparse gradients dense, and leave dense ones in the parameters. Otherwise only the
            rows that some worker has are sent, and the gradients stay sparse.
        group: of the workers that take part, see new_group(); None: all. A group has no names, so its members send
            gradients in one order, when backward() has ended: nothing overlaps. With several passes to a step that
            is in synchronize() or step(). Rows of sparse gradients travel in dense tensors, and nothing is coded.

    Raises:
        TypeError, ValueError: names are missing or not unique, or an argument makes no sense; or a parameter has
            another optimizer or module around it that reduces its gradient.
        NotInitializedError: init() has not been called.
    """
    passes = _check_passes(backward_passes_per_step)
    named = name_parameters(optimizer, named_parameters)
    op = choose_op(None, op)
    _check_groups(groups, num_groups)
    if is_async():
        compressed = compression not in (None, False, Compression.none)
        check_arguments(compressed, gradient_predivide_factor, op)
        if group is not None:
            refuse("has no process groups")
        unwrap(optimizer)
        return share(optimizer, Asynchronous, Shared(named))
    scales = predivide_scales(gradient_predivide_factor, op)
    check_momentum(choose(compression, model_coding_text)[1], have_momentum(optimizer.param_groups))
    unwrap(optimizer)
    reducer = Reducer(named, compression, op, passes, True, scales, sparse_as_dense, group)
    return wrap(optimizer, _Distributed, reducer)


def unwrap(optimizer):
    """Let go of the reducer of an optimizer that has been wrapped before, and so of its names."""
    optimizer.__dict__.pop("_byteps", None)


def share(optimizer, mixin, own):
    """Return an optimizer of a class made of the mixin and the other's class. It shares its state."""
    base = type(optimizer)
    wrapped = object.__new__(type(base.__name__, (mixin, base), {"__module__": base.__module__}))
    wrapped.__dict__ = optimizer.__dict__
    wrapped._byteps = own
    if "step" in optimizer.__dict__:  # of a scheduler that was made before
        optimizer.step = _counted_step(wrapped)
    return wrapped


def wrap(optimizer, mixin, reducer):
    """Return the same of an optimizer whose gradients the reducer reduces."""
    wrapped = share(optimizer, mixin, reducer)
    reducer.rate = rates_of(wrapped, reducer.parameters)
    wrapped._byteps_skip = False
    return wrapped


def _counted_step(wrapped):
    """Return the step() that a scheduler wants to find in the optimizer: it tells that it has been called."""

    def step(*args, **keywords):
        wrapped._opt_called = True
        return type(wrapped).step(wrapped, *args, **keywords)

    step._wrapped_by_lr_sched = True
    return step
