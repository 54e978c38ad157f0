# SPDX-License-Identifier: Apache-2.0
"""push_pull and broadcast of arrays on CUDA devices. No check waits for a device before it starts an operation,
nor between its end and reading the result: that order is the library's affair."""

import os
import signal

import checks
import gpu
import numpy as np

import byteps
import byteps.numpy as bps
from byteps._basics import full_name
from byteps._native import bps as native

_device = None


def device():
    """The device of this worker."""
    global _device
    if _device is None:
        _device = gpu.Device(bps.local_rank())
    return _device


def data(rank, count, dtype="float32", seed=0):
    return np.random.default_rng([seed, rank]).integers(-4, 5, count).astype(dtype)


def total(count, dtype="float32", seed=0):
    return sum(data(rank, count, dtype, seed) for rank in range(bps.size()))


def start(source, target=None, name=None, op=bps.Sum, priority=0, prescale=1.0, postscale=1.0):
    memory = None if target is None else target.memory
    return native.push_pull(source.memory, memory, full_name(name), op, priority, prescale, postscale)


def check_sizes():
    stream = gpu.Stream(device())
    for count in (0, 1, 1000, 65536, 3_000_001):
        source = gpu.Array(stream, data(bps.rank(), count))
        target = gpu.Array(stream, np.zeros(count, "float32"))
        start(source, target).wait()
        np.testing.assert_array_equal(target.read(), total(count))
        np.testing.assert_array_equal(source.read(), data(bps.rank(), count))  # untouched
        source.free()
        target.free()


def check_arrays_that_other_packages_make():
    """push_pull() of an array with a namespace, such as one of CuPy, is a new one on the same device."""
    array = gpu.StandardArray(gpu.Stream(device()), data(bps.rank(), 1000))
    for result in (
        bps.push_pull(array, op=bps.Sum),
        bps.push_pull_async(array, op=bps.Sum).wait(),
        bps.broadcast(bps.push_pull(array, op=bps.Sum)),
    ):
        assert isinstance(result, gpu.StandardArray) and result is not array
        np.testing.assert_array_equal(result.read(), total(1000))
    np.testing.assert_array_equal(array.read(), data(bps.rank(), 1000))
    assert bps.push_pull_inplace(array, op=bps.Sum) is array
    np.testing.assert_array_equal(array.read(), total(1000))
    alone = gpu.StandardArray(array.stream, data(bps.rank(), 1000))
    alone.__class__ = type("Alone", (gpu.StandardArray,), {"__array_namespace__": property()})
    checks.raised(TypeError, lambda: bps.push_pull(alone), "Alone on a device", "push_pull_inplace")
    alone.free()


def check_types_and_operations():
    stream = gpu.Stream(device())
    for dtype in ("float16", "float64", "int8", "int32", "int64"):
        array = gpu.Array(stream, data(bps.rank(), 100, dtype))
        start(array, op=bps.Max).wait()
        np.testing.assert_array_equal(array.read(), np.max([data(r, 100, dtype) for r in range(bps.size())], axis=0))
    array = gpu.Array(stream, data(bps.rank(), 100))
    start(array, op=bps.Sum, prescale=2.0, postscale=0.25).wait()
    np.testing.assert_array_equal(array.read(), total(100) / 2)


def check_average():
    """Rounded as on the host, wherever it is divided."""
    values = data(bps.rank(), 100_000)
    array = gpu.Array(gpu.Stream(device()), values)
    start(array, op=bps.Average).wait()
    np.testing.assert_array_equal(array.read(), bps.push_pull(values, op=bps.Average))


def check_averages_of_integers():
    """Sums that the type does not hold, of long tensors that a group of devices would sum."""
    for dtype in ("uint8", "int8", "int16", "int32", "int64"):
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        values = np.tile(np.array([low, high], dtype), 50_000)
        array = gpu.Array(gpu.Stream(device()), values)
        start(array, name=f"mean.{dtype}", op=bps.Average).wait()
        np.testing.assert_array_equal(array.read(), values)


