# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel: a module whose gradients are reduced over all workers at the end of backward()."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING

import torch

from byteps._basics import Average, end_step
from byteps._groups import Group

from .._reducer import Reducer, may_train
from ..compression import Compression
from ..functions import broadcast_parameters
from ..ops import broadcast_async_, wait_all

if TYPE_CHECKING:
    from typing import Any, Iterator, Sequence, Union

    from ..compression import Choice

    Device = Union[int, str, torch.device]


def _tensors(value):
    """Yield the tensors in the output of a module."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif hasattr(value, "__dataclass_fields__"):
        yield from _tensors(vars(value))


class DistributedDataParallel(torch.nn.Module):
    """Wraps a module so that backward() leaves the same averaged gradients on every worker.

    Construction broadcasts parameters and buffers of worker 0. Each gradient is sent as soon as autograd
    has finished it; backward() returns when all have been reduced. Parameters that only some workers have
    used get zeros from the others; those that nobody has used keep grad None. A parameter that is frozen is left out
    until it is unfrozen, at the same step on all workers. All workers must run the same
    number of backward passes. Several instances may live in one process, if all workers make them in the
    same order, and use them first in that order after resume().

    Attributes:
        module: the wrapped module.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        device_ids: Sequence[Device] | None = None,
        broadcast_buffers: bool = True,
        compression: Choice = Compression.none,
        *,
        output_device: Device | None = None,
        dim: int = 0,
        init_sync: bool = True,
        process_group: Group | None = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        mixed_precision: None = None,
        device_mesh: None = None,
    ) -> None:
        """Wrap a module.

        Args:
            module: a module on the CPU or on one CUDA device.
            device_ids: None, or the CUDA device that the module is on; accepted for compatibility. It has
                no effect on a module on the CPU; a warning reports it.
            broadcast_buffers: bring the buffers of worker 0, such as the statistics of batch normalisation,
                to all before each forward pass in training.
            compression: as for DistributedOptimizer. There is no learning rate here: what error feedback keeps is
                added as it is; and that momentum is not in both, this and the optimizer, is for you to see.
            init_sync: bring parameters and buffers of worker 0 to all now.
            output_device, dim, bucket_cap_mb, find_unused_parameters, check_reduction, gradient_as_bucket_view,
                static_graph: accepted, as programs for PyTorch's class have them, and without effect: there is one
                device, what travels together is chosen here, and which parameters are used may change with each step.
            process_group: of the workers that take part, as new_group() returns it; the first of them is worker 0.
                Gradients are sent when backward() has ended then. None: all. Those of torch.distributed are refused.
            mixed_precision, device_mesh: PyTorch's own means, which only None leaves to BytePS.

        Raises:
            ValueError: a device, or an argument, that makes no sense here; or a parameter has another optimizer or
                module around it that reduces its gradient.
        """
        super().__init__()
        del output_device, dim, bucket_cap_mb, find_unused_parameters, check_reduction, gradient_as_bucket_view
        del static_graph
        _check_devices(module, device_ids)
        group = process_group if isinstance(process_group, Group) else None
        _check_none(process_group=None if group else process_group)
        _check_none(mixed_precision=mixed_precision, device_mesh=device_mesh)
        self.module = module
        self.broadcast_buffers = broadcast_buffers
        self._queued = False
        named = [(name, p) for name, p in module.named_parameters() if may_train(p)]
        if init_sync:
            broadcast_parameters(module.state_dict(), group=group)
        self._group = group
        self._reducer = Reducer(named, compression, Average, group=group)
        self._reducer.on_gradient = self._on_gradient

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        """Run the wrapped module."""
        if (
            self._queued and torch._C._current_graph_task_id() == -1
        ):  # the last backward() ended by an exception
            self._queued = False
            self._reducer.forget()
        synchronizing = torch.is_grad_enabled() and not self._reducer.paused
        if self.broadcast_buffers and self.training and synchronizing:
            self._broadcast_buffers()
        output = self.module(*inputs, **keywords)
        if synchronizing and any(p.requires_grad for p in self._reducer.parameters):
            for tensor in _tensors(output):
                if tensor.requires_grad:
                    tensor.register_hook(self._on_backward)
        return output

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Return a context in which gradients add up locally; the next backward pass reduces them."""
        before = self._reducer.paused
        self._reducer.paused = True
        try:
            yield
        finally:
            self._reducer.paused = before

    def synchronize(self) -> None:
        """Wait until the gradients have been reduced. backward() does it automatically."""
        if self._queued:
            self._finish()

    def _broadcast_buffers(self):
        buffers = self.module.named_buffers()
        group = self._group
        wait_all([broadcast_async_(b, 0, None if group else f"Buffer.{name}", group=group) for name, b in buffers])

    # The end of backward() is a callback of the autograd engine. It has to be queued from the outermost
    # pass, which begins at the output; a gradient may also come from a pass inside it, such as that of a
    # checkpoint.

    def _on_backward(self, gradient):
        self._queue()

    def _on_gradient(self, index):
        self._queue()

    def _queue(self):
        if not self._queued and not self._reducer.paused:
            self._queued = True
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)

    def _finish(self):
        if self._queued:
            self._queued = False
            self._reducer.finish()
            end_step(self)


def _check_none(**arguments):
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(
                f"{name}={value!r}: BytePS reduces gradients itself, among all workers of its job; leave {name} out, "
                "or use PyTorch's own DistributedDataParallel with bps.ddp_hook.push_pull_hook"
            )


def _check_devices(module, device_ids):
    devices = {parameter.device for parameter in module.parameters()}
    wanted = {
        torch.device(i) if isinstance(i, (str, torch.device)) else torch.device("cuda", i)
        for i in device_ids or ()
    }
    if not wanted or wanted == devices:
        return
    found = ", ".join(sorted(map(str, devices)))
    if any(device.type == "cuda" for device in devices):
        raise ValueError(f"device_ids={device_ids!r}, but the module is on {found}; leave device_ids out")
    warnings.warn(
        f"device_ids={device_ids!r} has no effect: the module has no parameters on a CUDA device"
        f"{f', but on {found}' if found else ''}; move it there first, or leave device_ids out",
        stacklevel=3,
    )
