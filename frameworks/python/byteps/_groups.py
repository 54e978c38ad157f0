# SPDX-License-Identifier: Apache-2.0
"""Process groups: subsets of the workers that run operations among themselves."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from . import _basics
from ._basics import Handle, after_reform, job_number, start
from ._errors import InvalidError
from ._native import bps as _bps

if TYPE_CHECKING:
    from typing import Iterable, SupportsIndex

__all__ = ["Group", "new_group"]

_reforms = 0


def _reformed():
    global _reforms
    _reforms += 1


after_reform.append(_reformed)


class Group:
    """Some of the workers, in an order that gives each of them a rank in the group. Made by new_group().

    Operations take it as their argument ``group``; they have no names then, and roots, sizes and splits count its
    members. All members call the operations of a group in the same order; those of different groups do not wait for
    each other. A group costs neither a connection nor a thread.

    Attributes:
        ranks: of its members in the job, in the order of the group.
    """

    def __init__(self, number: int, ranks: tuple[int, ...]) -> None:
        self._number = number
        self._life = job_number(), _reforms
        self.ranks = ranks

    def __repr__(self) -> str:
        return f"Group(ranks={list(self.ranks)})"

    def rank(self) -> int:
        """Return the rank of this worker in the group; -1: it is not a member."""
        own = _basics.rank()
        return self.ranks.index(own) if own in self.ranks else -1

    def size(self) -> int:
        """Return the number of its members."""
        return len(self.ranks)

    def worker(self, rank: int) -> int:
        """Return the rank in the job of a member."""
        return self.ranks[rank]

    def barrier(self) -> None:
        """Return when all members have called it."""
        Handle(start(_bps.barrier, number_of(self)), None).wait()

    def free(self) -> None:
        """End its use on this worker; operations in flight go on. Each worker frees it for itself, at any time."""
        if self.lives():
            _bps.group_free(self._number)

    def lives(self) -> bool:
        """Return whether the job in which it was made is still there, with the workers that it had then."""
        return self._life == (job_number(), _reforms)


class _All(Group):
    """All workers."""

    def __init__(self):
        super().__init__(0, ())

    def rank(self):
        return _basics.rank()

    def size(self):
        return _basics.size()

    def worker(self, rank):
        return rank

    def lives(self):
        return True


ALL = _All()


def party(group: Group | None) -> Group:
    """Return who takes part in an operation. Raise if this worker does not."""
    if group is None:
        return ALL
    if group.rank() < 0:
        raise InvalidError(f"worker {_basics.rank()} is not a member of {group}")
    return group


def number_of(group: Group | None) -> int:
    """Return what the extension takes for a group; None: all workers. Raise if it has ended."""
    if group is None:
        return 0
    if not group.lives():  # its number may be that of another one now
        raise InvalidError(f"{group} has ended with its job, or when that continued with other workers; make it again")
    return group._number


def check_root(root_rank: SupportsIndex, group: Group) -> int:
    """Return root_rank as an int, if the group has such a member."""
    root = operator.index(root_rank)
    if not 0 <= root < group.size():
        what = "a worker" if group is ALL else f"a member of {group}"
        raise InvalidError(f"root_rank={root_rank} is not the rank of {what}; expected 0..{group.size() - 1}")
    return root


def refuse_name(name: str | None) -> None:
    """Raise if an operation of a process group is given a name."""
    if name is not None:
        raise InvalidError(f"name={name!r}: an operation of a process group takes no name; leave it out")


def new_group(ranks: Iterable[SupportsIndex]) -> Group:
    """Make a process group of some of the workers.

    All workers of the job call this, members or not, in the same order and with the same ranks. It returns when all
    have. Groups end with the job; in an elastic one with each reform.

    Args:
        ranks: of the members in the job, each once, in the order of their ranks in the group.

    Raises:
        InvalidError: a rank is not a worker of the job, or is there twice.
        MismatchError: the workers make groups of other ranks. All of them get it.
    """
    members = tuple(operator.index(rank) for rank in ranks)
    if min(members, default=0) < 0:
        raise InvalidError(f"ranks={list(members)} of a process group; none can be below 0")
    _basics.barrier()  # here the wait can be interrupted
    return Group(start(_bps.group_new, members), members)