def check_rounded_once():
    """Results of float16 that would be others if each contribution were rounded, or would overflow on the way."""
    stream, size = gpu.Stream(device()), bps.size()
    several_hosts = bps.local_size() < size  # whose sums are rounded, too
    for mine, op, expected in (
        (1.0 if bps.rank() > 0 or several_hosts else 2048.0, bps.Sum, (0 if several_hosts else 2047.0) + size),
        (32768.0, bps.Average, 32768.0),
    ):
        for count in (1, 1000, 300_001):
            array = gpu.Array(stream, np.full(count, mine, "float16"))
            start(array, name=f"rounded.{op}.{count}", op=op).wait()
            np.testing.assert_array_equal(array.read(), np.full(count, expected, "float16"))


def check_the_same_bits_as_on_the_host():
    """Scales round, overflow and leave NaN; results go elsewhere or stay in their place."""
    if bps.size() > 2:
        return  # sums depend on the order of arrival
    stream = gpu.Stream(device())
    for dtype in ("float16", "float32", "float64"):
        bits = np.random.default_rng(bps.rank()).integers(0, 256, 40_000 * np.dtype(dtype).itemsize, dtype=np.uint8)
        values = bits.view(dtype)
        for op, prescale, postscale in ((bps.Sum, 0.37, 1.7), (bps.Average, 1.0, -3.0), (bps.Min, 1e-3, 1.0)):
            expected = bps.push_pull(values, op=op, prescale_factor=prescale, postscale_factor=postscale)
            source, target = gpu.Array(stream, values), gpu.Array(stream, np.zeros_like(values))
            start(source, target, op=op, prescale=prescale, postscale=postscale).wait()
            np.testing.assert_array_equal(target.read().view(np.uint8), expected.view(np.uint8))
            start(source, op=op, prescale=prescale, postscale=postscale).wait()
            np.testing.assert_array_equal(source.read().view(np.uint8), expected.view(np.uint8))


def check_many_at_once():
    streams = [gpu.Stream(device()) for _ in range(3)]
    sizes = [10 + 997 * i % 200_000 for i in range(60)]
    arrays = [gpu.Array(streams[i % 3], np.zeros(n, "float32")) for i, n in enumerate(sizes)]
    for step in range(3):
        handles = []
        for i, array in enumerate(arrays):
            array.write(data(bps.rank(), sizes[i], seed=step))
            handles.append(start(array, name=f"many.{i}", priority=i % 7))
        for handle in handles:
            handle.wait()
        for i, array in enumerate(arrays):
            np.testing.assert_array_equal(array.read(), total(sizes[i], seed=step))


def check_next_round_at_once():
    """The host never waits: each round reads on the device what the one before has left there."""
    array = gpu.Array(gpu.Stream(device()), np.ones(300_000, "float32"))
    for _ in range(8):
        start(array, name="again", op=bps.Sum).wait()
    np.testing.assert_array_equal(array.read(), np.full(300_000, float(bps.size()) ** 8, "float32"))


def check_broadcast():
    stream = gpu.Stream(device())
    for root in range(bps.size()):
        array = gpu.Array(stream, data(bps.rank(), 5000))
        native.broadcast(array.memory, None, None, root, 0).wait()
        np.testing.assert_array_equal(array.read(), data(root, 5000))
        target = gpu.Array(stream, np.zeros(5000, "float32"))
        native.broadcast(array.memory, target.memory, None, root, 0).wait()
        np.testing.assert_array_equal(target.read(), data(root, 5000))


def check_host_and_device_in_one_operation():
    for name in ("mixed", None):
        if bps.rank() % 2 == 0:
            array = gpu.Array(gpu.Stream(device()), data(bps.rank(), 70_000))
            start(array, name=name).wait()
            result = array.read()
        else:
            result = bps.push_pull(data(bps.rank(), 70_000), name=name, op=bps.Sum)
        np.testing.assert_array_equal(result, total(70_000))


def check_the_same_tensor_on_either():
    for on_device in (True, False, True):
        if on_device:
            array = gpu.Array(gpu.Stream(device()), data(bps.rank(), 3000))
            start(array, name="either").wait()
            result = array.read()
        else:
            result = bps.push_pull(data(bps.rank(), 3000), name="either", op=bps.Sum)
        np.testing.assert_array_equal(result, total(3000))


