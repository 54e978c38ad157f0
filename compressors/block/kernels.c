/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.c - elements to codes and back, compiled once for each instruction set (BLOCK_TABLE names the table it
 * makes). All of them make the same codes and elements, to the bit.
 */
#include "kernels.h"

#include <endian.h>
#include <float.h>

#include "codes.h"
#include "util/largest.h"
#include "util/philox.h"

#define NAN_F32 0x7fc00000u
#define ONE_F32 0x3f800000u
#define ONE_F64 0x3ff0000000000000ull

#define SIZE(type)       ((type) == F32 ? 4u : 8u)
#define STEP_BYTES(type) (STEP * SIZE(type))
#define LEVELS(width)    ((1 << (BITS(width) - 1)) - 1)

typedef VECTOR_TYPE(int32_t, VECTOR / 2) half_i32; /* as many integers as a v_f64 has lanes */

/* ---- elements to codes ------------------------------------------------------------------------------------- */

/* The numbers that the units of a slice draw from one on. */
struct chance {
    bool drawn; /* else to nearest */
    uint64_t key, unit;
};

/* Added to a number and taken away they leave the nearest whole one, of two the even one. */
#define WHOLE_F32 0x1.8p23f
#define WHOLE_F64 0x1.8p52

/*
 * By chance it is the nearest whole number, or the one on the other side: with the probability that it is away from the
 * nearest, which is exact. The number drawn has 24 bits for float32 and 31 for float64.
 */
INLINE v_i32 code32(const uint8_t *src, float inverse, const uint32_t *number, bool drawn)
{
    v_f32 x;
    v_u32 draw;
    LOAD(x, src);
    x *= inverse;
    v_f32 whole = x + WHOLE_F32 - WHOLE_F32;
    if (drawn) {
        LOAD(draw, number);
        v_f32 chance = __builtin_convertvector((v_i32)(draw >> 8), v_f32) * 0x1p-24f, away = x - whole;
        v_u32 other = (v_u32)(chance < (v_f32)((v_u32)away & ~SIGN_F32));
        whole += (v_f32)(other & (((v_u32)away & SIGN_F32) | ONE_F32));
    }
    return __builtin_convertvector(whole, v_i32);
}

INLINE half_i32 code64(const uint8_t *src, double inverse, const uint32_t *number, bool drawn)
{
    v_f64 x;
    half_i32 draw;
    LOAD(x, src);
    x *= inverse;
    v_f64 whole = x + WHOLE_F64 - WHOLE_F64;
    if (drawn) {
        LOAD(draw, number);
        v_f64 chance = __builtin_convertvector(draw >> 1 & INT32_MAX, v_f64) * 0x1p-31, away = x - whole;
        v_u64 other = (v_u64)(chance < (v_f64)((v_u64)away & ~SIGN_F64));
        whole += (v_f64)(other & (((v_u64)away & SIGN_F64) | ONE_F64));
    }
    return __builtin_convertvector(whole, half_i32);
}

/* The largest element can be above the highest level by what its scale was rounded, and by chance go a level beyond. */
INLINE v_i32 within(v_i32 code, int32_t levels)
{
    return code + (code > levels) - (code < -levels);
}

INLINE void encode_unit(const uint8_t *src, uint8_t *dst, enum block_type type, enum block_width width, double inverse,
                        const struct chance *chance)
{
    uint32_t number[STEP];
    v_u32 codes[VECTORS];
    if (chance->drawn) {
        philox_numbers(chance->key, chance->unit * (STEP / 4), STEP / 4, number);
    }
    EACH(i, VECTORS) {
        const uint8_t *from = src + i * LANES32 * SIZE(type);
        const uint32_t *draw = number + (size_t)i * LANES32;
        v_i32 code;
        if (type == F32) {
            code = code32(from, (float)inverse, draw, chance->drawn);
        } else {
            half_i32 half[2] = {code64(from, inverse, draw, chance->drawn),
                                code64(from + VECTOR, inverse, draw + LANES64, chance->drawn)};
            memcpy(&code, half, sizeof code);
        }
        codes[i] = (v_u32)(chance->drawn ? within(code, LEVELS(width)) : code);
    }
    store_codes(dst, codes, width);
}

/* ---- codes to elements ------------------------------------------------------------------------------------- */

/* The elements at dst become the codes times `scale`, or have them added. */
INLINE void store(uint8_t *dst, v_i32 code, enum block_type type, double scale, bool add)
{
    half_i32 half[2];
    if (type == F32) {
        v_f32 x, y = __builtin_convertvector(code, v_f32) * (float)scale;
        if (add) {
            LOAD(x, dst);
            y = x + y;
        }
        STORE(dst, y);
        return;
    }
    memcpy(half, &code, sizeof code);
    EACH(i, 2) {
        v_f64 x, y = __builtin_convertvector(half[i], v_f64) * scale;
        if (add) {
            LOAD(x, dst + i * sizeof x);
            y = x + y;
        }
        STORE(dst + i * sizeof y, y);
    }
}

