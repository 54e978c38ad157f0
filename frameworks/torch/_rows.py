# SPDX-License-Identifier: Apache-2.0
"""Sparse tensors, such as the gradients of ``Embedding(sparse=True)``: only the rows that they have are sent."""

import math

import torch

from byteps._sparse import result_buffers, start_rows

from . import _memory
from .compression import Compression


def is_sparse(tensor):
    """Return whether a tensor has rows instead of all elements."""
    return isinstance(tensor, torch.Tensor) and tensor.layout is torch.sparse_coo


def none_of(parameter):
    """Return a sparse gradient of a parameter that has no row."""
    index = torch.zeros((1, 0), dtype=torch.int64)
    values = torch.zeros((0, *parameter.shape[1:]), dtype=parameter.dtype)
    return torch.sparse_coo_tensor(index, values, parameter.shape, device=parameter.device)


def check(tensor, what):
    """Raise unless the tensor's first dimension alone is sparse."""
    if tensor.sparse_dim() != 1:
        raise ValueError(
            f"{what} is sparse in {tensor.sparse_dim()} dimensions; rows are sent, so that only the first may be: use "
            ".to_dense().to_sparse(1)"
        )


class Journey:
    """The rows of one sparse tensor on their way.

    Attributes:
        native: the operation.
    """

    def __init__(self, tensor, name, op, priority=0, scales=(1.0, 1.0), compression=Compression.none):
        self._like = tensor
        index = tensor._indices()[0].cpu().contiguous()
        values, self._context = compression.compress(tensor._values().detach().cpu())
        self._decompress = compression.decompress
        self._values = values.contiguous()  # read until the operation has ended
        self.native, self._result = start_rows(
            _memory.memory(index), _memory.memory(self._values), tensor.shape[0], name, op, priority, *scales
        )

    def land(self):
        """Wait for the result, and return it: a sparse tensor, whose rows are in order."""
        self.native.wait()
        like, sent = self._like, self._values
        parts = result_buffers(self._result, sent.element_size() * math.prod(sent.shape[1:]))
        index, values = (_tensor(part, kind) for part, kind in zip(parts, (torch.int64, sent.dtype)))
        values = self._decompress(values.reshape(index.shape[0], *sent.shape[1:]), self._context)
        result = torch.sparse_coo_tensor(index.unsqueeze(0), values, like.shape, device=like.device)
        return result._coalesced_(True)


def _tensor(memory, dtype):
    return torch.frombuffer(memory, dtype=dtype) if len(memory) > 0 else torch.zeros(0, dtype=dtype)
