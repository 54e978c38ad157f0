/* SPDX-License-Identifier: Apache-2.0 */
/*
 * original.h - levels as the original BytePS finds them: its arithmetic and its generator xorshift128+, from which each
 * element draws a number, in their order.
 *
 * Linear: v = |x| / scale * s, f the integer below. Natural: v = |x| / scale * 2^(s - 1), f half the power of two that
 * is not below v. The level is f, or with probability v - f, or (v - f) / f, the one above. v and the probability are
 * float32, the scale is float64 here. An element is then level * scale / s, or / 2^(s - 1), in its own type.
 */
#ifndef BPS_DITHERING_ORIGINAL_H
#define BPS_DITHERING_ORIGINAL_H

#include <stdbool.h>

#include "kernels.h"
#include "util/xorshift.h"

struct original {
    enum dithering_type type;
    enum dithering_partition partition;
    uint32_t levels;
};

void bps_dithering_original_round(const struct original *form, const uint8_t *src, size_t count, struct xorshift *state,
                                  double scale, uint16_t *codes);
void bps_dithering_original_decode(const struct original *form, const uint16_t *codes, size_t count, double scale,
                                   uint8_t *dst, bool add);

#endif