def check_unnamed_of_any_size_and_place():
    """Each call may use what the one before it has left, whose result is perhaps still on its way."""
    stream = gpu.Stream(device())
    for count in (700_000, 100, 300_000):
        array = gpu.Array(stream, data(bps.rank(), count))
        start(array).wait()
        np.testing.assert_array_equal(bps.push_pull(data(bps.rank(), count // 2), op=bps.Sum), total(count // 2))
        np.testing.assert_array_equal(array.read(), total(count))


def check_a_forked_child_has_nothing_of_the_job():
    array = gpu.Array(gpu.Stream(device()), data(bps.rank(), 1000))
    start(array, name="before").wait()
    child = os.fork()
    if child == 0:
        with open("/proc/self/maps", encoding="utf-8") as file:
            os._exit(any("/memfd:byteps " in line for line in file))
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(array.read(), total(1000))


def check_dropped_handle():
    stream = gpu.Stream(device())
    start(gpu.Array(stream, data(bps.rank(), 100_000)), name="dropped")
    start(gpu.Array(stream, data(bps.rank(), 100_000)), name="kept").wait()
    bps.barrier()
    stream.synchronize()


def check_refused():
    stream = gpu.Stream(device())
    array = gpu.Array(stream, data(bps.rank(), 10))
    stream.begin_capture()
    checks.raised(byteps.Error, lambda: start(array, name="captured"), "captured")
    stream.end_capture()
    address, shape, code, keep, _, handle = array.memory
    nowhere = (address, shape, code, keep, 99, handle)
    checks.raised((byteps.Error, ValueError), lambda: native.push_pull(nowhere, None, None, bps.Sum, 0, 1.0, 1.0), "99")
    stream.synchronize()
    array = gpu.Array(gpu.Stream(device()), data(bps.rank(), 10))
    start(array, name="captured").wait()
    np.testing.assert_array_equal(array.read(), total(10))


def check_disagreement():
    count = 100 if bps.rank() == 0 else 200
    array = gpu.Array(gpu.Stream(device()), data(bps.rank(), count))
    for i in range(40 if bps.size() > 1 else 0):  # the words of several workers meet in any order
        checks.raised(byteps.MismatchError, start(array, name=f"disagreed {i}").wait, f"disagreed {i}")
    np.testing.assert_array_equal(array.read().shape, (count,))
    stream = gpu.Stream(device())
    checks.shapes_without_a_name(
        bps, byteps.MismatchError, lambda shape: start(gpu.Array(stream, np.ones(shape, "float32"))).wait()
    )


def check_repeated():
    for _ in range(3):
        array = gpu.Array(gpu.Stream(device()), data(bps.rank(), 1000))
        start(array, name="repeated").wait()
        np.testing.assert_array_equal(array.read(), total(1000))
        bps.shutdown()
        bps.init()


def lose_a_worker():
    """The last worker is killed while operations are under way; the others get errors."""
    array = gpu.Array(gpu.Stream(device()), data(bps.rank(), 2_000_000))
    for step in range(1000):
        handle = start(array, name="lost")
        if bps.rank() == bps.size() - 1 and step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            handle.wait()
        except byteps.LostError:
            print("lost", flush=True)
            os._exit(3)


def fail_a_device():
    """A copy fails on the device of one worker."""
    array = gpu.Array(gpu.Stream(device()), data(bps.rank(), 500_000))
    for _ in range(100):
        try:
            start(array, name="failing").wait()
        except byteps.Error as error:
            print(f"failed: {error}", flush=True)
            os._exit(3)


def fail_a_kernel():
    """A reduction fails on the device of the only worker."""
    array = gpu.Array(gpu.Stream(device()), data(bps.rank(), 500_000))
    for _ in range(100):
        try:
            start(array, name="failing", postscale=0.5).wait()
        except byteps.Error as error:
            print(f"failed: {error}", flush=True)
            os._exit(3)


def lose_a_batch():
    """What the devices are given does not end, or fails; whoever lives on gets an error, and says it."""
    array = gpu.Array(gpu.Stream(device()), data(bps.rank(), 100_000))
    try:
        for _ in range(100):
            start(array, name="batch").wait()
    except byteps.Error as error:
        print(f"failed: {error}", flush=True)
        os._exit(3)


def without_device():
    """No reducer brings devices."""
    array = gpu.Array(gpu.Stream(device()), data(bps.rank(), 10))
    checks.raised(byteps.Error, lambda: start(array), "worker.use", "cuda")
    array.free()


if __name__ == "__main__":
    checks.main(globals(), bps)
