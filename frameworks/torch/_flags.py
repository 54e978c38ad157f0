# SPDX-License-Identifier: Apache-2.0
"""What the workers tell each other in each round of a reducer: which gradients they have, and what they must agree in.

Each worker sends numbers and their negatives, and all get the maximum of each. So they know the largest and the
smallest number: where a number must be the same on all workers, these are. The numbers are a digest of the list of
parameters, how many steps the optimizer has made, and a state of each parameter.
"""

import array
import hashlib

import torch

from byteps._basics import Handle, Max
from byteps._errors import MismatchError
from byteps._native import bps as _bps

from . import _memory

_MOST_URGENT = 2**31 - 1
_DIGEST = 4  # numbers of 16 bits

# What a worker says of a parameter: it has no gradients for now; its gradient is not sent, or only if another worker
# sends it; zeros are sent in its place; a gradient is sent, or rows of a sparse one.
FROZEN, UNSENT, ZEROS, SENT, ROWS = range(5)


def digest_of(texts):
    """Return the digest of texts that must be the same on all workers."""
    return memoryview(hashlib.blake2b("\n".join(texts).encode(), digest_size=2 * _DIGEST).digest()).cast("H")


class Flags:
    """The flags of one round, in flight."""

    def __init__(self, name, digest, steps, states, group=0):
        """Send those of this worker under a name, or in a group; states: of each parameter."""
        mine = [*digest, steps, *states]
        self._steps, self._count = steps, len(mine)
        numbers = array.array("i", [*mine, *(-number for number in mine)])  # much faster than torch.tensor()
        flags = torch.frombuffer(numbers, dtype=torch.int32)
        native = _bps.push_pull(_memory.memory(flags), None, name, Max, _MOST_URGENT, 1.0, 1.0, 0.0, group)
        self.handle = Handle(native, flags)

    def wait(self, titles):
        """Return the highest state of each parameter, which has such a title, on any worker.

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
                "finite, must make the step nevertheless, or all must leave it out; and in a step all call backward() "
                "equally often"
            )
        del most[: _DIGEST + 1], least[: _DIGEST + 1]
        differ = [title for title, high, low in zip(titles, most, least) if low == FROZEN != high]
        if differ:
            more = f" (and {len(differ) - 1} more)" if differ[1:] else ""
            raise MismatchError(
                f"parameter {differ[0]!r}{more} requires gradients on some workers and is frozen on others; freeze and "
                "unfreeze parameters at the same step on all of them"
            )
        return most
