# SPDX-License-Identifier: Apache-2.0
"""Horovod's callbacks of model.fit(): those of byteps.keras, with Horovod's arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byteps.keras import callbacks as bps
from byteps.keras.callbacks import BroadcastGlobalVariablesCallback

from ..process_sets import global_process_set, group_of

if TYPE_CHECKING:
    from typing import Callable

    from ..process_sets import ProcessSet

__all__ = [
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]


class MetricAverageCallback(bps.MetricAverageCallback):
    """Averages metrics over all workers at the end of each epoch. A worker that is not in the set keeps its own."""

    def __init__(self, device: str = "", process_set: ProcessSet = global_process_set) -> None:
        """Make the callback; device is accepted for compatibility."""
        super().__init__(device, group_of(process_set))


class LearningRateScheduleCallback(bps.LearningRateScheduleCallback):
    """Multiplies the learning rate by what a schedule says."""

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[int], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        """Make the callback; the arguments are those of byteps.keras, in Horovod's order."""
        when = (start_epoch, end_epoch, staircase)
        super().__init__(multiplier, *when, momentum_correction, steps_per_epoch, initial_lr)


class LearningRateWarmupCallback(bps.LearningRateWarmupCallback):
    """Raises the learning rate from that of one worker to that of all, over some epochs."""

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        """Make the callback; the arguments are those of byteps.keras, in Horovod's order."""
        super().__init__(warmup_epochs, momentum_correction, steps_per_epoch, verbose, initial_lr)
