/* SPDX-License-Identifier: Apache-2.0 */
/*
 * philox.h - numbers for rounding: Philox4x32-10 of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3",
 * SC 2011, which makes four numbers of 32 bits of a key and a counter, in any order.
 */
#ifndef BPS_COMPRESSOR_PHILOX_H
#define BPS_COMPRESSOR_PHILOX_H

#include "util/vector.h"

#define PHILOX_ROUNDS  10
#define PHILOX_FACTOR0 0xd2511f53u
#define PHILOX_FACTOR1 0xcd9e8d57u
#define PHILOX_STEP0   0x9e3779b9u
#define PHILOX_STEP1   0xbb67ae85u

/* The products of the lower halves of 64-bit lanes; of a loop of plain products compilers make much more. */
#if VECTOR == 64
#define PRODUCTS(x, factor) ((v_u64)_mm512_mul_epu32((__m512i)(x), (__m512i)((v_u64){0} + (factor))))
#elif VECTOR == 32
#define PRODUCTS(x, factor) ((v_u64)_mm256_mul_epu32((__m256i)(x), (__m256i)((v_u64){0} + (factor))))
#elif defined(__SSE2__)
#define PRODUCTS(x, factor) ((v_u64)_mm_mul_epu32((__m128i)(x), (__m128i)((v_u64){0} + (factor))))
#else
#define PRODUCTS(x, factor) (((x) & 0xffffffffu) * (factor))
#endif

static const uint64_t lane_numbers[8] = {0, 1, 2, 3, 4, 5, 6, 7};

/*
 * Four numbers of each of as many counters as there are lanes, from `counter` on. Words are in the lower halves of
 * lanes; what is in the upper ones is nothing.
 */
INLINE void philox(uint64_t key, uint64_t counter, v_u64 word[4])
{
    v_u64 lane, c0, c1, c2 = {0}, c3 = {0};
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    LOAD(lane, lane_numbers);
    c0 = lane + counter;
    c1 = c0 >> 32;
    EACH(i, PHILOX_ROUNDS) { /* a loop would move words and keys between registers in each round */
        v_u64 p0 = PRODUCTS(c0, PHILOX_FACTOR0), p1 = PRODUCTS(c2, PHILOX_FACTOR1);
        c0 = p1 >> 32 ^ c1 ^ k0;
        c1 = p1;
        c2 = p0 >> 32 ^ c3 ^ k1;
        c3 = p0;
        k0 += PHILOX_STEP0;
        k1 += PHILOX_STEP1;
    }
    word[0] = c0;
    word[1] = c1;
    word[2] = c2;
    word[3] = c3;
}

/*
 * The numbers of so many counters, a multiple of 8 and at most 16, from `counter` on: four of each. Of n counters the
 * number e is the word 2 * (e / 2n) + e % 2 of the counter e % 2n / 2: so it is the same one whatever the width of
 * vectors, and words need not change lanes.
 */
INLINE void philox_numbers(uint64_t key, uint64_t counter, unsigned counters, uint32_t *number)
{
    EACH(i, counters / LANES64) {
        v_u64 word[4];
        philox(key, counter + i * LANES64, word);
        v_u64 low = (word[0] & 0xffffffffu) | word[1] << 32, high = (word[2] & 0xffffffffu) | word[3] << 32;
        STORE(number + i * LANES32, low);
        STORE(number + 2 * counters + i * LANES32, high);
    }
}

#endif
