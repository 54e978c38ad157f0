# SPDX-License-Identifier: Apache-2.0
"""Asynchronous training: what the optimizers of all frameworks have in common.

The servers keep the parameters. A step changes those of this worker by what its own gradients say; the change is
pushed, and what the servers answer is where the worker goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._basics import Average, Sum, after_reform, choose_op, full_name, job_number
from ._native import bps as _bps

if TYPE_CHECKING:
    from typing import Collection

    from ._basics import ReduceOp

_MODE_ASYNC = 2  # enum bps_mode
_reforms = 0


def _reformed():
    global _reforms
    _reforms += 1


after_reform.append(_reformed)


class Values:
    """What an optimizer knows of the values that the servers keep: of which tensors it has had them set."""

    def __init__(self) -> None:
        """Make one that knows of none."""
        self._job: tuple[int, int] | None = None
        self._set: set[str] = set()

    def must_be_set(self, names: Collection[str]) -> bool:
        """Return whether a broadcast has to set the values of these tensors, which are declared then.

        So it is in a new job, and after reform().
        """
        job = (job_number(), _reforms)
        if self._job != job:
            self._job = job
            self._set.clear()
        if self._set.issuperset(names):
            return False
        _bps.declare([full_name(name) for name in names], None, _MODE_ASYNC)
        return True

    def have_been_set(self, names: Collection[str]) -> None:
        """Note that the broadcast has succeeded."""
        self._set.update(names)

    def __reduce__(self):
        """Copy and pickle none of it: what the servers keep belongs to the job."""
        return Values, ()

    def forget(self) -> None:
        """Have the next step set them anew; all workers must do so."""
        self._set.clear()


def refuse(what: str) -> None:
    """Raise ValueError for something that has no meaning without rounds."""
    raise ValueError(f"asynchronous training (worker.async, BYTEPS_ENABLE_ASYNC) {what}")


def check_arguments(compressed: bool, predivide: float, op: ReduceOp | None = None, passes: int = 1) -> None:
    """Refuse those of an optimizer that have no meaning without rounds.

    Args:
        compressed: whether gradients were to be compressed.
        predivide: gradient_predivide_factor.
        op: how they were to be reduced.
        passes: backward_passes_per_step.
    """
    if choose_op(None, op) not in (Average, Sum):
        refuse("adds changes of parameters: op has to be Average or Sum, which are the same there")
    if compressed:
        refuse("has no compression")
    if predivide != 1.0:
        refuse("has no gradient_predivide_factor")
    if passes != 1:
        refuse("has no backward_passes_per_step")
