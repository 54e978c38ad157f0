# SPDX-License-Identifier: Apache-2.0
"""Names of tensors for what has none that is the same on all workers, such as the variables of a model."""

from __future__ import annotations

import weakref

from ._basics import job_number

_owners: dict[str, Owners] = {}  # name of a tensor -> Owners in the job
_owners_job = 0


class Owners:
    """What has one name: numbered from 0. Of what is gone nothing is left, but no number is given again."""

    def __init__(self):
        self._count = 0
        self._numbers = {}  # id of what is alive -> (weak reference, number)

    def number(self, owner):
        """Return the number of an owner, a new one if it has none yet."""
        key = id(owner)
        known = self._numbers.get(key)
        if known is None or known[0]() is not owner:
            known = self._numbers[key] = (weakref.ref(owner, self._forgetter(key)), self._count)
            self._count += 1
        return known[1]

    def _forgetter(self, key):
        def forget(reference):
            if key in self._numbers and self._numbers[key][0] is reference:
                del self._numbers[key]

        return forget


def unique_name(name: str, owner: object) -> str:
    """Return a name that nothing else in this job has: two models may use the same names.

    Owners of one name are numbered from 0 in each job, by the order in which they ask. That order is the same
    on all workers, also where some of them have had other owners in a job before.
    """
    global _owners_job
    if _owners_job != job_number():
        _owners_job = job_number()
        _owners.clear()
    if name not in _owners:
        _owners[name] = Owners()
    number = _owners[name].number(owner)
    return name if number == 0 else f"{name}#{number}"
