/* SPDX-License-Identifier: Apache-2.0 */
/* compressor_check.h - whether a compressor does what its interface promises, before it is measured. */
#ifndef BPS_BENCH_COMPRESSOR_CHECK_H
#define BPS_BENCH_COMPRESSOR_CHECK_H

#include <byteps/compressor.h>

struct bps_bench_coder {
    const struct bps_compressor_ops *ops;
    void *self;
};

/*
 * What it does wrong with these elements, as the end of a sentence; NULL: nothing. `baseline` is the same compressor
 * with the same options on the instruction set that all CPUs have; without ops: there is none. Not thread-safe.
 */
const char *bps_bench_check_compressor(struct bps_bench_coder coder, struct bps_bench_coder baseline, const float *src,
                                       size_t count);

#endif
