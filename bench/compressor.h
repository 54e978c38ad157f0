/* SPDX-License-Identifier: Apache-2.0 */
/* compressor.h - how a compressor is measured: at float32, on one thread. */
#ifndef BPS_BENCH_COMPRESSOR_H
#define BPS_BENCH_COMPRESSOR_H

#include <stdbool.h>
#include <stddef.h>

#include <byteps/compressor.h>

enum bps_bench_coding_step {
    BPS_BENCH_CODING_COPY,
    BPS_BENCH_ENCODE,
    BPS_BENCH_DECODE,
    BPS_BENCH_DECODE_ADD,
    BPS_BENCH_CODING_STEPS
};

/* The buffers of one size. */
struct bps_bench_coding {
    const struct bps_compressor_ops *ops;
    void *self;
    size_t bytes, count, coded_bytes;
    float *src, *dst;
    char *coded;
};

/* Of `ops` and `self`. False: there is no memory; bps_bench_coding_close() is due all the same. */
bool bps_bench_coding_open(struct bps_bench_coding *m, size_t count);
void bps_bench_coding_close(struct bps_bench_coding *m);
/* Bytes of elements per second. What is decoded was encoded before. */
double bps_bench_coding_measure(struct bps_bench_coding *m, enum bps_bench_coding_step step);
/* |decoded - src| / |src|, as vectors. */
double bps_bench_coding_error(struct bps_bench_coding *m);

#endif
