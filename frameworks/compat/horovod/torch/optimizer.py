# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer with Horovod's arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byteps import torch as bps
from byteps._basics import Average
from byteps.torch.compression import Compression
from byteps.torch.optimizer import _check_passes, _Distributed, name_parameters, unwrap, wrap

from .._arguments import choose
from ..process_sets import global_process_set, group_of
from ._joining import announce_rounds

if TYPE_CHECKING:
    from typing import Any, Iterable, Sequence

    import torch

    from byteps._basics import ReduceOp
    from byteps.torch.compression import Choice

    from .._arguments import choose
from ..process_sets import ProcessSet


class _Nothing:
    """What stands for a reducer on a worker that is not in the process set: nothing is reduced."""

    dirty = asked = busy = False
    reduced = True
    coding = None
    compression = Compression.none
    waited = 0.0
    steps = 0

    def __init__(self, named, passes):
        self.passes = passes
        self.handles = {}
        self.titles = {parameter: name for name, parameter in named}

    @property
    def parameters(self):
        return list(self.titles)

    def extend(self, named):
        self.titles.update((parameter, name) for name, parameter in named)

    def index(self, parameter):
        return 0 if parameter in self.titles else None

    def unknown(self, _):
        return ()

    def names(self):
        return ()

    def names_are_current(self):
        return False

    def reset(self, passes=None):
        self.passes = passes or self.passes

    def end_step(self):
        self.asked = False


def _alone(optimizer, named_parameters, passes):
    """Return an optimizer with the functions of a distributed one that makes its steps alone."""
    nothing = _Nothing(name_parameters(optimizer, named_parameters), _check_passes(passes))
    unwrap(optimizer)
    return wrap(optimizer, _Distributed, nothing)


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

    A worker that has called join() gives zeros. With a process set the gradients are those of its workers, and are sent
    when backward() has ended; on others the optimizer makes its steps with their own gradients.
    """
    group = group_of(process_set)
    if group is not None and group.rank() < 0:
        return _alone(optimizer, named_parameters, backward_passes_per_step)
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
        group,
    )
    if group is None:
        announce_rounds(wrapped)
    return wrapped
