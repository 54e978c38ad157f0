# SPDX-License-Identifier: Apache-2.0
"""Bring all workers to one state, and objects from all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byteps import mxnet as bps

from .. import _objects
from .._arguments import root_of
from ..process_sets import global_process_set, group_of

if TYPE_CHECKING:
    from typing import Any, Mapping

    from mxnet import gluon

    from ..process_sets import ProcessSet

__all__ = ["allgather_object", "broadcast_object", "broadcast_parameters"]


def broadcast_parameters(
    params: Mapping[str, Any] | gluon.ParameterDict,
    root_rank: int = 0,
    prefix: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Replace parameters by those of worker root_rank, as byteps.mxnet.broadcast_parameters()."""
    group = group_of(process_set)
    bps.broadcast_parameters(params, root_of(root_rank, group), prefix or "", group)


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Return the object of worker root_rank on every worker. The others execute what unpickling its bytes means."""
    group = group_of(process_set)
    return bps.broadcast_object(obj, root_of(root_rank, group), name if group is None else None, group)


def allgather_object(obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """Return the objects of all workers, by rank. Each executes what unpickling their bytes means.

    Args:
        obj: anything that can be pickled.
        name: accepted; calls meet in their order.
        process_set: of the workers that take part.
    """
    del name
    return _objects.allgather_object(obj, group_of(process_set))
