# SPDX-License-Identifier: Apache-2.0
"""The arrays that a tensor has on several devices of a worker: their sum, and copies of one."""


def sum_of(values, target):
    """Return the sum of arrays of several devices, on the device of the first."""
    total = values[0].copyto(target.context)
    for value in values[1:]:
        total += value.as_in_context(total.context)
    return total


def spread(targets):
    """Copy the first of some arrays to the others."""
    for target in targets[1:]:
        targets[0].copyto(target)
