# SPDX-License-Identifier: Apache-2.0
"""Tensors in memory that the workers of a host share, where they sum gradients without copying them.

Gradients get there by themselves. A block of shared memory has a place for each parameter. When autograd is
about to make ``parameter.grad``, a hook gives it a copy in that place instead, and autograd adds what further
backward passes compute to it there. A place is used again only when nobody holds what lies in it, so no
gradient changes under someone who has kept it; meanwhile gradients stay where autograd has computed them.

The copy pays if something is added to it: over several backward passes, or from step to step with
``zero_grad(set_to_none=False)``. Of a gradient that is dropped after each backward pass it would cost about
what it saves, so the hook gives its place up as soon as that happens. The block is freed with its last place.
"""

from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING, overload

import torch

from byteps._basics import shared_buffer
from byteps._native import bps as _bps

if TYPE_CHECKING:
    from typing import Any, Sequence

SMALL = 16 << 10  # bytes that a message between workers carries along; to copy them here saves nothing
_LINE = 64  # bytes of the cache


@overload
def empty(*size: int, dtype: torch.dtype | None = None) -> torch.Tensor: ...


@overload
def empty(size: Sequence[int], /, *, dtype: torch.dtype | None = None) -> torch.Tensor: ...


def empty(*size: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return a new CPU tensor in shared memory, where push_pull with workers of the same host is fastest.

    Use it for tensors that live long: each call takes a descriptor. The memory is freed with the last tensor
    in it, also after shutdown(). A forked child does not share it, and finds zeros. Where there is no such
    memory, it is an ordinary tensor.

    Args:
        size: as for torch.empty().
        dtype: of the elements; None: torch.get_default_dtype().
    """
    tensor = torch.empty(*size, dtype=dtype, device="cpu")
    buffer = shared_buffer(tensor.nbytes)
    return tensor if buffer is None else torch.frombuffer(buffer, dtype=tensor.dtype).view(tensor.shape)


def hook_gradients(parameters):
    """Bring the gradients of parameters into shared memory, where that is of use; return the hooks."""
    if _bps.group_size() == 1:
        return []
    chosen = [parameter for parameter in parameters if _is_eligible(parameter)]
    starts = [0, *itertools.accumulate(-(-p.nbytes // _LINE) * _LINE for p in chosen)]
    buffer = shared_buffer(starts[-1])
    if buffer is None:
        return []
    memory = memoryview(buffer)
    return [p.register_hook(_make_hook(p, memory[at : at + p.nbytes])) for p, at in zip(chosen, starts)]


def _is_eligible(parameter):
    return parameter.device.type == "cpu" and parameter.layout is torch.strided and parameter.nbytes > SMALL


def _make_hook(parameter, memory):
    """Return a hook that does not keep the parameter alive. It owns the place, and may give it up."""
    reference = weakref.ref(parameter)
    form = torch.empty_like(parameter, device="meta")
    tenant = None  # weak: a part of the buffer that lives as long as the storage of the gradient here
    added = True  # something, to the last gradient here

    @torch.utils.hooks.unserializable_hook  # a copy of the parameter does not need it
    def hook(gradient):
        nonlocal memory, tenant, added
        if reference().grad is not None:
            added = True
            return None
        if not added:
            memory = None
        taken = tenant is not None and tenant() is not None
        if memory is None or taken or torch.is_grad_enabled() or not _alike(gradient, form):
            return None
        view = memory[:]
        tenant, added = weakref.ref(view), False
        place = torch.frombuffer(view, dtype=form.dtype).as_strided(form.size(), form.stride())
        return place.copy_(gradient)

    return hook


def _alike(gradient, form):
    return (
        gradient.layout is torch.strided
        and gradient.device.type == "cpu"
        and gradient.dtype == form.dtype
        and gradient.shape == form.shape
    )
