/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.c - elements to levels and back, compiled once for each instruction set (DITHERING_TABLE names the table it
 * makes).
 *
 * An element lies between two levels, and what it is above the lower one, as a share of their distance, is the
 * probability of the upper one. That share is exact; it is compared with a number of 24 bits for float32 and of 31 bits
 * for float64, so that a mean is wrong by 2^-31 of a distance at most.
 */
#include "kernels.h"

#include <math.h>

#include "util/largest.h"
#include "util/philox.h"

#define FRACTION32 0x007fffffu
#define FRACTION64 0x000fffffffffffffu
#define ONE32      0x3f800000u
#define ONE64      0x3ff0000000000000u

typedef VECTOR_TYPE(int32_t, VECTOR / 2) half_i32;     /* as many integers as a v_f64 has lanes */
typedef VECTOR_TYPE(uint16_t, VECTOR / 4) quarter_u16; /* as many codes as a v_f64 has lanes */

#define SIZE(type) ((type) == F32 ? 4u : 8u)

/* ---- the scale ------------------------------------------------------------------------------------------- */

#define SUMS (32 / LANES64)

INLINE void add_squares(const uint8_t *src, double factor, v_f64 sum[SUMS], enum dithering_type type)
{
    EACH(i, SUMS) {
        v_f64 x;
        if (type == F32) {
            half_f32 narrow;
            LOAD(narrow, src + i * sizeof narrow);
            x = __builtin_convertvector(narrow, v_f64) * factor;
        } else {
            LOAD(x, src + i * sizeof x);
            x *= factor;
        }
        sum[i] += x * x;
    }
}

/* The element i goes to the sum i % 32, and in the end they are added in their order: so all get the same scale. */
INLINE double squares(const uint8_t *src, size_t count, double factor, enum dithering_type type)
{
    v_f64 sum[SUMS] = {{0}};
    double total = 0;
    for (; count >= 32; count -= 32, src += 32 * SIZE(type)) {
        add_squares(src, factor, sum, type);
    }
    if (count > 0) {
        uint8_t rest[32 * 8] = {0};
        memcpy(rest, src, count * SIZE(type));
        add_squares(rest, factor, sum, type);
    }
    for (unsigned i = 0; i < 32; i++) {
        total += sum[i / LANES64][i % LANES64];
    }
    return total;
}

/* ---- elements to levels ---------------------------------------------------------------------------------- */

INLINE void round_unit32(const uint8_t *src, const uint32_t *number, float scale, float top,
                         enum dithering_partition partition, uint16_t *codes)
{
    EACH(i, UNIT / LANES32) {
        v_u32 x, draw;
        LOAD(x, src + i * VECTOR);
        LOAD(draw, number + i * LANES32);
        v_f32 chance = __builtin_convertvector((v_i32)(draw >> 8), v_f32) * 0x1p-24f, share;
        v_f32 v = (v_f32)(x & ~SIGN_F32) / scale * top;
        v_i32 level;
        if (partition == LINEAR) {
            level = __builtin_convertvector(v, v_i32);
            share = v - __builtin_convertvector(level, v_f32);
        } else {
            v_i32 above = v >= 1;
            v_f32 fraction = (v_f32)(((v_u32)v & FRACTION32) | ONE32) - 1;
            level = above & (v_i32)(((v_u32)v >> 23) - 126);
            share = (v_f32)SELECT(above, (v_i32)fraction, (v_i32)v);
        }
        level -= chance < share;
        v_u32 code = (v_u32)level << 1 | (x >> 31 & (v_u32)(level > 0));
        half_u16 narrow = __builtin_convertvector(code, half_u16);
        STORE(codes + i * LANES32, narrow);
    }
}

INLINE void round_unit64(const uint8_t *src, const uint32_t *number, double scale, double top,
                         enum dithering_partition partition, uint16_t *codes)
{
    EACH(i, UNIT / LANES64) {
        v_u64 x;
        half_i32 draw, level;
        LOAD(x, src + i * VECTOR);
        LOAD(draw, number + i * LANES64);
        v_f64 chance = __builtin_convertvector(draw >> 1 & INT32_MAX, v_f64) * 0x1p-31, share;
        v_f64 v = (v_f64)(x & ~SIGN_F64) / scale * top;
        if (partition == LINEAR) {
            level = __builtin_convertvector(v, half_i32);
            share = v - __builtin_convertvector(level, v_f64);
        } else {
            v_i64 above = v >= 1;
            v_f64 fraction = (v_f64)(((v_u64)v & FRACTION64) | ONE64) - 1;
            level = __builtin_convertvector(above & (v_i64)(((v_u64)v >> 52) - 1022), half_i32);
            share = (v_f64)SELECT(above, (v_i64)fraction, (v_i64)v);
        }
        level -= __builtin_convertvector(chance < share, half_i32);
        half_i32 sign = __builtin_convertvector((v_i64)(x >> 63), half_i32);
        half_i32 code = level << 1 | (sign & (level > 0));
        quarter_u16 narrow = __builtin_convertvector(code, quarter_u16);
        STORE(codes + i * LANES64, narrow);
    }
}

