/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.h - the kernels of one instruction set.
 *
 * kernels.c is compiled once for each instruction set; each time it defines one of these tables.
 */
#ifndef BPS_BLOCK_KERNELS_H
#define BPS_BLOCK_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The values of the option bits. */
enum block_width { BITS8, BITS4, BITS2, BLOCK_WIDTHS };
#define BITS_WORDS "8|4|2"

/* The types of elements. */
enum block_type { F32, F64, BLOCK_TYPES };

#define SCALE_BYTES 4u

/* Elements of one type and codes of one width, at any address. */
struct block_kernels {
    void (*encode)(const uint8_t *src, size_t count, size_t block, uint8_t *dst);
    /* Rounds by chance; numbers are drawn with that key. */
    void (*encode_by_chance)(const uint8_t *src, size_t count, size_t block, uint64_t key, uint8_t *dst);
    /* false: these cannot be bytes that encode has made; dst is undefined then. decode_add adds to dst. */
    bool (*decode)(const uint8_t *src, size_t count, size_t block, uint8_t *dst);
    bool (*decode_add)(const uint8_t *src, size_t count, size_t block, uint8_t *dst);
};

struct block_table {
    struct block_kernels of[BLOCK_TYPES][BLOCK_WIDTHS];
};

extern const struct block_table bps_block_table_baseline;
extern const struct block_table bps_block_table_avx2;
extern const struct block_table bps_block_table_avx512;

#endif
