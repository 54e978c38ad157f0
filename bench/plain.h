/* SPDX-License-Identifier: Apache-2.0 */
/* plain.h - loops that move the bytes of a reducer's kernels and do hardly more: the limit of the memory. */
#ifndef BPS_BENCH_PLAIN_H
#define BPS_BENCH_PLAIN_H

#include <stddef.h>

/* `bytes`: of a source, a multiple of 8; an element of the accumulator is `widening` (1, 2 or 4) times as wide. */
void bps_plain_fold(void *accumulator, const void *source, size_t bytes, size_t widening);
void bps_plain_finish(void *to, const void *accumulator, size_t bytes, size_t widening);
void bps_plain_reduce(void *to, const void *a, const void *b, size_t bytes);
/* Into the first of four. */
void bps_plain_reduce_many(void *to, const void *a, const void *b, const void *c, size_t bytes);

#endif
