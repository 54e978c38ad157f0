/* SPDX-License-Identifier: Apache-2.0 */
/*
 * half.h - float16 and bfloat16 to float32 and back.
 *
 * To float32 is exact. Back rounds to nearest, ties to even; subnormals are kept, too large values become
 * infinite, and a NaN must be NAN_F32 already. Instructions are used where they do exactly this.
 */
#ifndef BPS_CPU_HALF_H
#define BPS_CPU_HALF_H

#include "vector.h"

#define NAN_F32 0x7fc00000u

/* 16-bit elements to the lower halves of 32-bit lanes, and back: the upper halves must be 0. */
#if VECTOR == 64

static inline v_u32 half_widen(const uint8_t *address)
{
    return (v_u32)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)address));
}

#elif VECTOR == 32

static inline v_u32 half_widen(const uint8_t *address)
{
    return (v_u32)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)address));
}

#elif defined(__SSE2__)

static inline v_u32 half_widen(const uint8_t *address)
{
    return (v_u32)_mm_unpacklo_epi16(_mm_loadl_epi64((const __m128i *)address), _mm_setzero_si128());
}

static inline void half_narrow(uint8_t *address, v_u32 bits)
{
    /* The pack is one of signed numbers. */
    __m128i extended = _mm_srai_epi32(_mm_slli_epi32((__m128i)bits, 16), 16);

    _mm_storel_epi64((__m128i *)address, _mm_packs_epi32(extended, extended));
}

#else

static inline v_u32 half_widen(const uint8_t *address)
{
    v_half half;

    LOAD(half, address);
    return __builtin_convertvector(half, v_u32);
}

static inline void half_narrow(uint8_t *address, v_u32 bits)
{
    v_half half = __builtin_convertvector(bits, v_half);

    STORE(address, half);
}

#endif

/* Stores the 16-bit elements with even numbers and behind them those with odd ones. */
#if VECTOR == 64

static inline void half_unravel(uint8_t *address, v_u32 both)
{
    _mm256_storeu_si256((__m256i *)address, _mm512_cvtepi32_epi16((__m512i)both));
    _mm256_storeu_si256((__m256i *)(address + VECTOR / 2), _mm512_cvtepi32_epi16((__m512i)(both >> 16)));
}

#elif VECTOR == 32

static inline void half_unravel(uint8_t *address, v_u32 both)
{
    const __m256i order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    __m256i parted = _mm256_shuffle_epi8((__m256i)both, order);

    _mm256_storeu_si256((__m256i *)address, _mm256_permute4x64_epi64(parted, _MM_SHUFFLE(3, 1, 2, 0)));
}

#elif defined(__SSE2__)

static inline void half_unravel(uint8_t *address, v_u32 both)
{
    /* The pack is one of signed numbers. */
    __m128i even = _mm_srai_epi32(_mm_slli_epi32((__m128i)both, 16), 16);
    __m128i odd = _mm_srai_epi32((__m128i)both, 16);

    _mm_storeu_si128((__m128i *)address, _mm_packs_epi32(even, odd));
}

#else

static inline void half_unravel(uint8_t *address, v_u32 both)
{
    half_narrow(address, both & 0xffffu);
    half_narrow(address + VECTOR / 2, both >> 16);
}

#endif

/* ---- bfloat16: the upper half of a float32 ------------------------------------------------------------- */

static inline v_f32 bf16_load(const uint8_t *address)
{
    return (v_f32)(half_widen(address) << 16);
}

/* The lower halves of the lanes of one vector with the upper halves of another. */
#if VECTOR == 32
#define HALVES(low, high) ((v_u32)_mm256_blend_epi16((__m256i)(low), (__m256i)(high), 0xaa))
#else
#define HALVES(low, high) SELECT(0xffff0000u, high, low)
#endif

/* The difference of 16-bit elements, 0 where it would be less. */
#if VECTOR == 64
#define SUBTRACT(a, b) ((v_u16)_mm512_subs_epu16((__m512i)(a), (__m512i)(b)))
#elif VECTOR == 32
#define SUBTRACT(a, b) ((v_u16)_mm256_subs_epu16((__m256i)(a), (__m256i)(b)))
#elif defined(__SSE2__)
#define SUBTRACT(a, b) ((v_u16)_mm_subs_epu16((__m128i)(a), (__m128i)(b)))
#else
#define SUBTRACT(a, b) ((v_u16)((a) >= (b)) & ((a) - (b)))
#endif

