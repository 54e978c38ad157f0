/* SPDX-License-Identifier: Apache-2.0 */
/* reducer.h - how a reducer is measured: its kernels for sums, on one thread. */
#ifndef BPS_BENCH_REDUCER_H
#define BPS_BENCH_REDUCER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <byteps/reducer.h>

#include "plugin/instance.h"

enum bps_bench_sums_step {
    BPS_BENCH_SUMS_COPY,
    BPS_BENCH_FOLD,
    BPS_BENCH_REDUCE,
    BPS_BENCH_REDUCE_MANY,
    BPS_BENCH_FINISH,
    BPS_BENCH_SUMS_STEPS
};
extern const char *const bps_bench_sums_names[BPS_BENCH_SUMS_STEPS];

/* The buffers of one size; accumulators may have elements that are four times as wide. */
struct bps_bench_sums {
    struct bps_kernels kernels;
    size_t bytes, count; /* of a source, of type `dtype` */
    uint32_t dtype;
    uint8_t *a, *b, *dst, *acc;
};

/* False: there is no memory; bps_bench_sums_close() is due all the same. */
bool bps_bench_sums_open(struct bps_bench_sums *m, size_t bytes);
void bps_bench_sums_close(struct bps_bench_sums *m);
/* With the kernels of this reducer for `dtype`. False: it has none. */
bool bps_bench_sums_of(struct bps_bench_sums *m, const struct bps_instance *reducer);
/* Ordinary numbers in all types. */
void bps_bench_sums_fill(struct bps_bench_sums *m);
/* Bytes read and written per second. */
double bps_bench_sums_measure(const struct bps_bench_sums *m, enum bps_bench_sums_step step);

#endif
