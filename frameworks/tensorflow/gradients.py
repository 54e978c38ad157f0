# SPDX-License-Identifier: Apache-2.0
"""Gradients that are reduced over all workers: of a tape, and of an optimizer of TensorFlow 1."""

from __future__ import annotations

import contextlib
import functools
import sys
import typing
from typing import TYPE_CHECKING, TypeVar

import tensorflow as tf

from byteps._async import check_arguments, refuse
from byteps._basics import Average, ReduceOp, choose_op, is_async
from byteps._coded_names import choose_compressor, coding_of, refuse_coding
from byteps._coding import check_momentum, model_coding_text
from byteps._horovod import predivide_scales, refuse_process_set
from byteps._names import unique_name

from . import _grouped
from ._async import Shared
from ._graph import unique
from ._steps import let_keras_wait, together
from .compression import Compression, Compressor
from .ops import push_pull

if TYPE_CHECKING:
    from byteps._groups import Group
    from byteps._types import Coding

Optimizer = TypeVar("Optimizer")  # of whatever class

_OLD = tf.compat.v1.train.Optimizer
_LEAVE_OTHER_ROWS = {  # they change no row that IndexedSlices lack; their subclasses may
    tf.compat.v1.train.GradientDescentOptimizer,
    tf.compat.v1.train.MomentumOptimizer,
    tf.compat.v1.train.AdagradOptimizer,
    tf.compat.v1.train.RMSPropOptimizer,
}


class Reduction(typing.NamedTuple):
    """How gradients are reduced; made by reduction()."""

    compression: type
    sparse_as_dense: bool
    op: ReduceOp
    scales: tuple[float, float]
    device: str
    group: Group | None = None

    def __call__(self, gradients, variables):
        """Return the gradients, reduced; None stays None. All are in flight at once.

        Args:
            gradients: a list of tensors, IndexedSlices and None.
            variables: of the same length. A tensor is named by the place of its variable, whose own name may
                differ between the workers, as where one of them has loaded the model.
        """
        chosen = [i for i, gradient in enumerate(gradients) if gradient is not None]
        names = [unique_name(f"Gradient.{i}", variables[i]) for i in chosen]
        reduced = dict(zip(chosen, self.named([gradients[i] for i in chosen], names)))
        return [reduced.get(i) for i in range(len(gradients))]

    def named(self, gradients, names, learning_rate=None):
        """Return the gradients, none of them None, reduced under the names of tensors."""
        names = tuple(names)
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients] if self.sparse_as_dense else gradients
        if self.group is not None:
            return _reduce_in_group(self, gradients)
        reduce = _reducer(self, names) if tf.executing_eagerly() else functools.partial(_reduce, self, names)
        return reduce(gradients, learning_rate)


def _reduce(how, names, gradients, learning_rate):
    """Return the reduced gradients. The first ones are the most urgent: the next step begins with them."""
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    before, after = how.scales
    reduced = [
        push_pull(
            gradient,
            device_dense=how.device,
            compression=how.compression,
            op=how.op,
            name=name if graph is None else unique(graph, name),
            priority=-i,
            prescale_factor=before,
            postscale_factor=after,
            learning_rate=learning_rate,
        )
        for i, (name, gradient) in enumerate(zip(names, gradients))
    ]
    return reduced if graph is None else together(reduced, how.device)


def _reduce_in_group(how, gradients):
    """Return the gradients, in the order of the variables; a worker that is no member keeps its own."""
    if how.group.rank() < 0:
        return gradients
    with tf.device(how.device) if how.device else contextlib.nullcontext():
        reduced = _grouped.push_pull(gradients, how.op, how.scales, how.compression, how.group)
    return reduced if tf.executing_eagerly() else together(reduced, how.device)


@functools.lru_cache(maxsize=64)
def _reducer(how, names):
    """Return _reduce() as a graph, for eager mode, where one operation would wait for the other."""
    return tf.function(functools.partial(_reduce, how, names), reduce_retracing=True)


