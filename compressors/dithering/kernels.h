/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.h - the kernels of one instruction set.
 *
 * kernels.c is compiled once for each instruction set; each time it defines one of these tables.
 */
#ifndef BPS_DITHERING_KERNELS_H
#define BPS_DITHERING_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The values of the option partition. */
enum dithering_partition { LINEAR, NATURAL, PARTITIONS };
#define PARTITION_WORDS "linear|natural"

/* The types of elements. */
enum dithering_type { F32, F64, DITHERING_TYPES };

/*
 * Elements become codes: twice the number of the level, plus 1 if it is negative; 0 is zero. The number 0 stands for
 * zero; j for j / levels of the scale if the partition is linear, for 2^(j - levels) of it if it is natural.
 */
#define UNIT 64u /* elements that the kernels take at once */

/* The elements of a slice from `first` on, which is a multiple of UNIT, draw their numbers with this key. */
struct dithering_draw {
    uint64_t key, first;
};

struct dithering_rounding {
    /* Writes the codes. The scale is positive. */
    void (*round)(const uint8_t *src, size_t count, struct dithering_draw draw, double scale, uint32_t levels,
                  uint16_t *codes);
    /* dst = what the codes stand for; dst += it. */
    void (*decode)(const uint16_t *codes, size_t count, double scale, uint32_t levels, uint8_t *dst);
    void (*decode_add)(const uint16_t *codes, size_t count, double scale, uint32_t levels, uint8_t *dst);
};

/* Elements of one type at any address. */
struct dithering_kernels {
    /* The largest magnitude; infinity or NaN, which is the larger one, if there is one. */
    double (*largest)(const uint8_t *src, size_t count);
    /* The sum of the squares of the elements times `factor`, which is a power of two. */
    double (*squares)(const uint8_t *src, size_t count, double factor);
    struct dithering_rounding of[PARTITIONS];
};

struct dithering_table {
    struct dithering_kernels of[DITHERING_TYPES];
    /* How many bits codes, at most CODES_LIMIT, take in Elias's form at least. */
    uint64_t (*least_elias)(const uint16_t *codes, size_t count);
    /* false: a level is none, or zero has a sign. */
    bool (*are_codes)(const uint16_t *codes, size_t count, uint32_t levels);
};

extern const struct dithering_table bps_dithering_table_baseline;
extern const struct dithering_table bps_dithering_table_avx2;
extern const struct dithering_table bps_dithering_table_avx512;

#endif
