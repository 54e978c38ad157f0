# SPDX-License-Identifier: Apache-2.0
"""Process sets: subsets of the workers that run operations among themselves. Each is a process group of BytePS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byteps import _basics
from byteps._basics import after_reform
from byteps._errors import InvalidError
from byteps._groups import new_group

if TYPE_CHECKING:
    from typing import Iterable, Sequence

    from byteps._groups import Group


class ProcessSet:
    """Some of the workers, sorted by their ranks. It takes part in nothing before init() or add_process_set() has it.

    Attributes:
        process_set_id: its number, the same on all workers; None: it is not there, or not any more.
        ranks: of its workers in the job; None: it has been removed.
    """

    process_set_id: int | None = None
    ranks: list[int] | None = None

    def __init__(self, ranks_or_comm: Iterable[int]) -> None:
        """Make one of workers with these ranks; communicators of MPI are refused."""
        if not hasattr(ranks_or_comm, "__iter__"):
            raise ValueError(f"ProcessSet({ranks_or_comm!r}): expected a list of ranks; BytePS does not use MPI")
        ranks = list(ranks_or_comm)
        if not ranks or any(type(rank) is not int or rank < 0 for rank in ranks) or len(set(ranks)) < len(ranks):
            raise ValueError(f"ProcessSet({ranks!r}): expected ranks of workers, from 0 on, each once")
        self.ranks = sorted(ranks)
        self._group: Group | None = None

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"

    def size(self) -> int | None:
        """Return how many workers are in it, None before it is there."""
        return None if self.process_set_id is None else len(self._members())

    def rank(self) -> int | None:
        """Return this worker's number in it, None before it is there. ValueError: this worker is not in it."""
        if self.process_set_id is None:
            return None
        if not self.included():
            raise ValueError(f"worker {_basics.rank()} is not in {self}")
        return self._members().index(_basics.rank())

    def included(self) -> bool | None:
        """Return whether this worker is in it, None before it is there."""
        return None if self.process_set_id is None else _basics.rank() in self._members()

    def _members(self):
        return self.ranks


class _All(ProcessSet):
    process_set_id = 0
    _group = None

    def __init__(self):
        """Make the set of all workers."""

    @property
    def ranks(self):
        return self._members()

    def _members(self):
        return list(range(_basics.size()))


global_process_set: ProcessSet = _All()

_sets: dict[int, ProcessSet] = {}  # by their numbers, but that of all workers
_made = 0  # sets so far in this job


def group_of(process_set: ProcessSet | None) -> Group | None:
    """Return the process group of a set, None for all workers. InvalidError: the set is not there."""
    if process_set is None or process_set is global_process_set or process_set == 0:
        return None
    if not isinstance(process_set, ProcessSet):
        raise InvalidError(f"process_set={process_set!r}: expected what hvd.add_process_set() returns")
    if process_set.process_set_id is None:
        raise InvalidError(
            f"{process_set} is not registered, or was removed: pass it to hvd.init() or hvd.add_process_set() first, "
            "on all workers"
        )
    return process_set._group


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Add a process set, and return it; all workers, in it or not, do so in the same order.

    Args:
        process_set: one that is not there yet, or the ranks of its workers.

    Raises:
        ValueError: there is one of the same ranks, that of all workers among them.
        InvalidError: a rank is not a worker of the job.
        MismatchError: workers add sets of other ranks. All of them get it.
    """
    global _made
    new = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    if new.ranks is None:
        raise ValueError(f"{new} has been removed; make a new one")
    for known in process_sets():
        if known.ranks == new.ranks:
            raise ValueError(f"a process set of the same ranks exists already: {known}")
    new._group = new_group(new.ranks)
    _made += 1
    new.process_set_id = _made
    _sets[_made] = new
    return new


def add_first(process_sets: Iterable[ProcessSet | Sequence[int]]) -> None:
    """Add those that init() has got; one of all workers is another name of global_process_set."""
    for each in process_sets:
        new = each if isinstance(each, ProcessSet) else ProcessSet(each)
        if new.ranks == global_process_set.ranks:
            new.process_set_id = 0
        else:
            add_process_set(new)


def remove_process_set(process_set: ProcessSet) -> bool:
    """Remove a process set; return whether it was there. That of all workers stays. Operations in flight go on."""
    group = group_of(process_set)
    if group is None:
        return False
    del _sets[process_set.process_set_id or 0]
    group.free()
    process_set.process_set_id = process_set.ranks = process_set._group = None
    return True


def process_set_by_id(process_set_id: int) -> ProcessSet:
    """Return the process set that has a number."""
    if process_set_id == 0:
        return global_process_set
    if process_set_id not in _sets:
        raise ValueError(f"there is no process set with the id {process_set_id}")
    return _sets[process_set_id]


def process_sets() -> list[ProcessSet]:
    """Return all process sets, by their numbers."""
    return [global_process_set, *_sets.values()]


def forget() -> None:
    """Forget the sets of a job that has ended, or goes on with other workers. They may be added anew."""
    global _made
    for each in _sets.values():
        each.process_set_id = each._group = None
    _sets.clear()
    _made = 0


after_reform.append(forget)