/*
 * Rounds two vectors with fewer operations than one after the other: `upper` is what stays, `lower` what is
 * cut off. That rounds up from 0x8000, or from 0x8001 if `upper` is even: so it is one less then.
 */
static inline v_u32 bf16_round(const v_f32 value[2])
{
    v_u32 even = (v_u32)value[0], odd = (v_u32)value[1];
    v_u16 upper = (v_u16)HALVES(even >> 16, odd);
    v_u16 lower = (v_u16)HALVES(even, odd << 16);

    return (v_u32)(upper + (SUBTRACT(lower, ~upper & 1) >> 15));
}

/* One vector has the elements with even numbers, the other those with odd ones: that takes no shuffling. */
static inline void bf16_split(v_f32 out[2], const uint8_t *address)
{
    v_u32 both;

    LOAD(both, address);
    out[0] = (v_f32)(both << 16);
    out[1] = (v_f32)(both & 0xffff0000u);
}

static inline void bf16_join(uint8_t *address, const v_f32 value[2])
{
    v_u32 both = bf16_round(value);

    STORE(address, both);
}

#if defined(__AVX512BF16__) && VECTOR == 64

#define SUBNORMAL 0x20 /* a class of vfpclassps */

static inline void bf16_store2(uint8_t *address, const v_f32 value[2])
{
    __mmask16 low = _mm512_fpclass_ps_mask((__m512)value[0], SUBNORMAL);
    __mmask16 high = _mm512_fpclass_ps_mask((__m512)value[1], SUBNORMAL);

    /* The instruction takes subnormals for zeros: they go the long way, as rare as they are. */
    if (__builtin_expect(_kortestz_mask16_u8(low, high), 1)) {
        __m512bh half = _mm512_cvtne2ps_pbh((__m512)value[1], (__m512)value[0]);
        STORE(address, half);
    } else {
        half_unravel(address, bf16_round(value));
    }
}

#else

static inline void bf16_store2(uint8_t *address, const v_f32 value[2])
{
    half_unravel(address, bf16_round(value));
}

#endif

/* ---- float16 ------------------------------------------------------------------------------------------- */

#if VECTOR == 64

static inline v_f32 f16_load(const uint8_t *address)
{
    return (v_f32)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)address));
}

static inline void f16_store(uint8_t *address, v_f32 value)
{
    _mm256_storeu_si256((__m256i *)address, _mm512_cvtps_ph((__m512)value, _MM_FROUND_TO_NEAREST_INT));
}

#elif VECTOR == 32

static inline v_f32 f16_load(const uint8_t *address)
{
    return (v_f32)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)address));
}

static inline void f16_store(uint8_t *address, v_f32 value)
{
    _mm_storeu_si128((__m128i *)address, _mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT));
}

#else

static inline v_f32 f16_load(const uint8_t *address)
{
    v_u32 bits = half_widen(address);
    v_u32 sign = (bits & 0x8000u) << 16;
    v_u32 magnitude = (bits & 0x7fffu) << 13;
    /* The product puts the exponent right, of subnormals too. Infinity and NaN have the largest exponent. */
    v_u32 value = (v_u32)((v_f32)magnitude * 0x1p112f);
    v_u32 infinite = (v_u32)((v_i32)magnitude >= 0x0f800000) & 0x7f800000u;

    return (v_f32)(sign | value | infinite);
}

static inline void f16_store(uint8_t *address, v_f32 value)
{
    v_u32 bits = (v_u32)value;
    v_u32 sign = bits >> 16 & 0x8000u;
    v_i32 magnitude = (v_i32)(bits & 0x7fffffffu);
    v_u32 normal = ((v_u32)magnitude - (112u << 23) + 0xfffu + (bits >> 13 & 1u)) >> 13;
    /* Beside 0.5 the last place of a float32 is that of a float16 subnormal: the addition rounds to it. */
    v_u32 subnormal = (v_u32)((v_f32)magnitude + 0.5f) - 0x3f000000u;
    v_u32 small = (v_u32)(magnitude < 0x38800000);
    v_u32 large = (v_u32)(magnitude >= 0x47800000);
    v_u32 nan = (v_u32)(magnitude > 0x7f800000);
    v_u32 half = SELECT(small, subnormal, normal);

    half = SELECT(large, 0x7c00u | (nan & 0x0200u), half);
    half_narrow(address, sign | half);
}

#endif

#endif
