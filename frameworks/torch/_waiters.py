# SPDX-License-Identifier: Apache-2.0
"""Who waits for the others of a group of torch.distributed: what the error of a time-out says of the missing ones."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed import Store


class Waiters:
    """The ranks that wait long, as they tell each other by the group's store. The rest of the time it costs nothing."""

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self._given, self._own, self._rank, self._size = store, None, rank, size

    def _store(self):
        """Return a connection of our own: what others wait for in theirs must not hold up a time-out."""
        if self._own is None:
            self._own = self._given.clone()
        return self._own

    def tell(self, number: int) -> None:
        """Tell the others that this rank waits in the operation of this number."""
        with contextlib.suppress(RuntimeError):  # the process that has the store may have ended
            self._store().set(f"byteps/waits/{self._rank}", str(number))

    def missing(self, number: int) -> list[int]:
        """Return the ranks that are not known to wait in it, or in a later one."""
        ranks = []
        with contextlib.suppress(RuntimeError):
            for rank in set(range(self._size)) - {self._rank}:
                key = f"byteps/waits/{rank}"
                if not self._store().check([key]) or int(self._store().get(key)) < number:
                    ranks.append(rank)
            return ranks
        return []
