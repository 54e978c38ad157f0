/* SPDX-License-Identifier: Apache-2.0 */
/* values.c - see values.h. */
#include "tools/check/values.h"

#include <stdbool.h>
#include <string.h>

#include <byteps/types.h>

uint64_t bps_check_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static bool is_float(uint32_t dtype)
{
    return dtype == BPS_FLOAT32 || dtype == BPS_FLOAT64 || dtype == BPS_FLOAT16 || dtype == BPS_BFLOAT16 ||
           dtype == BPS_FLOAT8_E4M3FN || dtype == BPS_FLOAT8_E5M2;
}

/* The upper bits of a float64, as narrower types have them: 2^-3 to 2 with a few bits of fraction, of either sign. */
static uint64_t ordinary_bits(uint32_t dtype, uint64_t random)
{
    static const struct {
        uint32_t fraction, bias, bits;
    } form[BPS_DTYPES] = {
        [BPS_FLOAT32] = {23, 127, 32}, [BPS_FLOAT64] = {52, 1023, 64},  [BPS_FLOAT16] = {10, 15, 16},
        [BPS_BFLOAT16] = {7, 127, 16}, [BPS_FLOAT8_E4M3FN] = {3, 7, 8}, [BPS_FLOAT8_E5M2] = {2, 15, 8},
    };
    uint64_t fraction = random & ((1ull << form[dtype].fraction) - 1);
    uint64_t exponent = form[dtype].bias - 3 + ((random >> 56) & 3);
    uint64_t sign = (random >> 58) & 1;
    return sign << (form[dtype].bits - 1) | exponent << form[dtype].fraction | fraction;
}

/* All bits set and none but the sign, exponents at their ends: what they mean depends on the type. */
static uint64_t special_bits(uint32_t dtype, uint64_t random)
{
    static const uint64_t of32[] = {0x7fc00000, 0x7f800000, 0xff800000, 0x80000000, 0, 1, 0x7f7fffff, 0xff7fffff};
    uint64_t upper = of32[(random >> 40) % (sizeof of32 / sizeof *of32)];
    switch (dtype) {
    case BPS_FLOAT32:
        return upper;
    case BPS_FLOAT64:
        return upper << 32 == 0x7f80000000000000u ? 0x7ff0000000000000u : (upper << 32 | (random & 0xff));
    default:
        return upper != 0 ? upper >> 16
                          : random; /* floating point of 16 and 8 bits, and integers: any extreme will do */
    }
}

void bps_check_fill(uint32_t dtype, void *memory, size_t count, uint64_t seed, enum bps_check_values values)
{
    size_t size = bps_dtype_size(dtype);
    uint8_t *at = memory;
    for (size_t i = 0; i < count; i++) {
        uint64_t random = bps_check_random(&seed), bits = random;
        if (is_float(dtype)) {
            bool special = values == BPS_CHECK_SPECIAL && (random >> 60) < 5;
            bits = special ? special_bits(dtype, random) : ordinary_bits(dtype, random);
        } else if (dtype == BPS_BOOL) {
            bits &= 1;
        } else if (values == BPS_CHECK_ORDINARY) {
            bits = random % 100;
        }
        memcpy(at + i * size, &bits, size);
    }
}
