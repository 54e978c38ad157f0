/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spread.h - rows at their places among those that are not there, and the way back: short ones are summed faster so,
 * all at once, than each by a call of the reducer.
 */
#ifndef BPS_SUM_SPREAD_H
#define BPS_SUM_SPREAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BPS_SPREAD_CHUNK 8192u /* bytes of rows at once, or of 64 rows: with a few sources they stay in the L1 cache */

/*
 * What a call of the reducer for a row costs, as bytes of rows, there or not, that are spread and summed meanwhile. It
 * costs so much where the row leaves a rest to kernels that take a block at a time; where it leaves none, spreading has
 * never paid. Measured with the reducer cpu and random rows of float32, time spread / row by row: 2 workers with 1 % of
 * rows of 4 bytes 0.5, of 16 bytes 0.8, of 64 bytes 2.9, and below 1 from 4 % on; of 192 bytes from 11 % on, of 480
 * bytes from 32 % on; 256 bytes 1.8 even with 75 %. 4 workers: 64 bytes from 4 %, 192 bytes from 15 %, 480 bytes from
 * 29 % on. All of these cross between 1,400 and 2,600.
 */
#define BPS_SPREAD_CALL  1600u
#define BPS_SPREAD_BLOCK 256u

/* Whether it pays where so many rows are there, of so many that there may be, from so many sources. */
static inline bool bps_spread_pays(uint32_t sources, uint32_t count, uint32_t rows, uint32_t row)
{
    return row % BPS_SPREAD_BLOCK != 0 && (uint64_t)rows * row * sources <= (uint64_t)count * BPS_SPREAD_CALL;
}

/* Words of bits, one bit for each row, that a chunk has. */
static inline size_t bps_spread_words(uint32_t row)
{
    size_t words = BPS_SPREAD_CHUNK / 64 / row;
    return words > 0 ? words : 1;
}

static inline uint32_t bps_bits_count(const uint64_t *bits, size_t words)
{
    uint32_t n = 0;
    for (size_t w = 0; w < words; w++) {
        n += (uint32_t)__builtin_popcountll(bits[w]);
    }
    return n;
}

/* Zeros that change nothing that they are added to, not even its sign: negative ones, unless they get scaled so. */
void bps_spread_zeros(char *to, size_t bytes, uint32_t dtype, bool negated);
/* Copies each row that bits name to its place. */
void bps_spread(char *to, const char *from, const uint64_t *bits, size_t words, uint32_t row);
/* And back. */
void bps_spread_back(char *to, const char *from, const uint64_t *bits, size_t words, uint32_t row);

#endif
