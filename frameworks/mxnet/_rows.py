# SPDX-License-Identifier: Apache-2.0
"""Row-sparse arrays, such as the gradients of ``Embedding(sparse_grad=True)``: only the rows that they have are sent.

An operation of MXNet's engine cannot give an array more rows than it has. So these are sent from Python, which waits
for what is sent and for the result.
"""

import math

import mxnet as mx
import numpy as np

from byteps._basics import full_name
from byteps._coded_names import coding_of
from byteps._sparse import check_reduction, result_buffers, start_rows

from .compression import Compression


def is_rows(array):
    """Return whether an array has rows instead of all elements."""
    return isinstance(array, mx.nd.sparse.RowSparseNDArray)


def clear(array):
    """Take all rows from an array."""
    mx.nd.sparse.zeros("row_sparse", array.shape, array.context, array.dtype).copyto(array)


class Trip:
    """Rows in NumPy's arrays on their way."""

    def __init__(self, index, values, rows, name, op, priority=0, scales=(1.0, 1.0)):
        self._index, self._values = index, values  # read until the operation has ended
        self._native, self._result = start_rows(index, values, rows, full_name(name), op, priority, *scales)

    def wait(self):
        """Wait for the result; return (the numbers of its rows, their values)."""
        self._native.wait()
        sent = self._values
        parts = result_buffers(self._result, sent.dtype.itemsize * math.prod(sent.shape[1:]))
        index, values = (np.frombuffer(part, kind) for part, kind in zip(parts, (np.int64, sent.dtype)))
        return index, values.reshape(len(index), *sent.shape[1:])


class Journey:
    """The rows of some arrays of one shape, summed here, on their way."""

    def __init__(self, arrays, targets, name, op, priority=0, scales=(1.0, 1.0), compression=Compression.none):
        check_reduction(op, coding_of(compression))
        self._targets = targets
        parts = [compression.compress(array.data) for array in arrays]
        self._decompress, self._context = compression.decompress, parts[0][1]
        index = np.concatenate([array.indices.asnumpy() for array in arrays]).astype(np.int64, copy=False)
        values = np.concatenate([part.asnumpy() for part, _ in parts])
        self._trip = Trip(index, values, arrays[0].shape[0], name, op, priority, scales)

    def wait_to_read(self):
        """Wait for the result, and put it into the targets; as an array does, so that wait_all() takes both."""
        index, values = self._trip.wait()
        first = self._targets[0]
        values = self._decompress(mx.nd.array(values, dtype=values.dtype), self._context)
        result = mx.nd.sparse.row_sparse_array((values, index), first.shape, first.context, first.dtype)
        for target in self._targets:
            result.copyto(target)
