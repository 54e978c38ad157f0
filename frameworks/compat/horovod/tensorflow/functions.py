# SPDX-License-Identifier: Apache-2.0
"""Bring all workers to one state, and objects from all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byteps import tensorflow as bps
from byteps._horovod import refuse_process_set
from byteps.tensorflow.functions import broadcast_object, broadcast_object_fn

from .. import _objects
from ..process_sets import global_process_set

if TYPE_CHECKING:
    from typing import Any, Iterable

    import tensorflow as tf

    from ..process_sets import ProcessSet

__all__ = ["allgather_object", "broadcast_object", "broadcast_object_fn", "broadcast_variables"]


def broadcast_variables(
    variables: Iterable[tf.Variable],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> tf.Operation | None:
    """Replace variables by those of worker root_rank, as byteps.tensorflow.broadcast_variables()."""
    return bps.broadcast_variables(variables, root_rank, process_set=process_set, inplace=inplace)


def allgather_object(
    obj: Any,
    session: tf.compat.v1.Session | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Return the objects of all workers, by rank. Each executes what unpickling their bytes means.

    Args:
        obj: anything that can be pickled.
        session, name: accepted; calls meet in their order, together with unnamed operations in eager mode.
        process_set: of all workers.
    """
    del session, name
    refuse_process_set(process_set)
    return _objects.allgather_object(obj)
