# SPDX-License-Identifier: Apache-2.0
"""What workers disagree about is an exception with the cause on every one, and the job goes on."""

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


def check_shape_of_unnamed():
    checks.raised(byteps.MismatchError, lambda: bps.push_pull(np.ones(10 + bps.rank())))
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


def check_another_size_later():
    bps.push_pull(np.ones(10), name="later")
    checks.raised(byteps.MismatchError, lambda: bps.push_pull(np.ones(11), name="later"), "byteps.later")
    assert bps.push_pull(np.ones(10), name="later").tolist() == [1] * 10


def check_busy():
    handle = bps.push_pull_async(np.ones(100000), name="busy", op=bps.Sum)
    checks.raised(byteps.BusyError, lambda: bps.push_pull_async(np.ones(100000), name="busy"), "byteps.busy")
    assert handle.wait()[0] == bps.size()
    bps.push_pull(np.ones(100000), name="busy")


def check_a_failure_is_remembered():
    handle = bps.push_pull_async(np.ones(10 + bps.rank()), name="twice")
    checks.raised(byteps.MismatchError, handle.wait)
    assert bps.poll(handle)
    checks.raised(byteps.MismatchError, lambda: bps.synchronize(handle))
    still_works()


def check_scale_of_integers():
    checks.raised(byteps.Error, lambda: bps.push_pull(np.ones(3, np.int32), prescale_factor=2.0))
    checks.raised(byteps.Error, lambda: bps.push_pull(np.ones(3, bool)))
    bps.barrier()


def check_names():
    long = "x" * 2000
    checks.raised(byteps.Error, lambda: bps.push_pull(np.ones(3), name=long))
    checks.raised(ValueError, lambda: bps.push_pull(np.ones(3), name="nul\0"))
    assert bps.push_pull(np.ones(3), name="grüße/…", op=bps.Sum)[0] == bps.size()


if __name__ == "__main__":
    checks.main(globals(), bps)
