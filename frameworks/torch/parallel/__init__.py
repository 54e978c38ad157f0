# SPDX-License-Identifier: Apache-2.0
"""Wrappers of modules, under the names that PyTorch's own torch.nn.parallel has."""

from .distributed import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
