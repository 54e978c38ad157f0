# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer and DistributedTrainer of byteps.mxnet, with Horovod's arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byteps import mxnet as bps
from byteps.mxnet.compression import Compression

from ..process_sets import global_process_set, group_of

if TYPE_CHECKING:
    from typing import Any, Mapping

    import mxnet as mx
    from mxnet import gluon

    from byteps.mxnet.compression import NoneCompressor

    from ..process_sets import ProcessSet


class DistributedOptimizer(bps.DistributedOptimizer):
    """Averages each gradient before the optimizer inside uses it; for ``Module.fit(kvstore=None)``."""

    def __init__(
        self,
        optimizer: mx.optimizer.Optimizer,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        """Wrap an optimizer; num_groups is without effect."""
        del num_groups
        super().__init__(optimizer, None, gradient_predivide_factor, group_of(process_set))


class DistributedTrainer(bps.DistributedTrainer):
    """A gluon.Trainer for all workers: step() averages the gradients first."""

    def __init__(
        self,
        params: Mapping[str, Any] | gluon.ParameterDict,
        optimizer: str | mx.optimizer.Optimizer,
        optimizer_params: Mapping[str, Any] | None = None,
        compression: type[NoneCompressor] = Compression.none,
        gradient_predivide_factor: float = 1.0,
        prefix: str | None = None,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        """Make a trainer; num_groups and prefix are without effect, as names are told apart."""
        del prefix, num_groups
        scale = {"compression": compression, "gradient_predivide_factor": gradient_predivide_factor}
        super().__init__(params, optimizer, optimizer_params, group=group_of(process_set), **scale)
