# SPDX-License-Identifier: Apache-2.0
"""The names that gradients have in a job, and how what is pushed under them is coded on the network.

Optimizers of the same parameters share their names, if they want them coded alike. The core forgets a name, and with
it how it is coded, when the last one that uses it is gone.
"""

import collections
import contextlib
import gc
import threading

import torch

from byteps._basics import job_number
from byteps._errors import ConfigurationError, InvalidError, MismatchError, NotInitializedError
from byteps._names import unique_name
from byteps._native import bps as _bps

_CODED = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))


class _Users:
    """How many use each name, and whether they have said how it is coded."""

    def __init__(self):
        self._lock = threading.Lock()
        self._job = 0
        self._known = {}  # name -> [users, whether its coding was said]
        self._left = collections.deque()  # (job, names)

    def add(self, names, said):
        """Count a user of names in this job; MismatchError: for others the configuration says how they are coded."""
        with self._lock:
            if self._job != job_number():
                self._job = job_number()
                self._known.clear()
            for name in names:
                if self._known.get(name, (0, said))[1] != said:
                    raise MismatchError(
                        f"'{name}' has another compression for an optimizer that still exists; delete that one first"
                    )
            if self._job > 1 and not said:  # resume() has declared what had these names before, as it was coded then
                _bps.forget([name for name in names if name not in self._known])
            for name in names:
                self._known.setdefault(name, [0, said])[0] += 1
        self._forget()

    def remove(self, job, names):
        """Count a user less. Any thread may get here at any place, even within add(), when garbage is collected."""
        self._left.append((job, names))
        self._forget()

    def _forget(self):
        while self._left and self._lock.acquire(blocking=False):  # who has it looks again when it is free
            try:
                while self._left:
                    self._forget_some(*self._left.popleft())
            finally:
                self._lock.release()

    def _forget_some(self, job, names):
        if job != job_number() or job != self._job:
            return  # in a later job they may be those of others
        unused = []
        for name in names:
            known = self._known[name]
            known[0] -= 1
            if known[0] == 0:
                del self._known[name]
                unused.append(name)
        with contextlib.suppress(NotInitializedError):
            _bps.forget(unused)


_users = _Users()


class GradientNames:
    """The names of a reducer's tensors in the job in which they were taken last.

    Attributes:
        coding: how those of the gradients of floating types are coded; None: as configured.
        gradients: the name under which each gradient is sent, that of its bucket.
    """

    def __init__(self, coding):
        self.coding = coding
        self.gradients = []
        self.flags = None
        self._job = 0

    def are_current(self):
        """Return whether they were taken in this job."""
        return self._job == job_number()

    def take(self, reducer, titled, buckets):
        """Name the flags, and the buckets of the gradients of [(title, parameter)]; what has a name keeps it."""
        if not self.are_current():
            self.gradients = []
            self.flags = unique_name("byteps.Touched (which gradients the workers have)", reducer)
            self._job = job_number()
            _users.add([self.flags], False)
            _bps.declare([self.flags])
        old = len(self.gradients)
        new = [_named(bucket, titled) for bucket in dict.fromkeys(buckets[old:])]
        try:
            self._declare(new)
        except MismatchError:
            gc.collect()  # what has them coded otherwise may be gone, but in a circle of references
            self._declare(new)

    def _declare(self, new):
        coded = [name for name, dtype, _ in new if dtype in _CODED and self.coding is not None]
        others = [name for name, dtype, _ in new if dtype not in _CODED or self.coding is None]
        taken = []
        try:
            for names, coding in ((coded, self.coding), (others, None)):
                _users.add(names, coding is not None)
                taken += names
                _bps.declare(names, coding)
        except ConfigurationError as error:
            _users.remove(self._job, taken)
            raise InvalidError(f"compression: {error}") from None
        except BaseException:
            _users.remove(self._job, taken)
            raise
        self.gradients += [name for name, _, count in new for _ in range(count)]

    def give_back(self):
        """Forget them, if nothing else uses them."""
        if self.are_current():
            _users.remove(self._job, [*dict.fromkeys(self.gradients), self.flags])


class NoNames:
    """Those of a reducer in a process group: its operations have none, and meet in their order."""

    coding = flags = None

    def __init__(self):
        self.gradients = []
        self._job = 0

    def are_current(self):
        """Return whether they are of this job."""
        return self._job == job_number()

    def take(self, reducer, titled, buckets):
        """Count the gradients of [(title, parameter)]."""
        del reducer, buckets
        self._job = job_number()
        self.gradients = [None] * len(titled)

    def give_back(self):
        """Do nothing: the job does not know them."""


def _named(bucket, titled):
    """Return a bucket's name, the type of its elements, and how many gradients it has; titled: [(title, parameter)]."""
    (first, owner), (last, _) = titled[bucket.members[0]], titled[bucket.members[-1]]
    title = first if first == last else f"{first} to {last}"
    return unique_name(f"byteps.Gradient.{title}", owner), owner.dtype, len(bucket.members)
