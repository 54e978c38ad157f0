# SPDX-License-Identifier: Apache-2.0
"""A worker for `make check`: two of them sum 5000 numbers, and each must get the same."""

import array

import NAME

NAME.init()
values = array.array("f", 5000 * [NAME.rank() + 1.0])
NAME.push_pull("values", values)
NAME.shutdown()
if set(values) != {3.0}:
    raise SystemExit(f"the sum of 1 and 2 is {set(values)}")
print("ok")
