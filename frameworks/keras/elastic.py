# SPDX-License-Identifier: Apache-2.0
"""model.fit() that goes on while workers come and go, under Horovod's names; on TensorFlow and PyTorch.

    state = bps.elastic.KerasState(model, batch=0, epoch=0)
    callbacks = [
        bps.elastic.UpdateBatchStateCallback(state),
        bps.elastic.UpdateEpochStateCallback(state),
        bps.elastic.CommitStateCallback(state),
    ]

    @bps.elastic.run
    def train(state):
        state.model.fit(data, initial_epoch=state.epoch, epochs=epochs, callbacks=callbacks)

    train(state)

The job must be elastic: ``cluster.min_workers``. A step in which a worker is lost changes no weight, and train() is
called again with the state as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras
import numpy as np

from byteps._basics import rank, reform
from byteps.elastic import HorovodInternalError, HostsUpdatedInterrupt, ObjectState, State, run_fn
from byteps.numpy import broadcast_object

from . import _backend
from .functions import broadcast_variables

if TYPE_CHECKING:
    from typing import Any, Callable

__all__ = [
    "CommitStateCallback",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "KerasState",
    "ObjectState",
    "State",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate func(state, ...), which trains: it is called again when workers are lost or wait to join.

    Before each call all workers get the state of rank 0, so that newcomers begin where the others are. No worker may
    use an operation of all workers between init() and this.
    """
    return run_fn(func, reform, _backend.as_in_byteps)


class KerasState(ObjectState):
    """The state of a training: a model, its optimizer, and objects that can be pickled and copied, as attributes."""

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer | None = None,
        backend: object = None,
        **kwargs: Any,
    ) -> None:
        """Make a state of these attributes; all workers have the same ones.

        Args:
            model: a model that is built.
            optimizer: None: that with which the model was compiled.
            backend: accepted for compatibility; without effect.
            kwargs: further attributes, such as ``epoch=0`` and ``batch=0``, which the callbacks here count.

        Raises:
            ValueError: the model has no weights yet, or Keras runs on JAX.
        """
        del backend
        if _backend.name == "jax":
            raise ValueError(
                "KerasState: on JAX the weights are gone when a step fails; elastic training with Keras needs "
                "KERAS_BACKEND=tensorflow or torch"
            )
        if not model.built:
            raise ValueError("KerasState: the model has no weights yet; call model.build() with the shape of its input")
        self.model = model
        self.optimizer = model.optimizer if optimizer is None else optimizer
        if self.optimizer is not None and not self.optimizer.built:
            self.optimizer.build(model.trainable_variables)
        super().__init__(broadcast_object, rank, **kwargs)
        self._save_variables()

    def _variables(self):
        """Return what is saved and sent, without the states of random numbers, which are each worker's own."""
        return [*self.model.weights, *(self.optimizer.variables if self.optimizer is not None else ())]

    def _save_variables(self):
        self._values = [np.array(keras.ops.convert_to_numpy(variable)) for variable in self._variables()]

    def save(self) -> None:
        """Keep a copy of all."""
        self._save_variables()
        super().save()

    def restore(self) -> None:
        """Go back to the last copy."""
        for variable, value in zip(self._variables(), self._values):
            variable.assign(value)
        super().restore()

    def sync(self) -> None:
        """Take what rank 0 has."""
        broadcast_variables(self._variables(), 0)
        super().sync()


class CommitStateCallback(keras.callbacks.Callback):
    """Commits the state after some batches, and at the end of each epoch, whatever its place in the list of callbacks.

    It does so when the next batch begins, and all other callbacks know of the last one.
    """

    def __init__(self, state: State, batches_per_commit: int = 1) -> None:
        """Make the callback."""
        super().__init__()
        self.state, self.batches_per_commit = state, batches_per_commit
        self._batches = 0

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Begin to count."""
        self._batches = 0

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Commit, if it is time. Where others wait for this worker, that ends fit()."""
        if self._batches >= self.batches_per_commit:
            self._batches = 0
            self.state.commit()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Count."""
        self._batches += 1

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Have the end of the epoch committed."""
        self._batches = self.batches_per_commit

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Save the state of the end."""
        self.state.save()


class UpdateBatchStateCallback(keras.callbacks.Callback):
    """Counts the batches of an epoch in ``state.batch``: what fit() need not train again when it is called again."""

    def __init__(self, state: State) -> None:
        """Make the callback; the state must have been given ``batch=0``."""
        super().__init__()
        self.state = state
        self._first = 0

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Note the batch; with steps_per_execution it is the first of several."""
        self._first = batch

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Count what has been trained."""
        self.state.batch += batch - self._first + 1

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Begin anew."""
        self.state.batch = 0


class UpdateEpochStateCallback(keras.callbacks.Callback):
    """Counts the epochs in ``state.epoch``."""

    def __init__(self, state: State) -> None:
        """Make the callback; the state must have been given ``epoch=0``."""
        super().__init__()
        self.state = state

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Count one."""
        self.state.epoch += 1
