# SPDX-License-Identifier: Apache-2.0
"""Messages to a rank of torch.distributed that receives from any.

A message meets the receive of the same two ranks, so that the receiver has to know whose is there. Who has sent one
that is not received at once says so in the group's store: how many messages he has sent by then. A receiver from any
rank looks there for one who has sent more than was received from him. Messages that are received cost nothing of this.
"""

from __future__ import annotations

import atexit
import collections
import json
import threading
import time
from typing import TYPE_CHECKING

from ._untraced import untraced
from ._work import Work

if TYPE_CHECKING:
    from typing import Any, Callable, Sequence

    from torch.distributed import Store

    from ._work import Patience, Tensors

PERIOD = 0.005  # seconds from a look to the next one, and until a message that is not received is announced


class Post:
    """What one rank of a group announces and reads, in a connection of its own to the group's store."""

    sent = collections.Counter()  # messages of this process, by rank in the job and tag
    received = collections.Counter()

    def __init__(self, store: Store, rank: int, ranks: list[int]) -> None:
        self._given, self._own, self._rank, self._ranks = store, None, rank, ranks
        self._told = collections.defaultdict(dict)  # by receiver: tag -> messages
        self._seen, self._known = b"", {}  # how often the others have announced; what, by sender

    def _store(self):
        if self._own is None:
            self._own = self._given.clone()
        return self._own

    def count_sent(self, to: int, tag: int) -> int:
        """Count a message to a rank of the group, and return its number."""
        key = self._ranks[to], tag
        Post.sent[key] += 1
        return Post.sent[key]

    def count_received(self, sender: int, tag: int) -> None:
        """Count a receive that has begun."""
        Post.received[self._ranks[sender], tag] += 1

    def announce(self, to: int, tag: int, number: int) -> None:
        """Say that a message is there which is not received."""
        self._told[to][str(tag)] = number
        self._store().set(f"byteps/sent/{to}/{self._rank}", json.dumps(self._told[to]))
        self._store().add(f"byteps/sent/{to}", 1)

    def find(self, tag: int) -> int | None:
        """Return a rank that has sent what is not received."""
        self._read()
        for sender, told in self._known.items():
            if told.get(str(tag), 0) > Post.received[self._ranks[sender], tag]:
                return sender
        return None

    def _read(self):
        store, counter = self._store(), f"byteps/sent/{self._rank}"
        if not store.check([counter]):
            return
        seen = store.get(counter)
        if seen == self._seen:
            return
        for sender in range(len(self._ranks)):
            key = f"{counter}/{sender}"
            if store.check([key]):
                self._known[sender] = json.loads(store.get(key))
        self._seen = seen


class _Clerk:
    """A thread that announces messages and begins receives from any rank: it sleeps while there are none."""

    def __init__(self):
        self._something = threading.Condition()
        self._sends, self._receives = collections.deque(), []
        self._thread = None
        self._over = False

    def _begin(self):
        if self._thread is None or not self._thread.is_alive():  # a forked child has none
            self._thread = threading.Thread(target=self._run, name="byteps-post", daemon=True)
            self._thread.start()
        self._something.notify()

    def watch(self, is_received: Callable[[], bool], announce: Callable[[], None]) -> None:
        """Announce a message that is not received soon."""
        with self._something:
            self._sends.append((time.monotonic() + PERIOD, is_received, announce))
            self._begin()

    def search(self, look: Callable[[], bool]) -> None:
        """Call a function again and again until it says that it has found a sender, or given up."""
        with self._something:
            self._receives.append(look)
            self._begin()

    def end(self):
        """End the thread, which must not be in C++ code while the interpreter ends."""
        with self._something:
            self._over = True
            self._something.notify()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(2)

    def _run(self):
        while not self._over:
            with self._something:
                while not (self._sends or self._receives or self._over):
                    self._something.wait()
                receives = list(self._receives)
            self._announce()
            for look in receives:
                if look():
                    with self._something:
                        self._receives.remove(look)
            time.sleep(PERIOD)

    def _announce(self):
        while self._sends and self._sends[0][0] <= time.monotonic():
            _, is_received, announce = self._sends.popleft()
            if not is_received():
                try:
                    announce()
                except RuntimeError:  # who has the store has left, and receives nothing
                    pass


clerk = _Clerk()
atexit.register(clerk.end)


@untraced
class FromAny(Work):
    """A receive from any rank, which begins when a sender is known."""

    def __init__(
        self,
        find: Callable[[], int | None],
        begin: Callable[[int], Sequence[Any]],
        result: Tensors,
        finish: Callable[[], None],
        patience: Patience | None,
    ) -> None:
        super().__init__((), result, finish, patience)
        self._find, self._begin = find, begin
        self._found, self._failure, self._sender = threading.Event(), None, -1
        clerk.search(self._look)

    def _look(self):
        if self._done:  # its time is over
            return True
        try:
            sender = self._find()
            if sender is None:
                return False
            self._handles, self._sender = self._begin(sender), sender
        except Exception as error:
            self._failure = error
        self._found.set()
        return True

    def _await(self, until):
        if not self._sleep(self._found.wait, until):
            return False
        if self._failure is not None:
            raise self._failure
        return super()._await(until)

    def is_completed(self) -> bool:
        return self._done or (self._found.is_set() and super().is_completed())

    def source_rank(self) -> int:
        return self._sender

    _source_rank = source_rank
