# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: an optimizer of Keras 3 that reduces the gradients over all workers before each step."""

from __future__ import annotations

import contextlib
import functools
import typing
from typing import TYPE_CHECKING, TypeVar

import keras

from byteps._async import check_arguments, refuse
from byteps._basics import Average, ReduceOp, choose_op, is_async
from byteps._coded_names import choose_compressor, coding_of, refuse_coding
from byteps._coding import check_momentum, model_coding_text
from byteps._horovod import predivide_scales, refuse_process_set
from byteps._names import unique_name

from . import _backend
from ._async import Asynchronous, Exchange
from ._backend import Compression

if TYPE_CHECKING:
    from byteps._groups import Group
    from byteps._types import Coding

Optimizer = TypeVar("Optimizer")  # of whatever class


class Reduction(typing.NamedTuple):
    """How gradients are reduced."""

    compression: type
    sparse_as_dense: bool
    op: ReduceOp
    scales: tuple[float, float]
    device: str
    group: Group | None = None

    def __call__(self, gradients, variables, learning_rate):
        """Return the gradients, reduced; None stays None.

        A tensor is named by the place of its variable, whose own name may differ between the workers, as where
        one of them has loaded the model.
        """
        if self.group is not None and self.group.rank() < 0:
            return self._own(gradients)
        chosen = [i for i, gradient in enumerate(gradients) if gradient is not None]
        names = tuple(unique_name(f"Gradient.{i}", variables[i]) for i in chosen)
        reduced = dict(zip(chosen, _backend.reduce(self, names, [gradients[i] for i in chosen], learning_rate)))
        return [reduced.get(i) for i in range(len(gradients))]

    def _own(self, gradients):
        """Return what a worker makes of its gradients alone; the scales make a sum over passes of their mean."""
        factor = self.scales[0] * self.scales[1]
        return [one if one is None or factor == 1 else keras.ops.multiply(one, factor) for one in gradients]


class _Reducer:
    """What a distributed optimizer knows beside its own state, where Keras does not look for variables."""

    def __init__(self, how):
        self.reduce = how
        self.reduced_before = False  # the gradients of the step that is being made
        self.variables = None  # those of the step that is being made
        self.rest = None  # a context: the rest of this step


class _Distributed:
    """What is added to the class of the wrapped optimizer. Its own state is in _byteps, a _Reducer."""

    def apply(self, grads, trainable_variables=None):
        """Reduce the gradients over all workers, and apply them as the wrapped optimizer does.

        Of gradients that add up over several calls, only the sum is reduced.
        """
        if not self._byteps.reduced_before and not self.gradient_accumulation_steps:
            known = self._trainable_variables if trainable_variables is None else trainable_variables
            grads = self._byteps.reduce(list(grads), list(known), self.learning_rate)
        return super().apply(grads, trainable_variables)

    def _backend_apply_gradients(self, grads, trainable_variables):
        self._byteps.variables = list(trainable_variables)
        with contextlib.ExitStack() as self._byteps.rest:
            return super()._backend_apply_gradients(grads, trainable_variables)

    def _clip_gradients(self, grads):
        """Keras calls this when the sum over several calls is there."""
        if not self._byteps.reduced_before and self.gradient_accumulation_steps:
            grads = self._byteps.reduce(list(grads), self._byteps.variables, self.learning_rate)
            self._byteps.rest.enter_context(_backend.after(grads))
            _ = self.iterations + 0  # what counts them in a graph waits for this
        return super()._clip_gradients(grads)


@contextlib.contextmanager
def _reduced_before(optimizer):
    """Return a context in which the optimizer is given gradients that have been reduced."""
    optimizer._byteps.reduced_before = True
    try:
        yield
    finally:
        optimizer._byteps.reduced_before = False


def is_distributed(optimizer):
    """Return whether an optimizer, or the one within a LossScaleOptimizer, is from DistributedOptimizer()."""
    return isinstance(getattr(optimizer, "inner_optimizer", optimizer), (_Distributed, Asynchronous))


