/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sum_stubs.h - memory and arithmetic for what sums and is fuzzed: sum_stubs.c has the functions of
 * its pool, which replace its own, and a reducer. Both notice what they should not be given.
 */
#ifndef BPS_FUZZ_SUM_STUBS_H
#define BPS_FUZZ_SUM_STUBS_H

#include <byteps/reducer.h>

void check(bool holds);

bps_status stub_kernels(void *self, uint32_t op, uint32_t dtype, struct bps_kernels *out);

#endif
