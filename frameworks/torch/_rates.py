# SPDX-License-Identifier: Apache-2.0
"""The learning rate that goes with a gradient: what coding has lost is worth less after it has been raised."""

import weakref

import torch


def rates_of(optimizer, parameters):
    """Return a function that tells the learning rate of the parameter with an index, as it is now.

    It does not keep the optimizer alive, whose own it is. What has no learning rate has 0, which says that it is not
    known.
    """
    reference = weakref.ref(optimizer)
    groups = []  # the number of each parameter's group

    def rate(index):
        alive = reference()
        if alive is None:
            return 0.0
        if index >= len(groups):  # parameters have been added
            groups[:] = _group_numbers(alive, parameters)
        value = alive.param_groups[groups[index]].get("lr", 0.0)
        return value if type(value) is float else _number(value)

    return rate


def _group_numbers(optimizer, parameters):
    numbers = {p: number for number, group in enumerate(optimizer.param_groups) for p in group["params"]}
    return [numbers[parameter] for parameter in parameters]


def _number(value):
    """Return a learning rate as a number; 0 for one on a GPU, whose work to wait for would cost more than is won."""
    if isinstance(value, torch.Tensor) and value.device.type != "cpu":
        return 0.0
    return float(value)
