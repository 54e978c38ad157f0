# SPDX-License-Identifier: Apache-2.0
"""DistributedGradientTape and DistributedOptimizer of byteps.tensorflow, which take process sets here."""

from __future__ import annotations

from byteps import tensorflow as bps

from .._arguments import of_process_sets, without_adasum

__all__ = ["DistributedGradientTape", "DistributedOptimizer"]

DistributedGradientTape = of_process_sets(without_adasum(bps.DistributedGradientTape))
DistributedOptimizer = of_process_sets(without_adasum(bps.DistributedOptimizer))