INLINE void round_unit(const uint8_t *src, struct dithering_draw draw, double scale, double top,
                       enum dithering_type type, enum dithering_partition partition, uint16_t *codes)
{
    uint32_t number[UNIT];
    philox_numbers(draw.key, draw.first / 4, UNIT / 4, number);
    if (type == F32) {
        round_unit32(src, number, (float)scale, (float)top, partition, codes);
    } else {
        round_unit64(src, number, scale, top, partition, codes);
    }
}

/* The last elements, too few for a unit, go through a copy. */
INLINE void round_all(const uint8_t *src, size_t count, struct dithering_draw draw, double scale, uint32_t levels,
                      uint16_t *codes, enum dithering_type type, enum dithering_partition partition)
{
    double top = partition == LINEAR ? levels : ldexp(1, (int)levels - 1);
    for (; count >= UNIT; count -= UNIT, src += UNIT * SIZE(type), codes += UNIT, draw.first += UNIT) {
        round_unit(src, draw, scale, top, type, partition, codes);
    }
    if (count > 0) {
        uint8_t rest[UNIT * 8] = {0};
        uint16_t last[UNIT];
        memcpy(rest, src, count * SIZE(type));
        round_unit(rest, draw, scale, top, type, partition, last);
        memcpy(codes, last, count * sizeof *codes);
    }
}

/* ---- what Elias's form takes ----------------------------------------------------------------------------- */

/* How many bits numbers have, by the exponent of floating point. */
INLINE v_u32 lengths(v_u32 x)
{
    v_u32 exponent = (v_u32) __builtin_convertvector((v_i32)x, v_f32) >> 23, none = (v_u32){0} + 126;
    return larger32(exponent, none) - none;
}

struct elias_sum {
    v_u32 levels, lengths; /* bits of levels, and bits of how many these are */
    v_u16 gaps;            /* codes that are not zero, behind one that is */
};

INLINE void add_codes(const uint16_t *codes, struct elias_sum *sum)
{
    v_u32 pairs;
    v_u16 these, next;
    LOAD(pairs, codes);
    LOAD(these, codes);
    LOAD(next, codes + 1);
    sum->gaps -= (v_u16)(these == 0) & (v_u16)(next != 0);
    v_u32 low = lengths((pairs & 0xffff) >> 1), high = lengths(pairs >> 17);
    sum->levels += low + high;
    sum->lengths += lengths(low) + lengths(high);
}

/*
 * A level of N bits, where N has M bits, takes 2M + N with its sign and a distance of 1. Another distance counts as 2
 * or 3, which takes 3 more.
 */
static uint64_t least_elias(const uint16_t *codes, size_t count)
{
    struct elias_sum sum = {.gaps = {0}};
    uint64_t bits = 0;
    for (; count > LANES16; count -= LANES16, codes += LANES16) {
        add_codes(codes, &sum);
    }
    uint16_t rest[LANES16 + 1] = {0};
    memcpy(rest, codes, count * sizeof *codes);
    add_codes(rest, &sum);
    for (unsigned i = 0; i < LANES32; i++) {
        bits += (uint64_t)sum.levels[i] + 2 * sum.lengths[i];
    }
    for (unsigned i = 0; i < LANES16; i++) {
        bits += 3u * sum.gaps[i];
    }
    return bits;
}

/* ---- levels to elements ---------------------------------------------------------------------------------- */

INLINE v_u16 wrong_codes(const uint16_t *codes, uint32_t levels)
{
    v_u16 these;
    LOAD(these, codes);
    return (v_u16)(these > (uint16_t)(2 * levels + 1)) | (v_u16)(these == 1);
}

static bool are_codes(const uint16_t *codes, size_t count, uint32_t levels)
{
    v_u16 wrong = {0};
    uint16_t rest[LANES16] = {0};
    for (; count >= LANES16; count -= LANES16, codes += LANES16) {
        wrong |= wrong_codes(codes, levels);
    }
    memcpy(rest, codes, count * sizeof *codes);
    wrong |= wrong_codes(rest, levels);
    for (unsigned i = 0; i < LANES16; i++) {
        if (wrong[i] != 0) {
            return false;
        }
    }
    return true;
}