/* The lanes of *low become negative if a code is below the lowest level. */
INLINE void decode_unit(const uint8_t *src, uint8_t *dst, enum block_type type, enum block_width width, double scale,
                        bool add, v_i32 *low)
{
    EACH(i, VECTORS) {
        v_i32 code = load_codes(src, i, width);
        *low |= code + LEVELS(width);
        store(dst + i * LANES32 * SIZE(type), code, type, scale, add);
    }
}

/* ---- the last elements, too few for a unit, go through copies ------------------------------------------------ */

INLINE size_t lesser(size_t a, size_t b)
{
    return a < b ? a : b;
}

INLINE size_t coded_bytes(size_t count, enum block_width width)
{
    return (count + PER(width) - 1) / PER(width);
}

/* The elements to their places in a unit, or back. */
INLINE void move_rest(uint8_t *unit, uint8_t *elements, size_t count, enum block_type type, enum block_width width,
                      bool back)
{
    size_t row = coded_bytes(count, width);
    for (size_t first = 0; first < count; first += row) {
        size_t bytes = lesser(row, count - first) * SIZE(type);
        if (back) {
            memcpy(elements + first * SIZE(type), unit, bytes);
        } else {
            memcpy(unit, elements + first * SIZE(type), bytes);
        }
        unit += STEP_CODES(width) * SIZE(type);
    }
}

INLINE void encode_rest(const uint8_t *src, size_t count, uint8_t *dst, enum block_type type, enum block_width width,
                        double inverse, const struct chance *chance)
{
    uint8_t rest[STEP * 8], from[STEP * 8] = {0}, to[STEP];
    memcpy(rest, src, count * SIZE(type));
    move_rest(from, rest, count, type, width, false);
    encode_unit(from, to, type, width, inverse, chance);
    memcpy(dst, to, coded_bytes(count, width));
}

/* false: there are bits behind the last code. */
INLINE bool decode_rest(const uint8_t *src, size_t count, uint8_t *dst, enum block_type type, enum block_width width,
                        double scale, bool add, v_i32 *low)
{
    size_t row = coded_bytes(count, width);
    uint8_t from[STEP] = {0}, to[STEP * 8] = {0};
    memcpy(from, src, row);
    for (size_t i = count; i < row * PER(width); i++) {
        if (from[i % row] >> i / row * BITS(width) & ((1u << BITS(width)) - 1)) {
            return false;
        }
    }
    move_rest(to, dst, count, type, width, false);
    decode_unit(from, to, type, width, scale, add, low);
    move_rest(to, dst, count, type, width, true);
    return true;
}

/* ---- scales ------------------------------------------------------------------------------------------------ */

/* The largest magnitude; infinity, or NaN, which is the larger one, if there is one. */
INLINE double largest(const uint8_t *src, size_t count, enum block_type type)
{
    uint32_t bits32;
    uint64_t bits64;
    float narrow;
    double wide;
    if (type == F32) {
        bits32 = largest32(src, count, false);
        memcpy(&narrow, &bits32, sizeof narrow);
        return narrow;
    }
    bits64 = largest64(src, count, false);
    memcpy(&wide, &bits64, sizeof wide);
    return wide;
}

/* What the elements of a block become codes with. */
struct scale {
    float scale;
    double inverse;
    bool finite;
};

/* float32 times a scale that was rounded up must not become infinite. */
INLINE struct scale scale_for(const uint8_t *src, size_t count, enum block_type type, enum block_width width)
{
    double most = largest(src, count, type), scale = most / LEVELS(width);
    struct scale out = {.scale = 1, .inverse = 1, .finite = true};
    if (most != 0) {
        out.scale = scale < FLT_MIN ? FLT_MIN : (float)scale;
        out.finite = out.scale <= FLT_MAX;
        if (type == F32 && out.finite && (double)out.scale * LEVELS(width) > FLT_MAX) {
            out.scale *= 1 - FLT_EPSILON / 2;
        }
        out.inverse = 1.0 / out.scale;
    }
    return out;
}

INLINE void put_scale(uint8_t *to, float scale)
{
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    bits = htole32(bits > INFINITY_F32 ? NAN_F32 : bits);
    memcpy(to, &bits, SCALE_BYTES);
}

