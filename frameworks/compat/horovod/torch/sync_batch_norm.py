# SPDX-License-Identifier: Apache-2.0
"""SyncBatchNorm with Horovod's arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byteps import torch as bps

from ..process_sets import global_process_set, group_of
from ._joining import announce

if TYPE_CHECKING:
    import torch

    from ..process_sets import ProcessSet


class SyncBatchNorm(bps.SyncBatchNorm):
    """Normalises by the statistics of the batches of all workers of a set, as byteps.torch.SyncBatchNorm."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        """Make one, with the arguments of torch.nn.BatchNorm2d."""
        super().__init__(num_features, eps, momentum, affine, track_running_stats, group_of(process_set))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalise a batch of shape (batch, channel, ...)."""
        if self.training or self.running_mean is None:
            announce("a SyncBatchNorm", self.process_group)
        return super().forward(input)
