/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.h - the kernels of one instruction set.
 *
 * kernels.c is compiled once for each instruction set; each time it defines one of these tables.
 */
#ifndef BPS_CAST_KERNELS_H
#define BPS_CAST_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The values of the option to. */
enum cast_format { FLOAT16, BFLOAT16, E4M3, E5M2, CAST_FORMATS };
#define CAST_WORDS "float16|bfloat16|float8_e4m3|float8_e5m2"

/* The types of elements. */
enum cast_type { F32, F64, CAST_TYPES };

#define SCALE_BYTES 4u

/* Elements of one type and codes of one format, at any address. Formats of 16 bits have no blocks. */
struct cast_kernels {
    void (*encode)(const uint8_t *src, size_t count, size_t block, uint8_t *dst);
    /* false: a scale cannot be what encode has made; dst is undefined then. decode_add adds to dst. */
    bool (*decode)(const uint8_t *src, size_t count, size_t block, uint8_t *dst);
    bool (*decode_add)(const uint8_t *src, size_t count, size_t block, uint8_t *dst);
};

struct cast_table {
    struct cast_kernels of[CAST_TYPES][CAST_FORMATS];
};

extern const struct cast_table bps_cast_table_baseline;
extern const struct cast_table bps_cast_table_avx2;
extern const struct cast_table bps_cast_table_avx512;

#endif
