#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A thousand random jobs; others with SEED=n. What fails is printed with the seed that repeats it.
"${top_builddir:?}/tests/simulation/simulate" "${SEED:-1}" 1000
