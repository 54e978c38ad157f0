# SPDX-License-Identifier: Apache-2.0
"""Bring all workers to one state, and objects from all of them."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import torch

from byteps import torch as bps
from byteps._groups import party

from .._arguments import root_of
from ..process_sets import global_process_set, group_of
from ._joining import announce

if TYPE_CHECKING:
    from typing import Any, Iterable

    from ..process_sets import ProcessSet


def broadcast_parameters(
    params: dict[Any, Any] | Iterable[Any], root_rank: int, process_set: ProcessSet = global_process_set
) -> None:
    """Replace tensors by those of worker root_rank, in place, as byteps.torch.broadcast_parameters()."""
    group = group_of(process_set)
    announce("broadcast_parameters", group)
    bps.broadcast_parameters(params, root_of(root_rank, group), group=group)


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: torch.nn.Module | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Give all workers the state and options of the optimizer of worker root_rank; `model` is not needed."""
    del model
    group = group_of(process_set)
    announce("broadcast_optimizer_state", group)
    bps.broadcast_optimizer_state(optimizer, root_of(root_rank, group), group=group)


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Return the object of worker root_rank on every worker. The others execute what unpickling its bytes means."""
    group = group_of(process_set)
    announce("broadcast_object", group)
    return bps.broadcast_object(obj, root_of(root_rank, group), None if group else name, group)


def allgather_object(obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """Return the objects of all workers of the set, by rank. Each executes what unpickling their bytes means.

    Args:
        obj: anything that can be pickled.
        name: accepted; calls meet in their order.
        process_set: of the workers that take part.
    """
    del name
    group = group_of(process_set)
    party(group)
    announce("allgather_object", group)
    data = torch.frombuffer(bytearray(pickle.dumps(obj)), dtype=torch.uint8)
    sizes = bps.all_gather(torch.tensor([len(data)]), sizes=1, group=group).tolist()
    return [pickle.loads(part.numpy().tobytes()) for part in bps.all_gather(data, sizes, group=group).split(sizes)]