/* false: it is none, since it has a sign, is zero or subnormal, or another NaN. */
INLINE bool get_scale(const uint8_t *from, float *scale)
{
    uint32_t bits;
    memcpy(&bits, from, SCALE_BYTES);
    bits = le32toh(bits);
    memcpy(scale, &bits, sizeof bits);
    return bits >= 0x00800000u && (bits <= INFINITY_F32 || bits == NAN_F32);
}

/* ---- all elements ------------------------------------------------------------------------------------------ */

INLINE void encode_block(const uint8_t *src, size_t count, uint8_t *dst, enum block_type type, enum block_width width,
                         struct scale scale, struct chance chance)
{
    put_scale(dst, scale.scale);
    dst += SCALE_BYTES;
    if (!scale.finite) {
        memset(dst, 0, coded_bytes(count, width));
        return;
    }
    for (; count >= STEP; count -= STEP, src += STEP_BYTES(type), dst += STEP_CODES(width), chance.unit++) {
        encode_unit(src, dst, type, width, scale.inverse, &chance);
    }
    if (count > 0) {
        encode_rest(src, count, dst, type, width, scale.inverse, &chance);
    }
}

/* The scale of a block is found before the block in front of it is coded: so nothing waits for the divisions. */
INLINE void encode(const uint8_t *src, size_t count, size_t block, uint8_t *dst, enum block_type type,
                   enum block_width width, struct chance chance)
{
    struct scale next = scale_for(src, lesser(count, block), type, width);
    while (count > 0) {
        size_t n = lesser(count, block);
        struct scale scale = next;
        next = scale_for(src + n * SIZE(type), lesser(count - n, block), type, width);
        encode_block(src, n, dst, type, width, scale, chance);
        src += n * SIZE(type);
        dst += SCALE_BYTES + coded_bytes(n, width);
        chance.unit += n / STEP;
        count -= n;
    }
}

INLINE bool decode_block(const uint8_t *src, size_t count, uint8_t *dst, enum block_type type, enum block_width width,
                         bool add, v_i32 *low)
{
    float scale;
    if (!get_scale(src, &scale)) {
        return false;
    }
    src += SCALE_BYTES;
    for (; count >= STEP; count -= STEP, src += STEP_CODES(width), dst += STEP_BYTES(type)) {
        decode_unit(src, dst, type, width, scale, add, low);
    }
    return count == 0 || decode_rest(src, count, dst, type, width, scale, add, low);
}

INLINE bool decode(const uint8_t *src, size_t count, size_t block, uint8_t *dst, enum block_type type,
                   enum block_width width, bool add)
{
    v_i32 low = {0};
    while (count > 0) {
        size_t n = lesser(count, block);
        if (!decode_block(src, n, dst, type, width, add, &low)) {
            return false;
        }
        src += SCALE_BYTES + coded_bytes(n, width);
        dst += n * SIZE(type);
        count -= n;
    }
    return SIGNS32(low) == 0;
}

/* ---- all of them ------------------------------------------------------------------------------------------- */

#define DEFINE(type, width)                                                                                            \
    static void type##_##width##_encode(const uint8_t *src, size_t count, size_t block, uint8_t *dst)                  \
    {                                                                                                                  \
        encode(src, count, block, dst, type, width, (struct chance){.drawn = false});                                  \
    }                                                                                                                  \
                                                                                                                       \
    static void type##_##width##_encode_by_chance(const uint8_t *src, size_t count, size_t block, uint64_t key,        \
                                                  uint8_t *dst)                                                        \
    {                                                                                                                  \
        encode(src, count, block, dst, type, width, (struct chance){.drawn = true, .key = key});                       \
    }                                                                                                                  \
                                                                                                                       \
    static bool type##_##width##_decode(const uint8_t *src, size_t count, size_t block, uint8_t *dst)                  \
    {                                                                                                                  \
        return decode(src, count, block, dst, type, width, false);                                                     \
    }                                                                                                                  \
                                                                                                                       \
    static bool type##_##width##_decode_add(const uint8_t *src, size_t count, size_t block, uint8_t *dst)              \
    {                                                                                                                  \
        return decode(src, count, block, dst, type, width, true);                                                      \
    }

#define ROW(type, width)                                                                                               \
    [type][width] = {type##_##width##_encode, type##_##width##_encode_by_chance, type##_##width##_decode,              \
                     type##_##width##_decode_add},

#define ALL(X)                                                                                                         \
    X(F32, BITS8)                                                                                                      \
    X(F32, BITS4)                                                                                                      \
    X(F32, BITS2)                                                                                                      \
    X(F64, BITS8)                                                                                                      \
    X(F64, BITS4)                                                                                                      \
    X(F64, BITS2)

ALL(DEFINE)

const struct block_table BLOCK_TABLE = {{ALL(ROW)}};
