/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.h - vectors of float32 to the codes of a format and back.
 *
 * To float32 is exact. Back rounds to nearest, ties to even; subnormals are kept. What is too large becomes infinite,
 * in E4M3, which has no infinity, NaN. Every NaN becomes the one without sign and payload.
 */
#ifndef BPS_CAST_FORMAT_H
#define BPS_CAST_FORMAT_H

#include "kernels.h"
#include "util/largest.h"

#define NAN_F32 0x7fc00000u

/* Elements that are coded at once, the fewest that a block has, in so many vectors of float32. */
#define STEP    32u
#define VECTORS (STEP / LANES32)

/* What a format is made of: bits of the fraction, exponent of the smallest normal number, largest number. */
#define CODE_BYTES(format) ((format) == FLOAT16 || (format) == BFLOAT16 ? 2u : 1u)
#define FRACTION(format)   ((format) == FLOAT16 ? 10 : (format) == BFLOAT16 ? 7 : (format) == E4M3 ? 3 : 2)
#define EXPONENT(format)   ((format) == BFLOAT16 ? -126 : (format) == E4M3 ? -6 : -14)
#define LARGEST(format)    ((format) == E4M3 ? 448.0f : 57344.0f) /* of those with a scale */

/* ---- lanes: codes to the lowest bits of 32-bit lanes, and back; the other bits must be 0 ------------------- */

INLINE half_u16 load16(const uint8_t *from)
{
    half_u16 codes;
    LOAD(codes, from);
    return codes;
}

/* Codes of 8 bits in the lower halves of 16-bit lanes. */
INLINE half_u16 load8(const uint8_t *from)
{
#if VECTOR == 64
    return (half_u16)_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)from));
#elif VECTOR == 32
    return (half_u16)_mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)from));
#else
    quarter_u8 codes;
    LOAD(codes, from);
    return __builtin_convertvector(codes, half_u16);
#endif
}

INLINE v_u32 widen16(half_u16 codes)
{
#if VECTOR == 64
    return (v_u32)_mm512_cvtepu16_epi32((__m256i)codes);
#elif VECTOR == 32
    return (v_u32)_mm256_cvtepu16_epi32((__m128i)codes);
#else
    return __builtin_convertvector(codes, v_u32);
#endif
}

/* Stores the codes of a step, 16 bits each. */
INLINE void store16(uint8_t *to, const v_u32 codes[VECTORS])
{
#if VECTOR == 64
    EACH(i, VECTORS) {
        _mm256_storeu_si256((__m256i *)to + i, _mm512_cvtepi32_epi16((__m512i)codes[i]));
    }
#elif VECTOR == 32
    EACH(i, VECTORS / 2) {
        __m256i words = _mm256_packus_epi32((__m256i)codes[2 * i], (__m256i)codes[2 * i + 1]);
        _mm256_storeu_si256((__m256i *)to + i, _mm256_permute4x64_epi64(words, _MM_SHUFFLE(3, 1, 2, 0)));
    }
#else
    EACH(i, VECTORS) {
        half_u16 half = __builtin_convertvector(codes[i], half_u16);
        STORE(to + i * sizeof half, half);
    }
#endif
}

/* Stores the codes of a step, 8 bits each. */
INLINE void store8(uint8_t *to, const v_u32 codes[VECTORS])
{
#if VECTOR == 64
    EACH(i, VECTORS) {
        _mm_storeu_si128((__m128i *)to + i, _mm512_cvtepi32_epi8((__m512i)codes[i]));
    }
#elif VECTOR == 32
    __m256i low = _mm256_packs_epi32((__m256i)codes[0], (__m256i)codes[1]);
    __m256i high = _mm256_packs_epi32((__m256i)codes[2], (__m256i)codes[3]);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256((__m256i *)to, _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order));
#elif defined(__SSE2__)
    EACH(i, VECTORS / 4) {
        __m128i low = _mm_packs_epi32((__m128i)codes[4 * i], (__m128i)codes[4 * i + 1]);
        __m128i high = _mm_packs_epi32((__m128i)codes[4 * i + 2], (__m128i)codes[4 * i + 3]);
        _mm_storeu_si128((__m128i *)to + i, _mm_packus_epi16(low, high));
    }
#else
    EACH(i, VECTORS) {
        quarter_u8 quarter = __builtin_convertvector(codes[i], quarter_u8);
        STORE(to + i * sizeof quarter, quarter);
    }
#endif
}

/* ---- from a format ----------------------------------------------------------------------------------------- */

INLINE v_f32 from_float16(half_u16 codes)
{
#if VECTOR == 64
    return (v_f32)_mm512_cvtph_ps((__m256i)codes);
#elif VECTOR == 32
    return (v_f32)_mm256_cvtph_ps((__m128i)codes);
#else
    v_u32 bits = widen16(codes);
    v_u32 magnitude = (bits & 0x7fffu) << 13;
    /* The product puts the exponent right, of subnormals too. Infinity and NaN have the largest exponent. */
    v_u32 value = (v_u32)((v_f32)magnitude * 0x1p112f);
    v_u32 infinite = (v_u32)((v_i32)magnitude >= 0x0f800000) & INFINITY_F32;
    return (v_f32)((bits & 0x8000u) << 16 | value | infinite);
#endif
}

