# SPDX-License-Identifier: Apache-2.0
"""Process sets: there is the one of all workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byteps import _basics
from byteps._horovod import refuse_process_set

if TYPE_CHECKING:
    from typing import NoReturn

REFUSED = (
    "{}: the only process set is global_process_set, of all workers; instead: new_group() and group= of byteps.torch, "
    "which has process groups"
)


class ProcessSet:
    """Some of the workers; here only all of them, which global_process_set is."""

    process_set_id: int | None = None

    def __init__(self, ranks_or_comm: object) -> None:
        """Refuse it."""
        raise NotImplementedError(REFUSED.format(f"ProcessSet({ranks_or_comm})"))

    def size(self) -> int:
        """Return how many workers are in it."""
        return _basics.size()

    def rank(self) -> int:
        """Return this worker's number in it."""
        return _basics.rank()

    def included(self) -> bool:
        """Return whether this worker is in it."""
        return True

    @property
    def ranks(self) -> list[int]:
        """The workers that are in it."""
        return list(range(_basics.size()))


class _All(ProcessSet):
    process_set_id = 0

    def __init__(self):
        """Make the set of all workers."""


global_process_set: ProcessSet = _All()


def check_all(process_set: ProcessSet | None) -> None:
    """Raise NotImplementedError unless an argument means all workers."""
    refuse_process_set(process_set)


def add_process_set(process_set: object) -> NoReturn:
    """Refuse it."""
    raise NotImplementedError(REFUSED.format(f"add_process_set({process_set})"))


def remove_process_set(process_set: object) -> NoReturn:
    """Refuse it."""
    raise NotImplementedError(REFUSED.format(f"remove_process_set({process_set})"))
