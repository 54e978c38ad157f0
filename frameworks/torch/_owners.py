# SPDX-License-Identifier: Apache-2.0
"""A parameter has one reducer: two of them would send the same gradient, in place and at the same time."""

import gc

import torch

_TWICE = (
    "its gradient would be reduced twice, at the same time and in the same memory. Use one of the two. To go on with "
    "a new one, first delete the other and what refers to it, such as a learning-rate scheduler; of a CrossBarrier, "
    "after its synchronize()"
)


def check(reducer, named, alive):
    """Raise ValueError if a parameter of [(name, parameter)] has another reducer, or PyTorch's own wrapper."""
    found = _find(reducer, named, alive)
    if found is not None:
        gc.collect()  # it may be gone, but in a circle of references, as of an optimizer and its scheduler
        found = _find(reducer, named, alive)
    if found is not None:
        name, title = found
        raise ValueError(
            f"parameter {name!r} belongs to another optimizer or module that BytePS has wrapped, which calls it "
            f"{title!r}: {_TWICE}"
        )
    check_torch(named)


def _find(reducer, named, alive):
    """Return the name of a parameter that another reducer has, and its name there; None: there is none."""
    for other in alive:
        if other is not reducer:
            for name, parameter in named:
                title = other.title(parameter)
                if title is not None:
                    return name, title
    return None


def check_torch(named):
    """Raise ValueError if a torch.nn.parallel.DistributedDataParallel has one of these parameters."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return  # there can be none
    for wrapper in _torch_wrappers():
        held = set(wrapper.module.parameters())
        for name, parameter in named:
            if parameter in held:
                raise ValueError(
                    f"parameter {name!r} is in a torch.nn.parallel.DistributedDataParallel, which reduces its "
                    "gradient, too. Leave that wrapper out; or leave this one out, and give that one "
                    "byteps.torch.ddp_hook.push_pull_hook"
                )


def _torch_wrappers():
    kind = torch.nn.parallel.DistributedDataParallel
    return [thing for thing in gc.get_objects() if issubclass(type(thing), kind)]