/* As float16 the exponent is 8 too small. */
INLINE v_f32 from_e4m3(half_u16 codes)
{
    half_u16 magnitude = codes & 0x7f;
    v_f32 value = from_float16((codes & 0x80) << 8 | magnitude << 7) * 256;
    v_u32 nan = (v_u32)(widen16(magnitude) == 0x7f);
    return (v_f32)SELECT(nan, NAN_F32, (v_u32)value);
}

/* E5M2 is the upper half of a float16. */
INLINE v_f32 from_format(const uint8_t *from, enum cast_format format)
{
    switch (format) {
    case FLOAT16:
        return from_float16(load16(from));
    case BFLOAT16:
        return (v_f32)(widen16(load16(from)) << 16);
    case E4M3:
        return from_e4m3(load8(from));
    default:
        return from_float16(load8(from) << 8);
    }
}

/* ---- to a format ------------------------------------------------------------------------------------------- */

/*
 * Magnitudes, and only those that the format has: their codes; above their bits may be others.
 *
 * Beside `number`, a power of two, the last place of a float32 is that of the format: the addition rounds to it, and
 * leaves in its lowest bits how many of these places there are. With the exponent above the fraction that is the code,
 * of subnormals too, whose exponent is that of the smallest normal number. The exponent of that counts as 1: this is
 * what is added to `number`. It is even, so ties stay what they are.
 */
INLINE v_u32 rounded(v_u32 magnitude, enum cast_format format)
{
    const unsigned cut = 23u - FRACTION(format), least = (unsigned)(127 + EXPONENT(format)) << 23;
    const uint32_t first = (0u - (least >> cut)) & (CODE_BYTES(format) == 1 ? 0xffu : 0xffffu);
    v_u32 power = larger32(magnitude, (v_u32){0} + least) & INFINITY_F32;
    v_u32 number = power + ((cut << 23) + first);
    return (v_u32)((v_f32)magnitude + (v_f32)number) + (power >> cut);
}

/* NaN excepted. */
INLINE v_u32 to_float16(v_f32 value)
{
#if VECTOR == 64
    return widen16((half_u16)_mm512_cvtps_ph((__m512)value, _MM_FROUND_TO_NEAREST_INT));
#elif VECTOR == 32
    return widen16((half_u16)_mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT));
#else
    v_u32 magnitude = (v_u32)value & ~SIGN_F32;
    v_u32 large = (v_u32)((v_i32)magnitude >= 0x47800000);
    v_u32 code = SELECT(large, 0x7c00u, rounded(magnitude, FLOAT16));
    return SELECT(0x7fffu, code, (v_u32)value >> 16) & 0xffffu;
#endif
}

/* NaN excepted. */
INLINE v_u32 to_bfloat16(v_f32 value)
{
    v_u32 bits = (v_u32)value;
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

/* `special`: there may be elements that are too large, infinite or NaN. */
INLINE v_u32 to_float8(v_f32 value, enum cast_format format, bool special)
{
    v_u32 magnitude = (v_u32)value & ~SIGN_F32, code = rounded(magnitude, format);
    code = (code & 0x7fu) | ((v_u32)value >> 24 & 0x80u);
    if (special && format == E4M3) {
        /* Than the middle between 448 and what would follow. */
        v_u32 large = (v_u32)((v_i32)magnitude > 0x43e80000);
        code = SELECT(large, 0x7fu, code);
    } else if (special) {
        v_u32 large = (v_u32)((v_i32)magnitude >= 0x47800000);
        code = SELECT(large, 0x7cu | (code & 0x80u), code);
    }
    return code;
}

/* `special` as above. */
INLINE v_u32 to_format(v_f32 value, enum cast_format format, bool special)
{
    v_u32 nan = (v_u32)((v_i32)((v_u32)value & ~SIGN_F32) > (int32_t)INFINITY_F32), code;
    switch (format) {
    case FLOAT16:
        return SELECT(nan, 0x7e00u, to_float16(value));
    case BFLOAT16:
        return SELECT(nan, 0x7fc0u, to_bfloat16(value));
    case E4M3:
        return to_float8(value, E4M3, special);
    default:
        code = to_float8(value, E5M2, special);
        return special ? SELECT(nan, 0x7eu, code) : code;
    }
}

INLINE void store_codes(uint8_t *to, const v_u32 codes[VECTORS], enum cast_format format)
{
    if (CODE_BYTES(format) == 1) {
        store8(to, codes);
    } else {
        store16(to, codes);
    }
}

#endif
