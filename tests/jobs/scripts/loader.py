# SPDX-License-Identifier: Apache-2.0
"""A DataLoader with a forked worker beside the running job, which finds that it has nothing of the job."""

import os

import torch
from torch_device import DEVICE, IS_CUDA


def _open():
    """What this process has open, by name; without the descriptor of the listing itself."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            pass
    return found


_BEFORE = _open()
_OURS = ("/memfd:",) if IS_CUDA else ("socket:", "anon_inode:", "/memfd:")  # NVIDIA's driver has others, too


def mappings():
    """The lines of /proc/self/maps with memory of byteps."""
    with open("/proc/self/maps", encoding="utf-8") as file:
        return [line for line in file if "/memfd:byteps " in line]


def _has_nothing(number):
    left = [name for name in _open() - _BEFORE if name.startswith(_OURS)]
    assert not left, left
    assert not mappings(), mappings()
    assert len(os.listdir("/proc/self/task")) == 1


def loaded(items):
    """The same tensors from a DataLoader. Under sanitizers it has no worker: their locks do not bear forks."""
    workers = 0 if os.environ.get("SANITIZER") else 1
    loader = torch.utils.data.DataLoader(
        [item.cpu() for item in items],
        batch_size=None,
        num_workers=workers,
        multiprocessing_context="fork" if workers else None,
        worker_init_fn=_has_nothing,
    )
    return (item.to(DEVICE) for item in loader)
