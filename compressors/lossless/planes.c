/* SPDX-License-Identifier: Apache-2.0 */
/* planes.c - elements to byte planes and back. */
#include "planes.h"

#include <string.h>

static void split32(const uint8_t *src, size_t count, uint8_t *planes)
{
    for (size_t i = 0; i < count; i++, src += 4, planes++) {
        uint32_t x;
        memcpy(&x, src, sizeof x);
        x = x << 1 | x >> 31;
        for (size_t p = 0; p < 4; p++) {
            planes[p * count] = (uint8_t)(x >> (24 - 8 * p));
        }
    }
}

static void split64(const uint8_t *src, size_t count, uint8_t *planes)
{
    for (size_t i = 0; i < count; i++, src += 8, planes++) {
        uint64_t x;
        memcpy(&x, src, sizeof x);
        x = x << 1 | x >> 63;
        for (size_t p = 0; p < 8; p++) {
            planes[p * count] = (uint8_t)(x >> (56 - 8 * p));
        }
    }
}

void bps_lossless_split(const uint8_t *src, size_t count, size_t size, uint8_t *planes)
{
    (size == 4 ? split32 : split64)(src, count, planes);
}

static void join32(const uint8_t *planes, size_t count, uint8_t *dst, bool add)
{
    for (size_t i = 0; i < count; i++, dst += 4, planes++) {
        uint32_t bits = 0;
        float x, y;
        for (size_t p = 0; p < 4; p++) {
            bits = bits << 8 | planes[p * count];
        }
        bits = bits >> 1 | bits << 31;
        if (add) {
            memcpy(&x, dst, sizeof x);
            memcpy(&y, &bits, sizeof y);
            x += y;
            memcpy(&bits, &x, sizeof bits);
        }
        memcpy(dst, &bits, sizeof bits);
    }
}

static void join64(const uint8_t *planes, size_t count, uint8_t *dst, bool add)
{
    for (size_t i = 0; i < count; i++, dst += 8, planes++) {
        uint64_t bits = 0;
        double x, y;
        for (size_t p = 0; p < 8; p++) {
            bits = bits << 8 | planes[p * count];
        }
        bits = bits >> 1 | bits << 63;
        if (add) {
            memcpy(&x, dst, sizeof x);
            memcpy(&y, &bits, sizeof y);
            x += y;
            memcpy(&bits, &x, sizeof bits);
        }
        memcpy(dst, &bits, sizeof bits);
    }
}

void bps_lossless_join(const uint8_t *planes, size_t count, size_t size, uint8_t *dst, bool add)
{
    (size == 4 ? join32 : join64)(planes, count, dst, add);
}