def exchange_of(optimizer):
    """Return the Exchange of an optimizer, or of the one within it, that trains asynchronously; None for others."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    return optimizer._byteps if isinstance(optimizer, Asynchronous) else None


def _reduce_before_unscaling(method, at):
    """Return a method of LossScaleOptimizer that reduces the gradients first.

    It leaves out a step if a gradient is not finite. That must be so on all workers or on none.

    Args:
        method: the method.
        at: the place of the gradients among its arguments.
    """

    @functools.wraps(method)
    def reduced(self, *args, **keywords):
        inner = self.inner_optimizer
        if not isinstance(inner, _Distributed):
            return method(self, *args, **keywords)
        arguments = list(args)
        gradients = arguments[at] if len(arguments) > at else keywords["grads"]
        known = arguments[1] if at == 0 and len(arguments) > 1 else keywords.get("trainable_variables")
        known = self._trainable_variables if at == 1 or known is None else known
        gradients = inner._byteps.reduce(list(gradients), list(known), inner.learning_rate)
        if len(arguments) > at:
            arguments[at] = gradients
        else:
            keywords["grads"] = gradients
        with _reduced_before(inner):
            return method(self, *arguments, **keywords)

    return reduced


def _without_xla(compile_model):
    """Return Model.compile() that does not let XLA compile our operations, which it does not know."""

    @functools.wraps(compile_model)
    def compiled(self, *args, **keywords):
        compile_model(self, *args, **keywords)
        if is_distributed(self.optimizer) and self.jit_compile:
            if keywords.get("jit_compile") is True:
                raise ValueError(
                    "jit_compile=True: XLA cannot compile push_pull on TensorFlow; leave it out, or set it to False"
                )
            self.jit_compile = False

    return compiled


def _until_reduced(method):
    """Return a method of a model on JAX that returns when the last step is done, and so raises its failure.

    Keras itself waits for the loss only, and would tell of the gradients when the variables are used next, if ever.
    """

    @functools.wraps(method)
    def trained(self, *args, **keywords):
        result = method(self, *args, **keywords)
        if is_distributed(self.optimizer):
            _backend.wait(self.trainable_variables)
        return result

    return trained


def _owner_of(method):
    """Return the class that has a method of models, which load otherwise if it seems to be of the user's class."""
    return next(kind for kind in keras.Model.__mro__ if method in vars(kind))


def _change_keras():
    """Make known to Keras what a distributed optimizer needs of the classes around it."""
    scaled = keras.optimizers.LossScaleOptimizer
    scaled.apply = _reduce_before_unscaling(scaled.apply, at=0)
    scaled.stateless_apply = _reduce_before_unscaling(scaled.stateless_apply, at=1)
    if _backend.name == "tensorflow":
        owner = _owner_of("compile")
        owner.compile = _without_xla(owner.compile)
    if _backend.name == "jax":
        for name in ("fit", "train_on_batch"):
            owner = _owner_of(name)
            setattr(owner, name, _until_reduced(getattr(owner, name)))


_change_keras()


def _accumulate(optimizer, passes, average):
    """Let the optimizer add up gradients over passes; return the factor that makes a sum of their mean."""
    if not isinstance(passes, int) or passes < 1:
        raise ValueError(f"backward_passes_per_step={passes!r} must be an integer of at least 1")
    if passes == 1:
        return 1.0
    if optimizer.gradient_accumulation_steps:
        raise ValueError(
            f"backward_passes_per_step={passes}, and the optimizer has gradient_accumulation_steps="
            f"{optimizer.gradient_accumulation_steps}; give one of them"
        )
    if optimizer.built:
        raise ValueError("backward_passes_per_step: the optimizer is in use already; give it a new one")
    optimizer.gradient_accumulation_steps = passes
    return 1.0 if average else float(passes)


