# SPDX-License-Identifier: Apache-2.0
"""What arguments of Horovod's functions mean in all frameworks, and joining the job."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING

from byteps import _basics
from byteps._basics import choose_op
from byteps._groups import party
from byteps._horovod import Adasum

from . import process_sets as _sets

if TYPE_CHECKING:
    from typing import Any, Callable, Sequence, TypeVar

    from byteps._basics import ReduceOp
    from byteps._groups import Group

    from .process_sets import ProcessSet

    Function = TypeVar("Function", bound=Callable[..., Any])


def init(comm: object = None, process_sets: Sequence[ProcessSet] | str | None = None) -> None:
    """Join the job and wait until all its members are there, as bps.init().

    Args:
        comm: None or an empty list: all workers. Others are refused.
        process_sets: those that are there from the start, the same on all workers; further ones are added by
            add_process_set(), also without "dynamic".
    """
    if comm:
        raise NotImplementedError(f"init(comm={comm!r}): a job is made of all workers that byteps run starts")
    if isinstance(process_sets, str) and process_sets != "dynamic":
        raise ValueError(f"init(process_sets={process_sets!r}): expected a list of process sets, or 'dynamic'")
    begins = not _basics.is_initialized()
    _basics.init()
    if begins:
        _sets.forget()
        _sets.add_first(() if isinstance(process_sets, str) else process_sets or ())


def choose(average: bool | None, op: ReduceOp | None) -> ReduceOp:
    """Return the reduction that two arguments mean; Adasum is refused."""
    if op == Adasum:
        raise NotImplementedError(
            "op=Adasum: the servers of BytePS reduce element by element, and Adasum weighs whole gradients of pairs of "
            "workers by their scalar products; use op=Average, with the learning rate that belongs to it"
        )
    return choose_op(average, op)


def without_adasum(function: Function) -> Function:
    """Return a function of BytePS that refuses op=Adasum as all others of Horovod do."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*arguments, **keywords):
        if signature.bind(*arguments, **keywords).arguments.get("op") == Adasum:
            choose(None, Adasum)
        return function(*arguments, **keywords)

    return call


def of_process_sets(function: Function) -> Function:
    """Return a function of BytePS, which takes a process group, that takes a process set."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*arguments, **keywords):
        bound = signature.bind(*arguments, **keywords)
        group = _sets.group_of(bound.arguments.pop("process_set", None))
        if group is not None:
            bound.arguments["group"] = group
        return function(*bound.args, **bound.kwargs)

    return call


def named(kind: str, name: str | None, group: Group | None = None) -> str | None:
    """Return the name of a tensor for an operation of some kind: each kind has names of its own, and groups none."""
    return None if name is None or group is not None else f"{kind}.{name}"


def shares(rows: int, group: Group | None = None) -> list[int]:
    """Return how many rows of a reducescatter each worker gets: the first get one more, where some are left."""
    workers = party(group).size()
    each, more = divmod(rows, workers)
    return [each + (worker < more) for worker in range(workers)]


def root_of(root_rank: int, group: Group | None) -> int:
    """Return the rank in a group of a root that is given by its rank in the job."""
    if group is None:
        return root_rank
    if root_rank not in party(group).ranks:
        raise ValueError(f"root_rank={root_rank} is not in the process set of workers {list(group.ranks)}")
    return group.ranks.index(root_rank)
