/* SPDX-License-Identifier: Apache-2.0 */
/* original.c - levels as the original BytePS finds them. */
#include "original.h"

#include <math.h>
#include <string.h>

/* 2^64 - 1, which it multiplies with, is 2^64 as floating point. */
static uint32_t bernoulli(struct xorshift *state, double p)
{
    return (double)xorshift_next(state) < p * 0x1p64;
}

static double load(enum dithering_type type, const uint8_t *elements, size_t i)
{
    float narrow;
    double wide;
    if (type == F32) {
        memcpy(&narrow, elements + i * sizeof narrow, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, elements + i * sizeof wide, sizeof wide);
    return wide;
}

static uint32_t linear(struct xorshift *state, float v)
{
    uint32_t below = (uint32_t)v;
    float p = v - (float)below;
    return below + bernoulli(state, p);
}

/* The number of the level: 0, and k + 1 for 2^k. */
static uint32_t natural(struct xorshift *state, float v)
{
    uint32_t up = (uint32_t)ceilf(v), half = up > 1 ? 1u << (31 - __builtin_clz(up - 1)) : 0;
    float p = half > 0 ? (v - (float)half) / (float)half : v;
    return (half > 0 ? 32 - (uint32_t)__builtin_clz(half) : 0) + bernoulli(state, p);
}

static double top_of(const struct original *form)
{
    return form->partition == LINEAR ? form->levels : ldexp(1, (int)form->levels - 1);
}

void bps_dithering_original_round(const struct original *form, const uint8_t *src, size_t count, struct xorshift *state,
                                  double scale, uint16_t *codes)
{
    double top = top_of(form);
    for (size_t i = 0; i < count; i++) {
        double x = load(form->type, src, i);
        float v = (float)(fabs(x) / scale * top);
        uint32_t level = form->partition == LINEAR ? linear(state, v) : natural(state, v);
        codes[i] = (uint16_t)(level << 1 | (x < 0 && level > 0));
    }
}

void bps_dithering_original_decode(const struct original *form, const uint16_t *codes, size_t count, double scale,
                                   uint8_t *dst, bool add)
{
    double top = top_of(form);
    for (size_t i = 0; i < count; i++) {
        uint32_t number = codes[i] >> 1;
        double level = form->partition == LINEAR ? number : number > 0 ? ldexp(1, (int)number - 1) : 0;
        double sign = codes[i] & 1 ? -1 : 1, before = add ? load(form->type, dst, i) : 0;
        if (form->type == F32) {
            float x = (float)sign * ((float)level * (float)scale / (float)top), sum = (float)before + x;
            memcpy(dst + i * sizeof sum, &sum, sizeof sum);
        } else {
            double sum = before + sign * (level * scale / top);
            memcpy(dst + i * sizeof sum, &sum, sizeof sum);
        }
    }
}