def reduction(
    compression=Compression.none,
    sparse_as_dense=False,
    op=Average,
    predivide_factor=1.0,
    device="",
    process_set=None,
    group=None,
):
    """Return the Reduction for the arguments that optimizers and tapes have in common."""
    refuse_process_set(process_set)
    op = choose_op(None, op)
    compression = choose_compressor(compression, Compression.none, model_coding_text)
    if group is not None:
        refuse_coding(compression)
        if is_async():
            refuse("shares the variables of all workers: leave group= out")
    return Reduction(compression, sparse_as_dense, op, predivide_scales(predivide_factor, op), device, group)


# ---- a tape ----------------------------------------------------------------------------------------------


class _DistributedGradientTape:
    """What is added to the class of the wrapped tape."""

    def gradient(self, target, sources, *args, **keywords):
        """Return the gradients as the tape does, reduced over all workers."""
        gradients = super().gradient(target, sources, *args, **keywords)
        flat = tf.nest.flatten(sources)
        let_keras_wait()
        reduced = self._byteps(tf.nest.flatten(gradients), flat)
        return tf.nest.pack_sequence_as(sources, reduced)


def DistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] | Coding = Compression.none,
    sparse_as_dense: bool = False,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: list | None = None,
    process_set: object = None,
    scale_local_gradients: bool = True,
    group: Group | None = None,
) -> tf.GradientTape:
    """Return a tape whose gradient() reduces over all workers what the given tape has recorded.

    ::

        with tf.GradientTape() as tape:
            loss = ...
        tape = bps.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)

    All workers must ask for the gradients of the same variables, and the same ones must be None.

    With BYTEPS_ENABLE_ASYNC=1 (``worker.async``) gradients stay each worker's own: use the plain tape, and
    DistributedOptimizer() for the optimizer.

    Args:
        gradtape: a tf.GradientTape.
        device_dense: the device to compute on, as for tf.device().
        device_sparse: accepted for compatibility; without effect.
        compression: Compression.none, .fp16 or .bf16; or how the network codes gradients, as for declare():
            such as {"compressor": "onebit", "ef": "vanilla"}. Small ones lose nothing: those below "min_bytes", or
            below BYTEPS_MIN_COMPRESS_BYTES (64 KiB) if that is not set.
        sparse_as_dense: make gradients that are IndexedSlices dense. Otherwise only the rows that some worker has
            are sent, and they stay IndexedSlices: all workers must have the same gradients as such.
        op: Average, Sum, Min, Max or Product.
        gradient_predivide_factor: f divides by f before the sum and by size() / f after it, against sums that
            are too large for a small type; for Average only.
        num_groups, groups, scale_local_gradients: accepted for compatibility; without effect, as each gradient
            is sent when it is there, and none is local.
        process_set: must be None: all workers.
        group: the process group that reduces the gradients, see new_group(); None: all workers. Nothing is sent
            before all gradients are there; then those of all variables are, in their order. IndexedSlices come back
            with the rows of all workers, each as often as it was sent. A worker that is no member keeps its gradients.

    Raises:
        ValueError: an argument makes no sense, or training is asynchronous.
    """
    del device_sparse, num_groups, groups, scale_local_gradients
    if is_async():
        refuse("leaves gradients as they are: use tf.GradientTape, and bps.DistributedOptimizer for the optimizer")
    how = reduction(compression, sparse_as_dense, op, gradient_predivide_factor, device_dense, process_set, group)
    base = type(gradtape)
    wrapped = object.__new__(type(base.__name__, (_DistributedGradientTape, base), {"__module__": base.__module__}))
    wrapped.__dict__.update(gradtape.__dict__)
    wrapped._byteps = how
    return wrapped


# ---- an optimizer of TensorFlow 1 ------------------------------------------------------------------------


