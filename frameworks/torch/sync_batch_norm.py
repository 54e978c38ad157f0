# SPDX-License-Identifier: Apache-2.0
"""SyncBatchNorm: batch normalisation by the statistics of the batches of all workers together.

The moments are composed of operations that autograd knows, push_pull among them, so that it finds the
gradients by itself. Each worker gives the sums of its values and of their squares, in float64, in one small
tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

import torch
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from byteps._basics import Sum
from byteps._groups import party

from .ops import push_pull

if TYPE_CHECKING:
    from typing import TypeVar

    from byteps._groups import Group

    Module = TypeVar("Module", bound=torch.nn.Module)


class SyncBatchNorm(_BatchNorm):
    """Takes the place of torch.nn.BatchNorm1d, 2d and 3d, on the CPU and on CUDA devices.

    Outputs, running statistics and gradients of the inputs are those of one process with the batches of all
    workers, which may be of different sizes. As of any other layer, gradients of weight and bias are reduced
    by DistributedOptimizer or DistributedDataParallel. All workers run the same layers in the same order, in
    training, and without running statistics (track_running_stats=False) in evaluation, too.

    Arguments and attributes are those of torch.nn.SyncBatchNorm, `process_group` being what new_group() returns: the
    workers whose batches count. None: all.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Group | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Make one."""
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)
        self.process_group = process_group

    def _check_input_dim(self, input):
        if input.dim() < 2:
            raise ValueError(f"Expected at least 2 dimensions (batch, channel, ...), got {input.dim()}")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalise a batch of shape (batch, channel, ...)."""
        self._check_input_dim(input)
        if party(self.process_group).size() == 1:
            return super().forward(input)
        if not self.training and self.running_mean is not None:
            mean, variance = self.running_mean, self.running_var
            return functional.batch_norm(input, mean, variance, self.weight, self.bias, eps=self.eps)
        wide = (input.float() if input.dtype.itemsize < 4 else input).movedim(1, -1)  # channels last
        count, mean, variance = _moments(wide, self.process_group)
        if self.training and self.track_running_stats:
            self._track(count, mean.detach(), variance.detach())
        scale = (variance + self.eps).rsqrt()
        output = (wide - mean.to(wide.dtype)) * scale.to(wide.dtype)
        if self.affine:
            output = output * self.weight + self.bias
        return output.movedim(-1, 1).to(input.dtype)

    @torch.no_grad()
    def _track(self, count, mean, variance):
        self.num_batches_tracked += 1
        momentum = 1 / self.num_batches_tracked if self.momentum is None else self.momentum
        unbiased = variance * count / (count - 1)
        for running, value in ((self.running_mean, mean), (self.running_var, unbiased)):
            running.copy_(running + momentum * (value - running))

    @overload
    @classmethod
    def convert_sync_batchnorm(cls, module: _BatchNorm, process_group: Group | None = None) -> SyncBatchNorm: ...

    @overload
    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Group | None = None) -> Module: ...

    @classmethod
    def convert_sync_batchnorm(cls, module: torch.nn.Module, process_group: Group | None = None) -> torch.nn.Module:
        """Return the module with a SyncBatchNorm of the same parameters and buffers for each BatchNorm."""
        converted = module
        if isinstance(module, _BatchNorm) and not isinstance(module, cls):
            converted = cls(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats)
            converted.process_group = process_group
            converted._parameters = module._parameters
            converted._buffers = module._buffers
            converted.train(module.training)
        for name, child in module.named_children():
            converted.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return converted


def _moments(values, group):
    """Return how many values a channel, the last dimension, has on the workers of a group, their mean and variance."""
    channels = values.size(-1)
    dimensions = list(range(values.dim() - 1))
    own = values.new_tensor([values[..., 0].numel()], dtype=torch.float64)
    total = values.sum(dimensions, dtype=torch.float64)
    own_mean = total / own.clamp(min=1)
    deviation = values - own_mean.to(values.dtype)  # its squares lose nothing where the mean is large
    squares = deviation.square().sum(dimensions, dtype=torch.float64) + total * own_mean
    name = f"SyncBatchNorm.{channels}" if group is None else None  # operations of a group have none
    sums = push_pull(torch.cat([own, total, squares]), op=Sum, name=name, group=group)
    count, total, squares = sums.split([1, channels, channels])
    if count < 2:
        raise ValueError(f"Expected more than 1 value per channel in the batches of all workers, got {int(count)}")
    mean = total / count
    return count, mean, (squares / count - mean.square()).clamp(min=0)
