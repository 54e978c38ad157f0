/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.h - the kernels of one instruction set.
 *
 * kernels.c is compiled once for each instruction set; each time it defines one of these tables.
 */
#ifndef BPS_ONEBIT_KERNELS_H
#define BPS_ONEBIT_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* Elements of one type at any address; bits as the format has them. */
struct onebit_kernels {
    /* Writes the signs of the elements and returns the sum of their magnitudes. */
    double (*encode)(const uint8_t *src, size_t count, uint8_t *bits);
    /* The same, but the sum is 0, or NaN if any element is not finite. */
    double (*encode_unscaled)(const uint8_t *src, size_t count, uint8_t *bits);
    /* dst = the scale with these signs */
    void (*decode)(const uint8_t *bits, size_t count, double scale, uint8_t *dst);
    /* dst += the scale with these signs */
    void (*decode_add)(const uint8_t *bits, size_t count, double scale, uint8_t *dst);
};

struct onebit_table {
    struct onebit_kernels f32, f64;
};

extern const struct onebit_table bps_onebit_table_baseline;
extern const struct onebit_table bps_onebit_table_avx2;
extern const struct onebit_table bps_onebit_table_avx512;

#endif