class _Passes:
    """Adds up gradients over several passes, in variables of this worker."""

    def __init__(self, count, average):
        self.count, self.average = count, average
        self.done = None  # a variable: passes since the last step
        self.sums = {}

    def add(self, gradients, variables, reduce):
        """Return the reduced sums in the last pass of a step, else zeros."""
        if self.done is None:
            self.done = tf.compat.v1.Variable(0, trainable=False, name="byteps_passes", use_resource=True)
        present = [i for i, gradient in enumerate(gradients) if gradient is not None]
        sums = [self._sum_of(variables[i], gradients[i]) for i in present]
        added = [total.assign_add(tf.convert_to_tensor(gradients[i])) for total, i in zip(sums, present)]
        with tf.control_dependencies([tf.identity(value) for value in added]):
            done = self.done.assign_add(1, read_value=True)

        def last():
            divisor = self.count if self.average else 1
            results = reduce([total.read_value() / divisor for total in sums], [variables[i] for i in present])
            with tf.control_dependencies(results):
                reset = [total.assign(tf.zeros_like(total)) for total in sums]
            with tf.control_dependencies([tf.identity(value) for value in reset]):
                return [tf.identity(result) for result in results]

        def not_yet():
            return [tf.zeros_like(total) for total in sums]

        with tf.control_dependencies([tf.identity(done)]):
            results = tf.cond(tf.equal(done % self.count, 0), last, not_yet)
        results = dict(zip(present, results if isinstance(results, (list, tuple)) else [results]))
        return [results.get(i) for i in range(len(gradients))]

    def _sum_of(self, variable, gradient):
        if id(variable) not in self.sums:
            total = tf.compat.v1.Variable(
                tf.zeros(variable.shape, gradient.dtype), trainable=False, use_resource=True, name="byteps_sum"
            )
            self.sums[id(variable)] = variable, total  # with the variable itself, so that no other gets its id
        return self.sums[id(variable)][1]

    def when_last(self, apply, gradients):
        """Return an operation that runs apply() in the last pass of a step."""

        def applied():
            operation = apply()
            with tf.control_dependencies([] if operation is None else [operation]):
                return tf.constant(True)

        with tf.control_dependencies([tf.identity(gradient) for gradient in gradients if gradient is not None]):
            last = tf.equal(self.done.read_value() % self.count, 0)
            return tf.group(tf.cond(last, applied, lambda: tf.constant(False)))


class _DistributedOptimizer(_OLD):
    """An optimizer of TensorFlow 1 that reduces gradients before it applies them."""

    def __init__(self, optimizer, name, use_locking, how, passes):
        super().__init__(name=name or f"Distributed{type(optimizer).__name__}", use_locking=use_locking)
        self._optimizer, self._how, self._passes = optimizer, how, passes

    def compute_gradients(self, *args, **keywords):
        """Return (gradient, variable) pairs, the gradients reduced over all workers."""
        pairs = self._optimizer.compute_gradients(*args, **keywords)
        gradients, variables = [gradient for gradient, _ in pairs], [variable for _, variable in pairs]
        if self._passes is None:
            reduced = self._how(gradients, variables)
        else:
            reduced = self._passes.add(gradients, variables, self._how)
        return list(zip(reduced, variables))

    def apply_gradients(self, grads_and_vars, *args, **keywords):
        """Apply them as the wrapped optimizer does."""
        pairs = list(grads_and_vars)

        def apply():
            return self._optimizer.apply_gradients(pairs, *args, **keywords)

        if self._passes is None:
            return apply()
        return self._passes.when_last(apply, [gradient for gradient, _ in pairs])

    def get_slot(self, *args, **keywords):
        """Return a slot of the wrapped optimizer."""
        return self._optimizer.get_slot(*args, **keywords)

    def get_slot_names(self, *args, **keywords):
        """Return the names of the wrapped optimizer's slots."""
        return self._optimizer.get_slot_names(*args, **keywords)

    def variables(self, *args, **keywords):
        """Return the variables of the wrapped optimizer."""
        return self._optimizer.variables(*args, **keywords)


