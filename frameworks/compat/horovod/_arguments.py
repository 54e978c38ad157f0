# SPDX-License-Identifier: Apache-2.0
"""What arguments of Horovod's functions mean in all frameworks, and joining the job."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING

from byteps import _basics
from byteps._basics import choose_op, size
from byteps._horovod import Adasum, refuse_process_set

if TYPE_CHECKING:
    from typing import Any, Callable, Sequence, TypeVar

    from byteps._basics import ReduceOp

    Function = TypeVar("Function", bound=Callable[..., Any])


def check_comm(comm: object) -> None:
    """Refuse an argument of init() that means other workers than all."""
    if comm:
        raise NotImplementedError(f"init(comm={comm!r}): a job is made of all workers that byteps run starts")


def init(comm: object = None, process_sets: Sequence[object] | str | None = None) -> None:
    """Join the job and wait until all its members are there, as bps.init().

    Args:
        comm: None or an empty list: all workers. Others are refused.
        process_sets: None, an empty list or "dynamic": there are no others yet.
    """
    check_comm(comm)
    if process_sets and process_sets != "dynamic":
        refuse_process_set(process_sets)
    _basics.init()


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


def named(kind: str, name: str | None) -> str | None:
    """Return the name of a tensor for an operation of some kind: each kind has names of its own."""
    return None if name is None else f"{kind}.{name}"


def shares(rows: int) -> list[int]:
    """Return how many rows of a reducescatter each worker gets: the first get one more, where some are left."""
    each, more = divmod(rows, size())
    return [each + (worker < more) for worker in range(size())]
