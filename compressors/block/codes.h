/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codes.h - codes in 32-bit lanes to the bytes of a unit and back.
 *
 * A byte has a row of codes whose places are STEP / PER apart, the first one in its lowest bits: so lanes go to bytes,
 * and bytes to lanes, in their order.
 */
#ifndef BPS_BLOCK_CODES_H
#define BPS_BLOCK_CODES_H

#include "kernels.h"
#include "util/vector.h"

/* Elements of a unit, the fewest that a block has, in so many vectors of 32-bit lanes. */
#define STEP    32u
#define VECTORS (STEP / LANES32)

#define BITS(width)       ((width) == BITS8 ? 8u : (width) == BITS4 ? 4u : 2u)
#define PER(width)        (8u / BITS(width)) /* codes of a byte */
#define STEP_CODES(width) (STEP / PER(width))

typedef VECTOR_TYPE(int8_t, VECTOR / 4) quarter_i8; /* as many bytes as a v_f32 has lanes */

/* Stores the lanes of n vectors, 1 to 4, or 2 to 8 of 16 bytes, as bytes; their upper bits are 0. */
INLINE void store_bytes(uint8_t *to, const v_u32 *lanes, unsigned n)
{
#if VECTOR == 64
    EACH(i, n) {
        _mm_storeu_si128((__m128i *)to + i, _mm512_cvtepi32_epi8((__m512i)lanes[i]));
    }
#elif VECTOR == 32
    __m256i low = _mm256_packus_epi32((__m256i)lanes[0], (__m256i)lanes[1 % n]);
    __m256i high = _mm256_packus_epi32((__m256i)lanes[2 % n], (__m256i)lanes[3 % n]);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order);
    memcpy(to, &bytes, (size_t)n * LANES32);
#elif defined(__SSE2__)
    EACH(i, (n + 3) / 4) {
        const v_u32 *from = lanes + (size_t)4 * i;
        __m128i low = _mm_packs_epi32((__m128i)from[0], (__m128i)from[1]);
        __m128i high = _mm_packs_epi32((__m128i)from[2 % n], (__m128i)from[3 % n]);
        __m128i bytes = _mm_packus_epi16(low, high);
        memcpy(to + sizeof bytes * i, &bytes, n < 4 ? 8 : 16);
    }
#else
    EACH(i, n) {
        quarter_u8 quarter = __builtin_convertvector(lanes[i], quarter_u8);
        STORE(to + i * sizeof quarter, quarter);
    }
#endif
}

/* The codes of a unit, of which only the lowest bits count. */
INLINE void store_codes(uint8_t *to, v_u32 codes[VECTORS], enum block_width width)
{
    unsigned n = VECTORS;
    EACH(i, VECTORS) {
        codes[i] &= (1u << BITS(width)) - 1;
    }
    if (width != BITS8) {
        n /= 2;
        EACH(i, VECTORS / 2) {
            codes[i] |= codes[i + VECTORS / 2] << 4;
        }
    }
    if (width == BITS2) {
#if VECTOR == 64
        __m256i low = _mm512_castsi512_si256((__m512i)codes[0]);
        __m256i high = _mm512_extracti64x4_epi64((__m512i)codes[0], 1);
        __m128i bytes = _mm256_cvtepi32_epi8(_mm256_or_si256(low, _mm256_slli_epi32(high, 2)));
        _mm_storel_epi64((__m128i *)to, bytes);
        return;
#else
        n /= 2;
        EACH(i, VECTORS / 4) {
            codes[i] |= codes[i + VECTORS / 4] << 2;
        }
#endif
    }
    store_bytes(to, codes, n);
}

/* Bytes with their sign. */
INLINE v_i32 load_bytes(const uint8_t *from)
{
#if VECTOR == 64
    return (v_i32)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)from));
#elif VECTOR == 32
    return (v_i32)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)from));
#else
    quarter_i8 bytes;
    LOAD(bytes, from);
    return __builtin_convertvector(bytes, v_i32);
#endif
}

/* Vector i of the codes of a unit, which are numbers with a sign. */
INLINE v_i32 load_codes(const uint8_t *from, unsigned i, enum block_width width)
{
#if VECTOR == 64
    if (width == BITS2) {
        const v_i32 above = {30, 30, 30, 30, 30, 30, 30, 30, 28, 28, 28, 28, 28, 28, 28, 28};
        __m128i bytes = _mm_loadl_epi64((const __m128i *)from);
        return (v_i32)_mm512_cvtepi8_epi32(_mm_unpacklo_epi64(bytes, bytes)) << (above - 4 * (int32_t)i) >> 30;
    }
#endif
    const unsigned vectors = VECTORS / PER(width) > 0 ? VECTORS / PER(width) : 1;
    v_i32 bytes = load_bytes(from + (size_t)(i % vectors) * LANES32);
    unsigned above = 32 - BITS(width) * (i / vectors + 1);
    return width == BITS8 ? bytes : (v_i32)((v_u32)bytes << above) >> (32 - BITS(width));
}

#endif
