# SPDX-License-Identifier: Apache-2.0
"""Bring all workers to one state, and objects from all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import tensorflow as tf

from byteps import tensorflow as bps

from .. import _objects
from .._arguments import root_of
from ..process_sets import global_process_set, group_of

if TYPE_CHECKING:
    from typing import Any, Callable, Iterable

    from ..process_sets import ProcessSet

T = TypeVar("T")

__all__ = ["allgather_object", "broadcast_object", "broadcast_object_fn", "broadcast_variables"]


def broadcast_variables(
    variables: Iterable[tf.Variable],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> tf.Operation | None:
    """Replace variables by those of worker root_rank, as byteps.tensorflow.broadcast_variables()."""
    group = group_of(process_set)
    return bps.broadcast_variables(variables, root_of(root_rank, group), inplace=inplace, group=group)


def broadcast_object(
    obj: T,
    root_rank: int = 0,
    session: tf.compat.v1.Session | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> T:
    """Return the object of worker root_rank on every worker. The others execute what unpickling its bytes means."""
    group = group_of(process_set)
    return bps.broadcast_object(obj, root_of(root_rank, group), session, name if group is None else None, group=group)


def broadcast_object_fn(
    root_rank: int = 0,
    session: tf.compat.v1.Session | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[T], T]:
    """Return a function of one object that is broadcast_object() with the other arguments."""
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


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
        process_set: of the workers that take part.
    """
    del session, name
    return _objects.allgather_object(obj, group_of(process_set))
