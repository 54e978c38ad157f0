# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer with Horovod's arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byteps import torch as bps
from byteps._basics import Average
from byteps.torch.compression import Compression

from ..process_sets import check_all, global_process_set
from ._joining import announce_rounds
from .mpi_ops import choose

if TYPE_CHECKING:
    from typing import Any, Iterable, Sequence

    import torch

    from byteps._basics import ReduceOp
    from byteps.torch.compression import Choice

    from ..process_sets import ProcessSet


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: Choice = Compression.none,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[torch.Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return an optimizer that reduces the gradients over all workers, as byteps.torch.DistributedOptimizer().

    A worker that has called join() gives zeros.
    """
    check_all(process_set)
    wrapped = bps.DistributedOptimizer(
        optimizer,
        named_parameters,
        compression,
        backward_passes_per_step,
        choose(None, op),
        gradient_predivide_factor,
        num_groups,
        groups,
        sparse_as_dense,
    )
    announce_rounds(wrapped)
    return wrapped
