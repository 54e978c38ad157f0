# SPDX-License-Identifier: Apache-2.0
"""What the workers tell each other in each round of a reducer: which gradients they have, and what they must agree in.

Each worker sends numbers and their negatives, and all get the maximum of each. So they know the largest and the
smallest number: where a number must be the same on all workers, these are. The numbers are a digest of the list of
parameters, how many steps the optimizer has made, and a state of each parameter.
"""

import hashlib

import torch

from byteps._basics import Handle, Max
from byteps._errors import MismatchError
from byteps._native import bps as _bps

from . import _memory

_MOST_URGENT = 2**31 - 1
_DIGEST = 4  # numbers of 16 bits
_FROZEN, _UNUSED, _USED = range(3)  # states of a parameter: without gradients for now, without one in this round, with


def digest_of(texts):
    """Return the digest of texts that must be the same on all workers."""
    return memoryview(hashlib.blake2b("\n".join(texts).encode(), digest_size=2 * _DIGEST).digest()).cast("H")


def _state(parameter):
    if parameter.grad is not None:
        return _USED
    return _UNUSED if parameter.requires_grad else _FROZEN


class Flags:
    """The flags of one round, in flight."""

    def __init__(self, name, digest, steps, parameters):
        """Send those of this worker under a name."""
        mine = [*digest, steps, *map(_state, parameters)]
        self._steps, self._count = steps, len(mine)
        flags = torch.tensor([*mine, *(-number for number in mine)], dtype=torch.int32, device="cpu")
        self.handle = Handle(_bps.push_pull(_memory.memory(flags), None, name, Max, _MOST_URGENT, 1.0, 1.0), flags)

    def wait(self, titles):
        """Return for each parameter, which has such a title, whether a worker has used it.

        MismatchError: the workers do not agree.
        """
        flags = self.handle.wait().tolist()
        most, least = flags[: self._count], [-number for number in flags[self._count :]]
        if most[:_DIGEST] != least[:_DIGEST]:
            ends = f", from {titles[0]!r} to {titles[-1]!r}" if titles else ""
            raise MismatchError(
                "the workers' lists of parameters differ in names, shapes, types, memory format or order; "
                f"this worker has {len(titles)}{ends}"
            )
        if most[_DIGEST] != least[_DIGEST]:
            raise MismatchError(
                f"the workers are not at the same step: some have made {least[_DIGEST]} steps of the optimizer, others "
                f"{most[_DIGEST]}, this one {self._steps}. A worker that leaves out a batch, as one whose loss is not "
                "finite, must make the step nevertheless, or all must leave it out"
            )
        del most[: _DIGEST + 1], least[: _DIGEST + 1]
        differ = [title for title, high, low in zip(titles, most, least) if low == _FROZEN != high]
        if differ:
            more = f" (and {len(differ) - 1} more)" if differ[1:] else ""
            raise MismatchError(
                f"parameter {differ[0]!r}{more} requires gradients on some workers and is frozen on others; freeze and "
                "unfreeze parameters at the same step on all of them"
            )
        return [state == _USED for state in most]
