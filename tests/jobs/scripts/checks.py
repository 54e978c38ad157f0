# SPDX-License-Identifier: Apache-2.0
"""What the scripts of the job tests share: run all check_* functions of a script on every worker, in order.

A script ends with ``checks.main(globals(), bps)``. Names on the command line choose some of the functions.
A failure prints its traceback and ends the process with status 1; success prints "passed N".
"""

import faulthandler
import functools
import re
import sys
import traceback

import byteps


def main(names, bps):
    """Join the job, run the checks, leave the job."""
    faulthandler.enable()
    bps.init()
    chosen = sys.argv[1:] or [name for name in names if name.startswith("check_")]
    for name in chosen:
        try:
            names[name]()
        except BaseException:
            print(f"worker {bps.rank() if bps.is_initialized() else '?'}: {name} failed", flush=True)
            traceback.print_exc()
            sys.exit(1)
    bps.shutdown()
    print(f"passed {len(chosen)}", flush=True)


def raised(kind, call, *parts):
    """Return the exception that call() raises; it must be of a kind and contain some texts."""
    try:
        result = call()
    except kind as error:
        for part in parts:
            assert part in str(error), f"{part!r} is not in {error!s}"
        if isinstance(error, byteps.Error):
            assert error.status < 0, error
        return error
    raise AssertionError(f"expected {kind}, got the result {result!r}")


def shapes_without_a_name(bps, kind, *calls):
    """Check that calls without a name compare shapes: as many elements in other rows are another tensor.

    Each call gets a shape, and pushes a tensor of that.
    """
    if bps.size() == 1:
        return
    shapes = [(17, 1311), (17, 23, 57)]
    for call in calls:
        mine = shapes[bps.rank() % 2]
        error = raised(kind, lambda: call(mine), " float32 (")  # noqa: B023
        assert re.search(r" pushed (22287 )?float32 ", str(error)), error  # a broadcast may go as a block
        mark = re.search(rf"; shape (#[0-9a-f]{{4}}) is {re.escape(str(list(mine)))} float32", str(error))
        assert mark is not None and f", shape {mark[1]})" in str(error), error
        call(shapes[0])


def average_and_op(bps, *reductions):
    """Check what the arguments average and op mean: as in Horovod, None for both is the mean, and both are refused.

    Each reduction is called with them, reduces the number rank + 1, and returns the result.
    """
    total = bps.size() * (bps.size() + 1) / 2
    mean = total / bps.size()
    for reduce in reductions:
        for arguments, expected in (
            ({}, mean),
            ({"average": None}, mean),
            ({"average": None, "op": None}, mean),
            ({"average": True}, mean),
            ({"average": False, "op": None}, total),
            ({"average": None, "op": bps.Sum}, total),
        ):
            result = float(reduce(**arguments))
            assert result == expected, (arguments, result, expected)
        for average in (True, False):
            raised(ValueError, functools.partial(reduce, average=average, op=bps.Sum), "not both")
