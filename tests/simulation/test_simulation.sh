#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Random jobs with any trouble, and with an allocation that fails in a worker, or elsewhere; others with SEED=n. What
# goes wrong is printed with the seed that repeats it.
set -e
"${top_builddir:?}/tests/simulation/simulate" "${SEED:-1}" 600
"$top_builddir/tests/simulation/simulate" "${SEED:-1}" 150 5
"$top_builddir/tests/simulation/simulate" "${SEED:-1}" 150 11