INLINE void decode_unit32(const uint16_t *codes, float scale, uint32_t levels, enum dithering_partition partition,
                          uint8_t *dst, bool add)
{
    EACH(i, UNIT / LANES32) {
        half_u16 narrow;
        LOAD(narrow, codes + i * LANES32);
        v_u32 code = __builtin_convertvector(narrow, v_u32);
        v_i32 level = (v_i32)(code >> 1);
        v_f32 x, share = partition == LINEAR ? __builtin_convertvector(level, v_f32) / (float)levels
                                             : (v_f32)((level - (int32_t)levels + 127) << 23 & (level > 0));
        v_f32 y = (v_f32)((v_u32)(share * scale) | code << 31);
        if (add) {
            LOAD(x, dst + i * VECTOR);
            y = x + y;
        }
        STORE(dst + i * VECTOR, y);
    }
}

INLINE void decode_unit64(const uint16_t *codes, double scale, uint32_t levels, enum dithering_partition partition,
                          uint8_t *dst, bool add)
{
    EACH(i, UNIT / LANES64) {
        quarter_u16 narrow;
        LOAD(narrow, codes + i * LANES64);
        v_u64 code = __builtin_convertvector(narrow, v_u64);
        half_i32 level = __builtin_convertvector(narrow, half_i32) >> 1;
        v_i64 wide = (v_i64)(code >> 1);
        v_f64 x, share = partition == LINEAR ? __builtin_convertvector(level, v_f64) / levels
                                             : (v_f64)((wide - (int64_t)levels + 1023) << 52 & (wide > 0));
        v_f64 y = (v_f64)((v_u64)(share * scale) | code << 63);
        if (add) {
            LOAD(x, dst + i * VECTOR);
            y = x + y;
        }
        STORE(dst + i * VECTOR, y);
    }
}

INLINE void decode_unit(const uint16_t *codes, double scale, uint32_t levels, uint8_t *dst, enum dithering_type type,
                        enum dithering_partition partition, bool add)
{
    if (type == F32) {
        decode_unit32(codes, (float)scale, levels, partition, dst, add);
    } else {
        decode_unit64(codes, scale, levels, partition, dst, add);
    }
}

INLINE void decode_all(const uint16_t *codes, size_t count, double scale, uint32_t levels, uint8_t *dst,
                       enum dithering_type type, enum dithering_partition partition, bool add)
{
    for (; count >= UNIT; count -= UNIT, codes += UNIT, dst += UNIT * SIZE(type)) {
        decode_unit(codes, scale, levels, dst, type, partition, add);
    }
    if (count > 0) {
        uint16_t last[UNIT] = {0};
        uint8_t rest[UNIT * 8] = {0};
        memcpy(last, codes, count * sizeof *codes);
        memcpy(rest, dst, count * SIZE(type));
        decode_unit(last, scale, levels, rest, type, partition, add);
        memcpy(dst, rest, count * SIZE(type));
    }
}

/* ---- all of them ----------------------------------------------------------------------------------------- */

static double f32_largest(const uint8_t *src, size_t count)
{
    uint32_t bits = largest32(src, count, false);
    float magnitude;
    memcpy(&magnitude, &bits, sizeof magnitude);
    return magnitude;
}

static double f64_largest(const uint8_t *src, size_t count)
{
    uint64_t bits = largest64(src, count, false);
    double magnitude;
    memcpy(&magnitude, &bits, sizeof magnitude);
    return magnitude;
}

static double f32_squares(const uint8_t *src, size_t count, double factor)
{
    return squares(src, count, factor, F32);
}

static double f64_squares(const uint8_t *src, size_t count, double factor)
{
    return squares(src, count, factor, F64);
}

#define DEFINE(type, partition)                                                                                        \
    static void type##_##partition##_round(const uint8_t *src, size_t count, struct dithering_draw draw, double scale, \
                                           uint32_t levels, uint16_t *codes)                                           \
    {                                                                                                                  \
        round_all(src, count, draw, scale, levels, codes, type, partition);                                            \
    }                                                                                                                  \
                                                                                                                       \
    static void type##_##partition##_decode(const uint16_t *codes, size_t count, double scale, uint32_t levels,        \
                                            uint8_t *dst)                                                              \
    {                                                                                                                  \
        decode_all(codes, count, scale, levels, dst, type, partition, false);                                          \
    }                                                                                                                  \
                                                                                                                       \
    static void type##_##partition##_decode_add(const uint16_t *codes, size_t count, double scale, uint32_t levels,    \
                                                uint8_t *dst)                                                          \
    {                                                                                                                  \
        decode_all(codes, count, scale, levels, dst, type, partition, true);                                           \
    }

#define ROW(type, partition) {type##_##partition##_round, type##_##partition##_decode, type##_##partition##_decode_add}

DEFINE(F32, LINEAR)
DEFINE(F32, NATURAL)
DEFINE(F64, LINEAR)
DEFINE(F64, NATURAL)

const struct dithering_table DITHERING_TABLE = {
    {
        {f32_largest, f32_squares, {ROW(F32, LINEAR), ROW(F32, NATURAL)}},
        {f64_largest, f64_squares, {ROW(F64, LINEAR), ROW(F64, NATURAL)}},
    },
    least_elias,
    are_codes,
};
