# SPDX-License-Identifier: Apache-2.0
"""What the module of this name in the original tells: how fast this worker pushes."""

from __future__ import annotations

import time

from ._native import bps as _bps

_before = (time.perf_counter(), _bps.pushed_bytes())  # when it was asked last, and what had been pushed then


def get_pushpull_speed() -> tuple[int, float]:
    """Return (time, speed): milliseconds since 1970, and megabytes (10^6) per second since the last call.

    It counts the bytes of the push_pulls that this worker has started, as they are sent: compressed ones have
    a smaller type. The first call looks back to the import of this module.
    """
    global _before
    now = (time.perf_counter(), _bps.pushed_bytes())
    (start, pushed), _before = _before, now
    seconds = max(now[0] - start, 1e-9)  # the clock may stand still between two calls
    return int(time.time() * 1000), (now[1] - pushed) / 1e6 / seconds
