# SPDX-License-Identifier: Apache-2.0
"""From a tensor to memory that the extension can send."""

import torch

from byteps._native import bps as _bps

_HAS_EXCHANGE = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")
_CODES = {getattr(torch, name): code for name, code in _bps.dtypes.items() if hasattr(torch, name)}


def check(tensor, what="the tensor"):
    """Raise unless the extension can take this kind of tensor."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{what} must be a torch.Tensor, not {type(tensor).__name__}")
    if tensor.device.type not in ("cpu", "cuda"):
        raise ValueError(
            f"{what} is on {tensor.device}; byteps.torch takes CPU and CUDA tensors: move it with .cpu()"
        )
    if tensor.layout is not torch.strided:
        raise ValueError(
            f"{what} is {tensor.layout}; byteps.torch takes dense tensors: use .to_dense(), "
            "or sparse_as_dense=True of DistributedOptimizer for gradients"
        )
    if tensor.dtype not in _CODES:
        allowed = ", ".join(_bps.dtypes)
        raise TypeError(f"{what} has elements of type {tensor.dtype}; supported are {allowed}")


def is_plain(tensor):
    """Return whether the tensor's memory holds its values in row-major order without gaps."""
    return tensor.is_contiguous() and not tensor.is_neg()


def plain_copy(tensor):
    """Return a copy whose memory is in row-major order."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device).copy_(tensor.detach())


def memory(tensor):
    """Return what the extension takes for a plain tensor.

    It keeps the storage, which the tensor may lose on the way, as by ``tensor.data = ...`` or ``module.half()``.
    """
    storage = tensor.untyped_storage()
    if _HAS_EXCHANGE:
        return tensor, storage
    place = (tensor.data_ptr(), tuple(tensor.shape), _CODES[tensor.dtype], storage)
    return (*place, *(stream_of(tensor) or ()))


def require_place(tensor, address, what):
    """Raise if a tensor that was in flight is no longer at its address."""
    if tensor.data_ptr() != address:
        raise RuntimeError(
            f"{what} was given other memory, or its memory was freed, while it was in flight, so that it does "
            "not have the result; wait for the operation before .data = ..., set_(), resize_(), half() and such"
        )


def stream_of(tensor):
    """Return the stream that work on a tensor goes to now, as (device, handle); None: it is on the host.

    torch.cuda.current_stream() says the same by making an object, for each gradient.
    """
    if not tensor.is_cuda:
        return None
    device = tensor.get_device()
    return device, torch._C._cuda_getCurrentRawStream(device)


def follow(stream):
    """Let the current stream wait for one that has a result; None: there is nothing to wait for."""
    if stream is None:
        return
    device, handle = stream
    if torch._C._cuda_getCurrentRawStream(device) != handle:
        cuda = torch.cuda
        before = cuda.ExternalStream(handle, device) if handle else cuda.default_stream(device)
        cuda.current_stream(device).wait_stream(before)


def memory_order(tensor):
    """Return the dimensions of a tensor from the largest to the smallest step in memory, or None if it has
    gaps.

    ``tensor.permute(memory_order(tensor))`` is then contiguous.
    """
    order = sorted(range(tensor.dim()), key=lambda i: (tensor.stride(i), tensor.size(i) > 1), reverse=True)
    return order if tensor.permute(order).is_contiguous() else None


def wide_order(tensor):
    """Return memory_order() without the dimensions of one element, which have no place in memory."""
    order = memory_order(tensor)
    return order and [dimension for dimension in order if tensor.size(dimension) > 1]


def changed(tensor):
    """Tell autograd that a tensor was changed in place."""
    if not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)