def DistributedOptimizer(
    optimizer: Optimizer,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type | Coding = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: ReduceOp = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: list | None = None,
    process_set: object = None,
    scale_local_gradients: bool = True,
    group: Group | None = None,
) -> Optimizer:
    """Return an optimizer that reduces the gradients over all workers before each step.

    It is an instance of a subclass of the optimizer's class, with the same name, that shares the state of the
    optimizer given; use only the new one from then on. A model that was saved with it loads without BytePS.
    Clipping, weight decay and moving averages come after reducing. With mixed precision, a gradient that is
    not finite on one worker makes all leave out the step.

    With BYTEPS_ENABLE_ASYNC=1 (``worker.async``) gradients stay this worker's own. A step applies them, pushes by
    what that has changed the weights, and takes what these are with the changes of all workers.

    Args:
        optimizer: any optimizer of Keras 3, or a LossScaleOptimizer.
        name: of the new optimizer; None: that of the given one.
        device_dense: with TensorFlow, the device to compute on.
        device_sparse: accepted for compatibility; without effect.
        compression: Compression.none, .fp16 or .bf16; or how the network codes gradients, as for declare():
            such as {"compressor": "onebit", "ef": "vanilla"}. Small ones lose nothing: those below "min_bytes", or
            below BYTEPS_MIN_COMPRESS_BYTES (64 KiB) if that is not set. With "momentum" in it the optimizer
            must have none.
        sparse_as_dense: with TensorFlow, make gradients that are IndexedSlices dense. Otherwise only the rows that
            some worker has are sent, and they stay IndexedSlices.
        gradient_predivide_factor: f divides by f before the sum and by size() / f after it, against sums that
            are too large for a small type; for Average only.
        op: Average, Sum, Min, Max or Product.
        backward_passes_per_step: how many batches add up to one step, of which only the sum is sent; as
            gradient_accumulation_steps of the optimizer, but without a division by their number.
        average_aggregated_gradients: whether the sum over the batches is divided by their number.
        num_groups, groups, scale_local_gradients: accepted for compatibility; without effect.
        process_set: must be None: all workers.
        group: the process group that reduces the gradients, see new_group(); None: all workers. They are sent when
            all are there, in the order of the variables. On a worker that is not a member nothing is reduced.

    Raises:
        TypeError: it is not an optimizer of Keras 3.
        ValueError: an argument makes no sense, or the optimizer is distributed already.
    """
    del device_sparse, num_groups, groups, scale_local_gradients
    refuse_process_set(process_set)
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise TypeError(
            f"expected an optimizer of Keras {keras.__version__}, got "
            f"{type(optimizer).__module__}.{type(optimizer).__name__}"
        )
    if is_distributed(optimizer):
        raise ValueError("the optimizer is distributed already")
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        inner, outer = optimizer.inner_optimizer, optimizer
    else:
        inner, outer = optimizer, None
    if is_async():
        check_arguments(compression is not Compression.none, gradient_predivide_factor, op, backward_passes_per_step)
        if group is not None:
            refuse("shares the weights of all workers: leave group= out")
        if inner.use_ema and inner.ema_overwrite_frequency:
            refuse("adds changes of all workers, and ema_overwrite_frequency makes changes that are no gradient's")
        wrapped = _wrap(inner, Asynchronous, Exchange(_backend.Shared()))
    else:
        op = choose_op(None, op)
        before, after = predivide_scales(gradient_predivide_factor, op)
        compression = choose_compressor(compression, Compression.none, model_coding_text)
        check_momentum(coding_of(compression), getattr(inner, "momentum", 0))
        after *= _accumulate(inner, backward_passes_per_step, average_aggregated_gradients)
        if group is not None:
            refuse_coding(compression)
        how = Reduction(compression, sparse_as_dense, op, (before, after), device_dense, group)
        wrapped = _wrap(inner, _Distributed, _Reducer(how))
    if name is not None:
        wrapped.name = name
    if outer is None:
        return wrapped
    outer.inner_optimizer = wrapped
    return outer


def _wrap(optimizer, added, own):
    """Return an optimizer of a class made of the added one and its own. It shares its state; `own` is what is added."""
    base = type(optimizer)
    wrapped = object.__new__(type(base.__name__, (added, base), {"__module__": base.__module__}))
    object.__setattr__(wrapped, "__dict__", optimizer.__dict__)
    wrapped._byteps = own
    return wrapped