class _AsynchronousOptimizer(_DistributedOptimizer):
    """An optimizer of TensorFlow 1 that leaves gradients as they are, and exchanges what they have changed."""

    def __init__(self, optimizer, name, use_locking):
        super().__init__(optimizer, name, use_locking, None, None)
        self._shared = Shared()

    def compute_gradients(self, *args, **keywords):
        """Return (gradient, variable) pairs as the wrapped optimizer does."""
        return self._optimizer.compute_gradients(*args, **keywords)

    def apply_gradients(self, grads_and_vars, *args, **keywords):
        """Apply them as the wrapped optimizer does, and meet the variables that all workers change."""
        pairs = list(grads_and_vars)

        def apply():
            return super(_AsynchronousOptimizer, self).apply_gradients(pairs, *args, **keywords)

        inputs = [gradient for gradient, _ in pairs if gradient is not None]
        touched = {
            i: gradient.indices
            for i, (gradient, _) in enumerate(pairs)
            if isinstance(gradient, tf.IndexedSlices) and type(self._optimizer) in _LEAVE_OTHER_ROWS
        }
        return self._shared.step([variable for _, variable in pairs], apply, inputs, touched)

    def pull_rows(self, variable, rows=None):
        """Take from the servers what these rows of a variable are now, or all; return an operation, eagerly None.

        Otherwise each row is as the servers had it when this worker had a gradient of it last. To them it is a push of
        zeros, so that with worker.staleness it counts.
        """
        return self._shared.pull(variable, rows)


def DistributedOptimizer(
    optimizer: Optimizer,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] | Coding = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: list | None = None,
    process_set: object = None,
    scale_local_gradients: bool = True,
    group: Group | None = None,
) -> Optimizer:
    """Return an optimizer that reduces the gradients over all workers before it applies them.

    With BYTEPS_ENABLE_ASYNC=1 (``worker.async``) gradients stay this worker's own. A step applies them, pushes by
    what that has changed the variables, and takes what these are with the changes of all workers.

    Args:
        optimizer: a tf.compat.v1.train.Optimizer, or an optimizer of Keras, for which this is
            byteps.tensorflow.keras.DistributedOptimizer.
        name: of the new optimizer. None: "Distributed" and the class of the given one.
        use_locking: as for a tf.compat.v1.train.Optimizer.
        backward_passes_per_step: how many passes add up to one step.
        average_aggregated_gradients: whether the sum over the passes is divided by their number.
        device_dense, device_sparse, compression, sparse_as_dense, op: as for DistributedGradientTape().
        gradient_predivide_factor, num_groups, groups, process_set, scale_local_gradients, group: likewise.

    Raises:
        ValueError: it is not an optimizer, or an argument makes no sense.
    """
    del device_sparse, num_groups, groups, scale_local_gradients
    if not isinstance(backward_passes_per_step, int) or backward_passes_per_step < 1:
        raise ValueError(
            f"backward_passes_per_step={backward_passes_per_step!r} must be an integer of at least 1"
        )
    how = reduction(compression, sparse_as_dense, op, gradient_predivide_factor, device_dense, process_set, group)
    if isinstance(optimizer, _OLD):
        if is_async():
            compressed = compression is not Compression.none
            check_arguments(compressed, gradient_predivide_factor, op, backward_passes_per_step)
            return _AsynchronousOptimizer(optimizer, name, use_locking)
        check_momentum(coding_of(how.compression), getattr(optimizer, "_momentum", 0))
        passes = backward_passes_per_step
        passes = None if passes == 1 else _Passes(passes, average_aggregated_gradients)
        return _DistributedOptimizer(optimizer, name, use_locking, how, passes)
    if "keras" in sys.modules:
        from keras.optimizers import Optimizer

        import byteps.keras as keras_part

        if isinstance(optimizer, Optimizer):
            return keras_part.DistributedOptimizer(
                optimizer,
                name,
                device_dense,
                "",
                compression,
                sparse_as_dense,
                gradient_predivide_factor,
                op,
                backward_passes_per_step,
                average_aggregated_gradients,
                group=group,
            )
    raise ValueError(
        "optimizer: expected a tf.compat.v1.train.Optimizer or an optimizer of Keras, got "
        f"{type(optimizer).__module__}.{type(optimizer).__name__}"
    )
