/* SPDX-License-Identifier: Apache-2.0 */
/*
 * float8.h - E4M3 (float8_e4m3fn) and E5M2 (float8_e5m2) to float32 and back.
 *
 * To float32 is exact. Back rounds to nearest, ties to even; subnormals are kept. What is too large becomes
 * infinite, or NaN in E4M3, which has no infinity; a NaN must be NAN_F32 already.
 */
#ifndef BPS_CPU_FLOAT8_H
#define BPS_CPU_FLOAT8_H

#include "half.h"
#include "vector.h"

/* 8-bit elements to the lowest bytes of 32-bit lanes, and back: the other bytes must be 0. */
#if VECTOR == 64

static inline v_u32 float8_widen(const uint8_t *address)
{
    return (v_u32)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)address));
}

static inline void float8_narrow(uint8_t *address, v_u32 bits)
{
    _mm_storeu_si128((__m128i *)address, _mm512_cvtepi32_epi8((__m512i)bits));
}

#elif VECTOR == 32

static inline v_u32 float8_widen(const uint8_t *address)
{
    return (v_u32)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)address));
}

static inline void float8_narrow(uint8_t *address, v_u32 bits)
{
    __m128i low = _mm256_castsi256_si128((__m256i)bits), high = _mm256_extracti128_si256((__m256i)bits, 1);
    __m128i words = _mm_packs_epi32(low, high);

    _mm_storel_epi64((__m128i *)address, _mm_packus_epi16(words, words));
}

#elif defined(__SSE2__)

static inline v_u32 float8_widen(const uint8_t *address)
{
    __m128i zero = _mm_setzero_si128();
    int four;

    memcpy(&four, address, sizeof four);
    return (v_u32)_mm_unpacklo_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128(four), zero), zero);
}

static inline void float8_narrow(uint8_t *address, v_u32 bits)
{
    __m128i words = _mm_packs_epi32((__m128i)bits, (__m128i)bits);
    int four = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));

    memcpy(address, &four, sizeof four);
}

#else

typedef VECTOR_TYPE(uint8_t, VECTOR / 4) v_quarter; /* as many 8-bit elements as a v_f32 has lanes */

static inline v_u32 float8_widen(const uint8_t *address)
{
    v_quarter quarter;

    LOAD(quarter, address);
    return __builtin_convertvector(quarter, v_u32);
}

static inline void float8_narrow(uint8_t *address, v_u32 bits)
{
    v_quarter quarter = __builtin_convertvector(bits, v_quarter);

    STORE(address, quarter);
}

#endif

/* Without the sign: the product puts the exponent right, of subnormals too. */
static inline v_u32 float8_magnitude(v_u32 bits, unsigned fraction, float power)
{
    return (v_u32)((v_f32)((bits & 0x7fu) << (23 - fraction)) * power);
}

/* Without the sign, and without what is too large. */
static inline v_u32 float8_round(v_u32 magnitude, unsigned fraction, unsigned bias)
{
    unsigned cut = 23 - fraction;
    v_u32 half = ((1u << (cut - 1)) - 1u) + (magnitude >> cut & 1u);
    v_u32 normal = (magnitude - ((127u - bias) << 23) + half) >> cut;
    /* Beside this number the last place of a float32 is that of a subnormal: the addition rounds to it. */
    v_u32 number = ((v_u32){0}) + ((127u + 24u - bias - fraction) << 23);
    v_u32 subnormal = (v_u32)((v_f32)magnitude + (v_f32)number) - number;
    v_u32 small = (v_u32)((v_i32)magnitude < (int32_t)((128u - bias) << 23));

    return SELECT(small, subnormal, normal);
}

/* ---- E4M3 ---------------------------------------------------------------------------------------------- */

static inline v_f32 e4m3_load(const uint8_t *address)
{
    v_u32 bits = float8_widen(address);
    v_u32 nan = (v_u32)((bits & 0x7fu) == 0x7fu) & NAN_F32;

    return (v_f32)((bits & 0x80u) << 24 | float8_magnitude(bits, 3, 0x1p120f) | nan);
}

static inline void e4m3_store(uint8_t *address, v_f32 value)
{
    v_u32 magnitude = (v_u32)value & 0x7fffffffu;
    v_u32 large = (v_u32)((v_i32)magnitude > 0x43e80000); /* than the middle between 448 and what would follow */
    v_u32 number = ((v_u32)value >> 24 & 0x80u) | float8_round(magnitude, 3, 7);

    float8_narrow(address, SELECT(large, 0x7fu, number));
}

/* ---- E5M2 ---------------------------------------------------------------------------------------------- */

static inline v_f32 e5m2_load(const uint8_t *address)
{
    v_u32 bits = float8_widen(address);
    /* Infinity and NaN have the largest exponent. */
    v_u32 infinite = (v_u32)((v_i32)(bits & 0x7fu) >= 0x7c) & 0x7f800000u;

    return (v_f32)((bits & 0x80u) << 24 | float8_magnitude(bits, 2, 0x1p112f) | infinite);
}

static inline void e5m2_store(uint8_t *address, v_f32 value)
{
    v_u32 magnitude = (v_u32)value & 0x7fffffffu;
    v_u32 large = (v_u32)((v_i32)magnitude >= 0x47800000);
    v_u32 nan = (v_u32)((v_i32)magnitude > 0x7f800000);
    v_u32 number = SELECT(large, 0x7cu | (nan & 0x02u), float8_round(magnitude, 2, 15));

    float8_narrow(address, ((v_u32)value >> 24 & 0x80u) | number);
}

#endif
