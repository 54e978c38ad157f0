# SPDX-License-Identifier: Apache-2.0
"""From a tensor to memory that the extension can send."""

import torch

from byteps._native import bps as _bps

_Tensor, _strided = torch.Tensor, torch.strided
_HAS_EXCHANGE = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")
_CODES = {getattr(torch, name): code for name, code in _bps.dtypes.items() if hasattr(torch, name)}


# What to give instead of tensors whose class decides itself what their values are.
_INSTEAD = {
    "DTensor": "give its part of this worker, .to_local(), or all of it, .full_tensor()",
    "FakeTensor": "it has no values; call this outside of FakeTensorMode",
    "MaskedTensor": "fill what is masked, with .to_tensor(value)",
    "NestedTensor": "pad it, with torch.nested.to_padded_tensor(tensor, value)",
    "UninitializedParameter": "it gets its shape in the first forward pass; run one before",
    "UninitializedBuffer": "it gets its shape in the first forward pass; run one before",
}


def _is_ordinary(kind):
    """Return whether a class of tensors leaves it to torch.Tensor what its values are."""
    function = getattr(kind.__torch_function__, "__func__", kind.__torch_function__)
    return (
        kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__
        and not issubclass(kind, torch.nn.parameter.UninitializedTensorMixin)
        and function in (torch.Tensor.__torch_function__.__func__, torch._C._disabled_torch_function_impl)
    )


def is_usual(tensor):
    """Return whether check() has nothing to say, for what is usual and quickly seen."""
    usual = type(tensor) is _Tensor and tensor.is_cpu and tensor.dtype in _CODES and tensor.layout is _strided
    return usual and not tensor.is_nested


def check(tensor, what="the tensor"):
    """Raise unless the extension can take this kind of tensor."""
    if not is_usual(tensor):
        _check_all(tensor, what)


def _check_all(tensor, what):
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{what} must be a torch.Tensor, not {type(tensor).__name__}")
    kind = type(tensor)
    if kind is not torch.Tensor and not _is_ordinary(kind):
        instead = _INSTEAD.get(kind.__name__, "give a plain one, such as .as_subclass(torch.Tensor)")
        raise TypeError(f"{what} is a {kind.__name__}, not a plain torch.Tensor: {instead}")
    if tensor.is_nested:
        raise TypeError(f"{what} is nested: {_INSTEAD['NestedTensor']}")
    if tensor.is_meta:
        raise ValueError(f"{what} is on meta, so that it has no values: give it some, as with .to_empty()")
    if tensor.device.type not in ("cpu", "cuda"):
        raise ValueError(f"{what} is on {tensor.device}; byteps.torch takes CPU and CUDA tensors: move it with .cpu()")
    if tensor.layout is not torch.strided:
        raise ValueError(
            f"{what} is {tensor.layout}; byteps.torch takes dense tensors: use .to_dense(), "
            "or sparse_as_dense=True of DistributedOptimizer for gradients"
        )
    if tensor.dtype not in _CODES:
        raise TypeError(
            f"{what} has elements of type {tensor.dtype}; supported are {', '.join(_bps.dtypes)}{_cast(tensor)}"
        )


def _cast(tensor):
    if tensor.is_complex():
        return ": give its parts as real numbers, with torch.view_as_real()"
    return ": use .dequantize()" if tensor.is_quantized else ""


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
