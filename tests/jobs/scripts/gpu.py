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


class _Tensor(ctypes.Structure):
    """DLManagedTensor of DLPack, without its deleter."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class StandardArray(Array):
    """An array on a device as other packages see it: by DLPack, with a namespace of functions. float32 only."""

    def read(self):
        """Return the values; operations have worked on the default stream, of which this one knows nothing."""
        _call("cuStreamSynchronize", ctypes.c_void_p(1))
        return super().read()

    def __dlpack_device__(self):
        return 2, self.stream.device.index

    def __dlpack__(self, **_):
        self._shape = (ctypes.c_int64 * self._values.ndim)(*self._values.shape)
        self._tensor = _Tensor(
            data=self._address.value,
            device_type=2,
            device_id=self.stream.device.index,
            ndim=self._values.ndim,
            code=2,
            bits=32,
            lanes=1,
            shape=ctypes.addressof(self._shape),
        )
        self.stream.synchronize()
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return make(ctypes.addressof(self._tensor), b"dltensor", None)

    def __array_namespace__(self, **_):
        return StandardArray

    @staticmethod
    def empty_like(array):
        return StandardArray(array.stream, np.zeros_like(array._values))
