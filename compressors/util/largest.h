/* SPDX-License-Identifier: Apache-2.0 */
/*
 * largest.h - the largest magnitude among elements, which a scale is made of.
 *
 * Without signs, floating point is ordered as its bits are; those of infinity are larger, and those of NaN the largest.
 */
#ifndef BPS_COMPRESSOR_LARGEST_H
#define BPS_COMPRESSOR_LARGEST_H

#include <stdbool.h>

#include "util/vector.h"

#define SIGN_F32     0x80000000u
#define SIGN_F64     0x8000000000000000ull
#define INFINITY_F32 0x7f800000u
#define INFINITY_F64 0x7ff0000000000000ull

#define LARGEST_STEP 32u /* elements of float32 at once */

/* The larger lanes of numbers without signs. */
INLINE v_u32 larger32(v_u32 a, v_u32 b)
{
#if VECTOR == 64
    return (v_u32)_mm512_max_epi32((__m512i)a, (__m512i)b);
#elif VECTOR == 32
    return (v_u32)_mm256_max_epi32((__m256i)a, (__m256i)b);
#else
    return SELECT((v_u32)((v_i32)a > (v_i32)b), a, b);
#endif
}

INLINE v_u64 larger64(v_u64 a, v_u64 b)
{
    return SELECT((v_u64)((v_i64)a > (v_i64)b), a, b);
}

/* The largest lane. */
INLINE uint32_t largest_lane32(v_u32 x)
{
#if VECTOR == 64
    return (uint32_t)_mm512_reduce_max_epi32((__m512i)x);
#elif VECTOR == 32
    __m128i y = _mm_max_epi32(_mm256_castsi256_si128((__m256i)x), _mm256_extracti128_si256((__m256i)x, 1));
    y = _mm_max_epi32(y, _mm_shuffle_epi32(y, _MM_SHUFFLE(1, 0, 3, 2)));
    y = _mm_max_epi32(y, _mm_shuffle_epi32(y, _MM_SHUFFLE(2, 3, 0, 1)));
    return (uint32_t)_mm_cvtsi128_si32(y);
#else
    uint32_t all = 0;
    for (unsigned i = 0; i < LANES32; i++) {
        all = x[i] > all ? x[i] : all;
    }
    return all;
#endif
}

/* The largest magnitude, as its bits: of all elements, or of the finite ones. */
INLINE uint32_t largest32(const uint8_t *src, size_t count, bool finite)
{
    v_u32 most = {0}, x;
    for (; count > 0; count = count > LARGEST_STEP ? count - LARGEST_STEP : 0, src += LARGEST_STEP * 4) {
        uint8_t rest[LARGEST_STEP * 4];
        const uint8_t *from = src;
        if (count < LARGEST_STEP) {
            memset(rest, 0, sizeof rest);
            from = memcpy(rest, src, count * 4);
        }
        EACH(i, LARGEST_STEP / LANES32) {
            LOAD(x, from + i * sizeof x);
            x &= ~SIGN_F32;
            most = larger32(most, finite ? x & (v_u32)((v_i32)x < (int32_t)INFINITY_F32) : x);
        }
    }
    return largest_lane32(most);
}

INLINE uint64_t largest64(const uint8_t *src, size_t count, bool finite)
{
    v_u64 most = {0}, x;
    uint64_t all = 0;
    for (size_t i = 0; i < count; i += LANES64) {
        if (count - i >= LANES64) {
            LOAD(x, src + 8 * i);
        } else {
            x = (v_u64){0};
            memcpy(&x, src + 8 * i, 8 * (count - i));
        }
        x &= ~SIGN_F64;
        most = larger64(most, finite ? x & (v_u64)((v_i64)x < (int64_t)INFINITY_F64) : x);
    }
    for (unsigned i = 0; i < LANES64; i++) {
        all = most[i] > all ? most[i] : all;
    }
    return all;
}

#endif
