# SPDX-License-Identifier: Apache-2.0
"""A KVStore for gluon.Trainer: its sums over all workers are push_pulls."""

from __future__ import annotations

import ctypes
from typing import Any, Iterable, List, Mapping, Sequence, Union

import mxnet as mx
from mxnet.base import _LIB, check_call
from mxnet.kvstore import KVStoreBase

from byteps._basics import Max, ReduceOp, Sum, rank, size
from byteps._coded_names import coding_of, declare_coded
from byteps._names import unique_name

from ._devices import spread, sum_of
from ._rows import Journey, is_rows
from .compression import from_parameters
from .ops import broadcast_inplace, push_pull_inplace

Key = Union[int, str]
Arrays = Union[mx.nd.NDArray, List[mx.nd.NDArray]]
"""One, or one for each device."""


class BytePS(KVStoreBase):
    """A store that stores nothing: what all workers push is summed, and all get the sum.

    ``gluon.Trainer(..., kvstore="dist_byteps")`` uses it; as with MXNet's own stores for several workers,
    ``trainer.step()`` takes the batch size of all of them. Every worker's backward() makes every gradient anew:
    workers that leave out different ones would train different models, and only DistributedTrainer agrees about that.

    Attributes:
        learning_rate: that goes along with gradients, for what coding has lost of them; 0: it is not known.
        compression: how gradients travel, see set_gradient_compression().
    """

    def __init__(
        self,
        root_rank: int = 0,
        op: ReduceOp = Sum,
        *,
        takes_stale: bool = False,
        scales: tuple[float, float] = (1.0, 1.0),
    ) -> None:
        """Make a store.

        Args:
            root_rank: the worker whose parameters all begin with.
            op: how values are reduced.
            takes_stale: whoever pushes gradients sees to those that backward() has not made anew.
            scales: the factors before and after the reduction.
        """
        self._scales = scales
        self._root, self._op, self._takes_stale = root_rank, op, takes_stale
        self._weights = {}  # by key: the arrays that gradients of this key are for
        self.compression = from_parameters(None)
        self.learning_rate = 0.0

    def _name(self, kind, key):
        return f"{unique_name('KVStore', self)}.{kind}.{key}"

    def broadcast(self, key: Key, value: mx.nd.NDArray, out: Arrays, priority: int = 0) -> None:
        """Copy the value of worker root_rank into out, an array or a list of them.

        It has ended when this returns, as everything depends on it.
        """
        targets = out if isinstance(out, (list, tuple)) else [out]
        self._weights[key] = targets
        if targets[0] is not value:
            value.copyto(targets[0])
        broadcast_inplace(targets[0], self._root, self._name("parameter", key), priority).wait_to_read()
        spread(targets)

    def pushpull(self, key: Key, value: Arrays, out: Arrays | None = None, priority: int = 0) -> None:
        """Reduce value, an array or one for each device, over devices and workers, into out or in place.

        Raises:
            RuntimeError: it is a gradient that backward() has not made since the last step.
        """
        values = value if isinstance(value, (list, tuple)) else [value]
        self._refuse_stale(key, values)
        targets = values if out is None else out if isinstance(out, (list, tuple)) else [out]
        if is_rows(values[0]):
            self.start_rows(key, values, targets, priority).wait_to_read()
            return
        total = values[0] if len(values) == 1 and out is None else sum_of(values, targets[0])
        small, context = self.compression.compress(total)
        name = self._name("gradient", key)
        declare_coded([name], coding_of(self.compression))
        push_pull_inplace(small, None, name, priority, self._op, *self._scales, self.learning_rate)
        result = self.compression.decompress(small, context)
        for target in targets:
            if target is not result:
                result.copyto(target)

    def start_rows(self, key: Key, values: list, targets: list, priority: int = 0) -> Journey:
        """Start a pushpull() of row-sparse arrays; wait_to_read() of what is returned ends it."""
        name = self._name("gradient", key)
        return Journey(values, targets, name, self._op, priority, self._scales, self.compression)

    def _refuse_stale(self, key, gradients):
        if self._takes_stale:
            return
        for weight, gradient in zip(self._weights.get(key, ()), gradients):
            if not weight._fresh_grad and weight.grad is not None and _address(weight.grad) == _address(gradient):
                raise RuntimeError(
                    f"backward() has not made the gradient of parameter {key} since this worker's last step, and other "
                    "workers may have made theirs: use byteps.mxnet.DistributedTrainer(params, optimizer), which "
                    "agrees about that (its step() takes this worker's batch size), or use all parameters in each loss"
                )

    def any_worker(self, key: Key, flags: Sequence[bool]) -> Sequence[bool]:
        """Return for each of some flags, as many on all workers, whether it is True on one of them."""
        if not flags:
            return []
        flags = mx.nd.array(flags, dtype="uint8")
        return push_pull_inplace(flags, None, self._name("flags", key), op=Max).asnumpy() > 0

    def set_gradient_compression(self, compression_params: Mapping[str, Any] | None) -> None:
        """Send gradients in the way that compression_params of DistributedTrainer say.

        Momentum is given with the factor "mu", and the optimizer must have none then.
        """
        self.compression = from_parameters(compression_params)

    def declare_gradients(self, keys: Iterable[Key]) -> None:
        """Declare the gradients of some keys at once, which else the first pushpull() of each one does."""
        names = [self._name("gradient", key) for key in keys]
        declare_coded(names, coding_of(self.compression))

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Return False: the optimizer runs on the workers."""
        del capability
        return False

    @property
    def type(self) -> str:
        """Return "byteps"."""
        return "byteps"

    @property
    def rank(self) -> int:
        """Return this worker's number."""
        return rank()

    @property
    def num_workers(self) -> int:
        """Return the number of workers."""
        return size()


def _address(array):
    data = ctypes.c_void_p()
    check_call(_LIB.MXNDArrayGetData(array.handle, ctypes.byref(data)))
    return data.value


# A trainer with one device ignores stores whose names do not contain "dist".
KVStoreBase.kv_registry["dist_byteps"] = BytePS
