# SPDX-License-Identifier: Apache-2.0
"""A storage gives its memory back only when no operation in flight uses it.

FSDP and others free the memory of tensors that they still hold, with ``tensor.untyped_storage().resize_(0)``, which
nobody else can see or prevent. So these methods wait first for the operations that read or write this memory.
"""

import functools

import torch

from byteps._native import bps as _bps


def _wait_first(method):
    @functools.wraps(method)
    def when_unused(storage, *arguments, **options):
        _bps.wait_memory(storage)
        return method(storage, *arguments, **options)

    return when_unused


def free_after_operations():
    """Let the methods that give the memory of a storage back wait first."""
    for name in ("resize_", "share_memory_"):
        setattr(torch.UntypedStorage, name, _wait_first(getattr(torch.UntypedStorage, name)))
