/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.h - the kernels of one instruction set.
 *
 * kernels.c is compiled once for each instruction set; each time it defines one of these tables. The key of an element
 * is the bits of its magnitude, as a number without sign: keys have the order of magnitudes, and NaN is above all.
 */
#ifndef BPS_TOPK_KERNELS_H
#define BPS_TOPK_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#define BINS 2048u
#define POOL 16384u

/* Keys from low to last, in bins of 2^shift keys. */
struct range {
    uint64_t low, last;
    unsigned shift;
};

/*
 * How many elements have keys above a range and in it. Unless the range is a single key, also how many are in each of
 * its bins, and the first of those in it, at most POOL, in their order.
 */
struct tally {
    size_t above, inside, pooled;
    size_t bin[BINS];
    uint8_t pool[POOL * sizeof(double)];
};

/* Elements of one type at any address. */
struct topk_kernels {
    /* Adds these elements to a tally, whose pool they may be. */
    void (*tally)(const uint8_t *src, size_t count, const struct range *range, struct tally *tally);
    /* The places of those elements, of at most 65536, whose key is `least` or more, in their order; how many. */
    size_t (*find)(const uint8_t *src, size_t count, uint64_t least, uint16_t *places);
};

struct topk_table {
    struct topk_kernels f32, f64;
};

extern const struct topk_table bps_topk_table_baseline;
extern const struct topk_table bps_topk_table_avx2;
extern const struct topk_table bps_topk_table_avx512;

#endif
