# SPDX-License-Identifier: Apache-2.0
"""Training that goes on while workers come and go, under Horovod's names.

    @bps.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, epochs):
            for batch in loader:
                ...
                state.optimizer.step()
                state.sampler.record_batch(number, len(batch))
                state.check_host_updates()
            state.sampler.set_epoch(state.epoch + 1)

    train(bps.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0))

The job must be elastic: ``cluster.min_workers``. A step in which a worker is lost changes no parameter, and train() is
called again with the state as it is.
"""

from __future__ import annotations

import copy
import random
from typing import TYPE_CHECKING

import torch

from byteps._basics import rank, reform, size
from byteps.elastic import HorovodInternalError, HostsUpdatedInterrupt, ObjectState, State, run_fn

from .cross_barrier import _CrossBarrier
from .functions import broadcast_object, broadcast_optimizer_state, broadcast_parameters

if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Sized

    _Sampler = torch.utils.data.Sampler[int]
else:
    _Sampler = torch.utils.data.Sampler

__all__ = [
    "ElasticSampler",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "ObjectState",
    "State",
    "TorchState",
    "run",
]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate func(state, ...), which trains: it is called again when workers are lost or wait to join.

    Before each call all workers get the state of rank 0, so that newcomers begin where the others are. No worker may
    use an operation of all workers between init() and this.
    """
    return run_fn(func, reform)


class _Part:
    """Something with a state_dict: a scheduler of learning rates, a sampler, a GradScaler."""

    def __init__(self, value):
        self.replace(value)

    def replace(self, value):
        self.value = value
        self.save()

    def save(self):
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self):
        self.value.load_state_dict(copy.deepcopy(self._saved))

    def sync(self):
        self.value.load_state_dict(broadcast_object(self.value.state_dict()))


class _Model(_Part):
    def sync(self):
        broadcast_parameters(self.value.state_dict())


class _Optimizer(_Part):
    def replace(self, value):
        if isinstance(value, _CrossBarrier):
            raise ValueError(
                "CrossBarrier makes a step part by part, and a lost worker would leave half of one; use "
                "DistributedOptimizer"
            )
        super().replace(value)

    def sync(self):
        self.value.zero_grad()  # they are of a step that is not made
        broadcast_optimizer_state(self.value)


def _part_of(value):
    """Return what handles a value, None if it is a plain object."""
    if isinstance(value, torch.nn.Module):
        return _Model(value)
    if isinstance(value, torch.optim.Optimizer):
        return _Optimizer(value)
    return _Part(value) if hasattr(value, "state_dict") and hasattr(value, "load_state_dict") else None


class TorchState(ObjectState):
    """The state of a training: models, optimizers, what has a state_dict, and objects; each is an attribute."""

    def __init__(self, model: Any = None, optimizer: Any = None, **kwargs: Any) -> None:
        """Make a state of these attributes; all workers have the same ones."""
        kwargs.update(model=model, optimizer=optimizer)
        parts = {name: _part_of(kwargs[name]) for name in sorted(kwargs)}
        self._parts = {name: part for name, part in parts.items() if part is not None}
        objects = {name: value for name, value in kwargs.items() if name not in self._parts}
        for name, part in self._parts.items():
            object.__setattr__(self, name, part.value)
        super().__init__(broadcast_object, rank, **objects)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; what takes the place of a model or the like is saved."""
        if name in self.__dict__.get("_parts", ()):
            self._parts[name].replace(value)
        super().__setattr__(name, value)

    def save(self) -> None:
        """Keep a copy of all."""
        for part in self._parts.values():
            part.save()
        super().save()

    def restore(self) -> None:
        """Go back to the last copy."""
        for part in self._parts.values():
            part.restore()
        super().restore()

    def sync(self) -> None:
        """Take what rank 0 has."""
        for part in self._parts.values():
            part.sync()
        super().sync()


class ElasticSampler(_Sampler):
    """Deals the indices of a dataset out to the workers, and those that are left in an epoch to other workers.

    It has to be in the TorchState. Call record_batch() after each step, and set_epoch() at the end of each epoch. Some
    indices come twice where they cannot be dealt out evenly.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        """Deal out the indices of a dataset, in an order that depends on seed and epoch if it is shuffled."""
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begin another epoch."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Note that each worker is done with batch_size more indices; batch_idx is accepted for compatibility."""
        del batch_idx
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, int]:
        """Return how far it is."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Go on from there with the workers that there are now."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Deal out what is left of the epoch."""
        self.rank, self.num_replicas = rank(), size()
        indices = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(indices)
        self.remaining_indices = indices[self.processed_num :]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        """Return this worker's indices."""
        left = self.remaining_indices
        return iter([left[i % len(left)] for i in range(self.rank, self.total_size, self.num_replicas)])

    def __len__(self) -> int:
        """Return how many they are."""
        return self.num_samples
