/* SPDX-License-Identifier: Apache-2.0 */
/* spread.c - rows at their places among those that are not there, and the way back. */
#include "sum/spread.h"

#include <string.h>

#include <byteps/types.h>

#define INLINE static inline __attribute__((always_inline))

void bps_spread_zeros(char *to, size_t bytes, uint32_t dtype, bool negated)
{
    bool floats = dtype == BPS_FLOAT32 || dtype == BPS_FLOAT64 || dtype == BPS_FLOAT16 || dtype == BPS_BFLOAT16 ||
                  dtype == BPS_FLOAT8_E4M3FN || dtype == BPS_FLOAT8_E5M2;
    size_t element = bps_dtype_size(dtype);
    memset(to, 0, bytes);
    if (floats && !negated && bytes >= element) {
        to[element - 1] = (char)0x80;
        for (size_t done = element; done < bytes; done *= 2) {
            memcpy(to + done, to, done < bytes - done ? done : bytes - done);
        }
    }
}

/* Of rows whose size the compiler knows; of 64 that are all there at once. */
INLINE void spread_rows(char *to, const char *from, const uint64_t *bits, size_t words, size_t row)
{
    for (size_t w = 0; w < words; w++, to += 64 * row) {
        if (bits[w] == UINT64_MAX) {
            memcpy(to, from, 64 * row);
            from += 64 * row;
            continue;
        }
        for (uint64_t left = bits[w]; left != 0; left &= left - 1, from += row) {
            memcpy(to + (size_t)__builtin_ctzll(left) * row, from, row);
        }
    }
}

INLINE void gather_rows(char *to, const char *from, const uint64_t *bits, size_t words, size_t row)
{
    for (size_t w = 0; w < words; w++, from += 64 * row) {
        if (bits[w] == UINT64_MAX) {
            memcpy(to, from, 64 * row);
            to += 64 * row;
            continue;
        }
        for (uint64_t left = bits[w]; left != 0; left &= left - 1, to += row) {
            memcpy(to, from + (size_t)__builtin_ctzll(left) * row, row);
        }
    }
}

void bps_spread(char *to, const char *from, const uint64_t *bits, size_t words, uint32_t row)
{
    switch (row) {
    case 4:
        spread_rows(to, from, bits, words, 4);
        break;
    case 8:
        spread_rows(to, from, bits, words, 8);
        break;
    case 16:
        spread_rows(to, from, bits, words, 16);
        break;
    default:
        spread_rows(to, from, bits, words, row);
    }
}

void bps_spread_back(char *to, const char *from, const uint64_t *bits, size_t words, uint32_t row)
{
    switch (row) {
    case 4:
        gather_rows(to, from, bits, words, 4);
        break;
    case 8:
        gather_rows(to, from, bits, words, 8);
        break;
    case 16:
        gather_rows(to, from, bits, words, 16);
        break;
    default:
        gather_rows(to, from, bits, words, row);
    }
}
