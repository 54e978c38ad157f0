# SPDX-License-Identifier: Apache-2.0
"""Callbacks of model.fit(): the same beginning for all workers, metrics of all, learning rates that suit many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Sequence

import keras
import numpy as np

from byteps import numpy as arrays
from byteps._basics import Average, end_step, size

from . import _backend
from .functions import broadcast_variables
from .optimizer import exchange_of

if TYPE_CHECKING:
    from byteps._groups import Group


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):
    """Gives all workers the variables of model and optimizer that worker root_rank has.

    It does so before the first batch, or after it if the model makes its variables only then. So they start
    alike when the weights are random, or were loaded from a checkpoint on one worker. What comes after it in the
    list of callbacks sees it done. At the end of an epoch it raises the error of an operation that has failed: on
    JAX, fit() would go on with what has no value. In asynchronous training the next fit() goes on with the servers'
    weights, unless those of the root have changed since the last one has ended: then it begins with these.
    """

    def __init__(self, root_rank: int = 0, device: str = "", local_variables: Sequence[Any] | None = None) -> None:
        """Make the callback; device and local_variables are accepted for compatibility."""
        super().__init__()
        self.root_rank, self.done = root_rank, False

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Broadcast, if the variables are there."""
        self.done = False
        if self.model.built:
            optimizer = self.model.optimizer
            if optimizer is not None and not optimizer.built:
                optimizer.build(self.model.trainable_variables)
            self._broadcast()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Broadcast, if that is still to be done. A batch is a step of the job's timelines."""
        if not self.done:
            self._broadcast()
        if _backend.name != "jax":  # where the batch is still on its way
            end_step(self.model)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Wait for what the last step has changed."""
        if self.model.optimizer is not None:
            keras.ops.convert_to_numpy(self.model.optimizer.iterations)

    def _broadcast(self):
        model = self.model
        variables = [*model.variables, *(model.optimizer.variables if model.optimizer is not None else ())]
        broadcast_variables(_distinct(variables), self.root_rank)
        exchange = exchange_of(model.optimizer)
        if exchange is not None:
            exchange.begin_fit(model, self.root_rank)
        self.done = True

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Note, in asynchronous training, what the weights are: the next fit() goes on with the servers' ones then."""
        exchange = exchange_of(self.model.optimizer)
        if exchange is not None:
            exchange.end_fit(self.model)


def _distinct(variables):
    """Return them, each once, in their order."""
    return list({id(variable): variable for variable in variables}.values())


class MetricAverageCallback(keras.callbacks.Callback):
    """Replaces the metrics of an epoch by their averages over all workers.

    Put it before callbacks that read them, such as ReduceLROnPlateau, TensorBoard and ModelCheckpoint. All
    workers must have the same metrics.
    """

    def __init__(self, device: str = "", group: Group | None = None) -> None:
        """Make the callback; device is accepted for compatibility.

        Args:
            device: without effect.
            group: of the workers that take part, see new_group(); None: all. Others keep their metrics.
        """
        super().__init__()
        self.group = group

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Average what is in logs, in place."""
        names = sorted(name for name, value in (logs or {}).items() if np.ndim(value) == 0)
        if names and (self.group is None or self.group.rank() >= 0):
            mine = np.array([float(logs[name]) for name in names])
            name = "Metrics" if self.group is None else None
            logs.update(zip(names, arrays.push_pull(mine, name=name, op=Average, group=self.group).tolist()))


class LearningRateScheduleCallback(keras.callbacks.Callback):
    """Multiplies the initial learning rate by a factor that depends on the epoch.

    Args:
        multiplier: a number, or a function of the epoch that returns one. Without `staircase` the epoch has a
            fraction.
        start_epoch, end_epoch: the first epoch in which it acts, and the first in which it does not any more;
            None: it acts to the end.
        staircase: change the learning rate at the begin of an epoch only, not with each batch.
        momentum_correction: scale the velocity of an SGD with momentum as the learning rate changes (Goyal et
            al., 2017).
        steps_per_epoch: batches of an epoch, for fractions of it; None: as model.fit() knows them.
        initial_lr: the learning rate to multiply; None: that of the optimizer when training begins.
    """

    def __init__(
        self,
        multiplier: float | Callable[[int], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        initial_lr: float | None = None,
    ) -> None:
        """Make the callback; the arguments are described above."""
        super().__init__()
        self.multiplier = multiplier if callable(multiplier) else lambda epoch: multiplier
        self.start_epoch, self.end_epoch = start_epoch, end_epoch
        self.staircase = staircase or not callable(multiplier)
        self.momentum_correction = momentum_correction
        self.steps_per_epoch, self.initial_lr = steps_per_epoch, initial_lr
        self.current_epoch = 0

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Find out what was not given."""
        if self.initial_lr is None:
            self.initial_lr = self._learning_rate()
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = (self.params or {}).get("steps")
            if not self.steps_per_epoch:
                raise ValueError(
                    f"{type(self).__name__}: model.fit() does not know how many batches an epoch has; give "
                    "steps_per_epoch="
                )

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Note the epoch."""
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Set the learning rate, if that is to be done now."""
        if self.current_epoch < self.start_epoch:
            return
        if self.end_epoch is not None and self.current_epoch >= self.end_epoch:
            return
        if self.staircase and batch == 0:
            self._adjust(self.current_epoch)
        elif not self.staircase:
            self._adjust(self.current_epoch + batch / self.steps_per_epoch)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Log the learning rate."""
        if logs is not None:
            logs["lr"] = self._learning_rate()

    def _learning_rate(self):
        return float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))

    def _adjust(self, epoch):
        optimizer = self.model.optimizer
        old, new = self._learning_rate(), self.initial_lr * self.multiplier(epoch)
        optimizer.learning_rate = new
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        if self.momentum_correction and old > 0 and old != new:
            # The velocity contains the learning rate: this equals a momentum that is scaled for one batch.
            for velocity in getattr(inner, "momentums", ()):
                velocity.assign(velocity * (new / old))


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from that of one worker to that of all, over some epochs.

    The optimizer has the learning rate of all, size() times that of one (Goyal et al., "Accurate, Large Minibatch
    SGD", 2017).

    Args:
        warmup_epochs: how many.
        momentum_correction, steps_per_epoch, initial_lr: as for LearningRateScheduleCallback.
        verbose: 1: print a line at the end.
    """

    def __init__(
        self,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
        initial_lr: float | None = None,
    ) -> None:
        """Make the callback; the arguments are described above."""

        def multiplier(epoch):
            # The first batch is counted as if it were the last of the one before.
            epoch += 1.0 / self.steps_per_epoch
            return 1.0 / size() * (epoch * (size() - 1) / warmup_epochs + 1)

        super().__init__(multiplier, 0, warmup_epochs, False, momentum_correction, steps_per_epoch, initial_lr)
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Log the learning rate; say when it has been raised."""
        super().on_epoch_end(epoch, logs)
        if epoch == self.end_epoch - 1 and self.verbose > 0:
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {self._learning_rate():g}.")
