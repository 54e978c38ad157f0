# SPDX-License-Identifier: Apache-2.0
"""Arrays in the memory of a CUDA device, for scripts: by the driver alone, whichever libcuda.so.1 is found."""

import ctypes

import numpy as np

from byteps._native import bps as _bps

_cuda = ctypes.CDLL("libcuda.so.1")
_PER_CALL = 1  # cuStreamCreate: not ordered with the default stream


def _call(name, *arguments):
    result = getattr(_cuda, name)(*arguments)
    if result != 0:
        raise RuntimeError(f"{name} returned {result}")


class Stream:
    """A stream of a device. It keeps what it still has to read until somebody waits for it."""

    def __init__(self, device):
        self.device = device
        self.sources = []
        self.handle = ctypes.c_void_p()
        _call("cuStreamCreate", ctypes.byref(self.handle), _PER_CALL)

    def synchronize(self):
        _call("cuStreamSynchronize", self.handle)
        self.sources.clear()

    def begin_capture(self):
        _call("cuStreamBeginCapture_v2", self.handle, 2)  # relaxed

    def end_capture(self):
        graph = ctypes.c_void_p()
        return _cuda.cuStreamEndCapture(self.handle, ctypes.byref(graph))


class Device:
    """A device, current in the calling thread from now on."""

    def __init__(self, index):
        _call("cuInit", 0)
        count, context = ctypes.c_int(), ctypes.c_void_p()
        _call("cuDeviceGetCount", ctypes.byref(count))
        self.index = index % count.value
        self._handle = ctypes.c_int()
        _call("cuDeviceGet", ctypes.byref(self._handle), self.index)
        _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._handle)
        _call("cuCtxPushCurrent_v2", context)


class Array:
    """An array on a device. Work on it goes to its stream, behind which the host does not wait."""

    def __init__(self, stream, values):
        self.stream = stream
        self._values = np.ascontiguousarray(values)
        self._address = ctypes.c_uint64()
        _call("cuMemAlloc_v2", ctypes.byref(self._address), ctypes.c_size_t(max(1, self._values.nbytes)))
        self.write(self._values)

    def write(self, values):
        """Fill it, behind what the stream has been given."""
        self._values = np.ascontiguousarray(values)
        self.stream.sources.append(self._values)
        if self._values.nbytes > 0:
            _call(
                "cuMemcpyHtoDAsync_v2",
                self._address,
                self._values.ctypes.data_as(ctypes.c_void_p),
                ctypes.c_size_t(self._values.nbytes),
                self.stream.handle,
            )

    def read(self):
        """Return the values that it has behind all work of the stream."""
        values = np.empty_like(self._values)
        if values.nbytes > 0:
            _call(
                "cuMemcpyDtoHAsync_v2",
                values.ctypes.data_as(ctypes.c_void_p),
                self._address,
                ctypes.c_size_t(values.nbytes),
                self.stream.handle,
            )
        self.stream.synchronize()
        return values

    def copy_to_host(self, host, at, size, stream):
        """Begin a copy of some bytes into an array of bytes, at the same place."""
        to = ctypes.c_void_p(host.ctypes.data + at)
        _call("cuMemcpyDtoHAsync_v2", to, self._part(at), ctypes.c_size_t(size), stream.handle)

    def copy_from_host(self, host, at, size, stream):
        """Begin a copy of some bytes out of an array of bytes, at the same place."""
        source = ctypes.c_void_p(host.ctypes.data + at)
        _call("cuMemcpyHtoDAsync_v2", self._part(at), source, ctypes.c_size_t(size), stream.handle)

    def _part(self, at):
        return ctypes.c_uint64(self._address.value + at)

    def free(self):
        self.stream.synchronize()
        _call("cuMemFree_v2", self._address)

    @property
    def memory(self):
        """What the extension takes."""
        code = _bps.dtypes[str(self._values.dtype)]
        where = (self.stream.device.index, self.stream.handle.value)
        return (self._address.value, self._values.shape, code, self, *where)
