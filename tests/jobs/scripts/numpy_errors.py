# SPDX-License-Identifier: Apache-2.0
"""What workers disagree about is an exception with the cause on every one, and the job goes on."""

import functools

import checks
import numpy as np

import byteps
import byteps.numpy as bps


def still_works():
    assert bps.push_pull(np.ones(3), op=bps.Sum).tolist() == [bps.size()] * 3


def check_shape():
    array = np.ones(10 + bps.rank())
    checks.raised(byteps.MismatchError, lambda: bps.push_pull(array, name="shape"), "byteps.shape")
    still_works()


def check_shape_of_one_size():
    """As many elements are not the same tensor."""
    for name, call in (("form", bps.push_pull), ("root", lambda array, name: bps.broadcast(array, 0, name))):
        array = np.ones([(17, 1311), (17, 23, 57)][bps.rank() % 2], "float32")
        words = [f"byteps.{name}", "worker 1 pushed [17, 23, 57] float32", " pushed [17, 1311] float32"]
        checks.raised(byteps.MismatchError, functools.partial(call, array, name=name), *words)
        assert np.array_equal(bps.push_pull(np.ones((17, 1311)), name=name), np.ones((17, 1311)))
    scalar = np.ones([(), (1,)][bps.rank() % 2])
    checks.raised(byteps.MismatchError, lambda: bps.push_pull(scalar, name="one"), "[] float64", "[1] float64")
    still_works()


def check_shape_of_unnamed():
    checks.raised(byteps.MismatchError, lambda: bps.push_pull(np.ones(10 + bps.rank())))
    checks.shapes_without_a_name(
        bps,
        byteps.MismatchError,
        lambda shape: bps.push_pull(np.ones(shape, "float32")),
        lambda shape: bps.broadcast(np.ones(shape, "float32"), 0),
    )
    still_works()


def check_type():
    array = np.ones(10, ["float32", "int32"][bps.rank() % 2])
    checks.raised(
        byteps.MismatchError, lambda: bps.push_pull(array, name="type"), "byteps.type", "float32", "int32"
    )
    still_works()


def check_operation():
    op = [bps.Sum, bps.Max][bps.rank() % 2]
    error = checks.raised(
        byteps.MismatchError, lambda: bps.push_pull(np.ones(10), name="op", op=op), "byteps.op"
    )
    assert "sum" in str(error) and "max" in str(error), error
    still_works()


def check_root():
    root = bps.rank() % 2
    checks.raised(byteps.MismatchError, lambda: bps.broadcast(np.ones(10), root, "root"), "byteps.root")
    still_works()


def check_push_pull_meets_broadcast():
    call = bps.push_pull if bps.rank() == 0 else bps.broadcast
    checks.raised(byteps.MismatchError, lambda: call(np.ones(10), name="kind"), "byteps.kind")
    still_works()


def check_another_form_later():
    """What all change together is a change, not a mistake."""
    forms = [((10,), "float64"), ((11,), "float64"), ((11,), "int32"), ((), "float32"), ((0, 3), "float32")]
    forms += [((300, 1000), "float32"), ((1000, 300), "float32"), ((10,), "float64")]
    for shape, dtype in forms:
        for value in (1, 5):
            array = np.full(shape, value + bps.rank(), dtype)
            expected = bps.size() * value + sum(range(bps.size()))
            assert np.array_equal(bps.push_pull(array, name="later", op=bps.Sum), np.full(shape, expected, dtype))
    length = 11 if bps.rank() == 0 else 10
    words = ("byteps.later", "worker 0 pushed [11] float64", " pushed [10] float64")
    checks.raised(byteps.MismatchError, lambda: bps.push_pull(np.ones(length), name="later"), *words)
    assert bps.push_pull(np.ones(10), name="later").tolist() == [1] * 10


def check_many_that_change():
    """Hundreds at once, while others are in flight."""
    for length in (7, 30000, 7):
        handles = [bps.push_pull_async(np.full(length, i), name=f"many {i}", op=bps.Sum) for i in range(100)]
        for i, handle in enumerate(handles):
            assert np.array_equal(handle.wait(), np.full(length, i * bps.size()))


def check_busy():
    handle = bps.push_pull_async(np.ones(100000), name="busy", op=bps.Sum)
    checks.raised(byteps.BusyError, lambda: bps.push_pull_async(np.ones(100000), name="busy"), "byteps.busy")
    assert handle.wait()[0] == bps.size()
    bps.push_pull(np.ones(100000), name="busy")


def check_memory_of_two():
    """What one push_pull in flight writes to is no other's: both would sum what the other has summed."""
    if bps.size() == 1:
        return
    whole = np.ones(100000)
    for i, (first, second) in enumerate(((whole, whole), (whole[:60000], whole[40000:]), (whole[7:], whole[:8]))):
        names = f"first {i}", f"second {i}"
        for array, name in zip((first, second), names, strict=True):
            bps.push_pull(array, name=name)  # now the job knows it: the next one begins at once
        for call in (bps.push_pull_async_inplace, bps.push_pull_async):
            whole[:] = 1
            if bps.rank() > 0:
                bps.push_pull(np.ones(1), name="go")  # worker 0 has begun both before it says so
            handle = bps.push_pull_async_inplace(first, name=names[0], op=bps.Sum)
            refused = call(second, name=names[1], op=bps.Sum)
            if bps.rank() == 0:
                bps.push_pull(np.ones(1), name="go")
            words = (*(f"byteps.{name}" for name in names), "same memory", "use one")
            checks.raised(byteps.BusyError, refused.wait, *words)
            assert np.array_equal(handle.wait(), np.full(len(first), bps.size()))
            second[:] = 1
            assert np.array_equal(call(second, name=names[1], op=bps.Sum).wait(), np.full(len(second), bps.size()))
    one, another = whole[:50000], whole[50000:]
    handles = [bps.push_pull_async_inplace(part, name=f"part {len(part)}") for part in (one, another[1:])]
    assert all(len(handle.wait()) in (50000, 49999) for handle in handles)


def check_a_failure_is_remembered():
    handle = bps.push_pull_async(np.ones(10 + bps.rank()), name="twice")
    checks.raised(byteps.MismatchError, handle.wait)
    assert bps.poll(handle)
    checks.raised(byteps.MismatchError, lambda: bps.synchronize(handle))
    still_works()


def check_scales():
    checks.raised(byteps.Error, lambda: bps.push_pull(np.ones(3, np.int32), prescale_factor=float("inf")))
    checks.raised(byteps.Error, lambda: bps.push_pull(np.ones(3, bool), op=bps.Sum, postscale_factor=2.0))
    checks.raised(byteps.Error, lambda: bps.push_pull(np.ones(3, bool)))
    bps.barrier()


def check_names():
    long = "x" * 2000
    checks.raised(byteps.Error, lambda: bps.push_pull(np.ones(3), name=long), "byteps.xxxx", "2007 bytes")
    checks.raised(ValueError, lambda: bps.push_pull(np.ones(3), name="nul\0"))
    assert bps.push_pull(np.ones(3), name="grüße/…", op=bps.Sum)[0] == bps.size()


if __name__ == "__main__":
    checks.main(globals(), bps)
