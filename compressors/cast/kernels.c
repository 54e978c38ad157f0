/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.c - elements to codes and back, compiled once for each instruction set (CAST_TABLE names the table it
 * makes). All of them make the same codes and elements, to the bit.
 */
#include "kernels.h"

#include <endian.h>
#include <float.h>

#include "format.h"

#define SIZE(type)         ((type) == F32 ? 4u : 8u)
#define HAS_SCALE(format)  (CODE_BYTES(format) == 1)
#define STEP_BYTES(type)   (STEP * SIZE(type))
#define STEP_CODES(format) (STEP * CODE_BYTES(format))

/* ---- elements to float32 and back -------------------------------------------------------------------------- */

/*
 * Rounds as the format does, so that what follows is exact: to float32 and from there to the format would be two
 * roundings. Beside `number` the last place of a float64 is that of the format.
 */
INLINE v_f64 rounded64(v_f64 x, enum cast_format format)
{
    const int64_t least = (int64_t)(1023 + EXPONENT(format)) << 52, most = (int64_t)(1023 + 129) << 52;
    v_u64 magnitude = (v_u64)x & ~SIGN_F64, power = magnitude & INFINITY_F64;
    v_u64 number =
        SELECT((v_u64)((v_i64)power < least), (uint64_t)least, power) + ((uint64_t)(52 - FRACTION(format)) << 52);
    v_u64 near = (v_u64)((v_f64)magnitude + (v_f64)number - (v_f64)number);
    v_u64 usual = (v_u64)((v_i64)magnitude < most); /* what is larger is infinite in every format */
    return (v_f64)SELECT(usual, near | ((v_u64)x & SIGN_F64), (v_u64)x);
}

/* A vector of elements times `inverse`, if the format has a scale. */
INLINE v_f32 load(const uint8_t *src, enum cast_type type, enum cast_format format, double inverse)
{
    half_f32 half[2];
    v_f32 value;
    if (type == F32) {
        LOAD(value, src);
        return HAS_SCALE(format) ? value * (float)inverse : value;
    }
    EACH(i, 2) {
        v_f64 x;
        LOAD(x, src + i * sizeof x);
        half[i] = __builtin_convertvector(rounded64(HAS_SCALE(format) ? x * inverse : x, format), half_f32);
    }
    memcpy(&value, half, sizeof value);
    return value;
}

/* The elements at dst become these values times `scale`, or have them added. */
INLINE void store(uint8_t *dst, v_f32 value, enum cast_type type, enum cast_format format, double scale, bool add)
{
    half_f32 half[2];
    if (type == F32) {
        v_f32 x, y = HAS_SCALE(format) ? value * (float)scale : value;
        if (add) {
            LOAD(x, dst);
            y = x + y;
        }
        STORE(dst, y);
        return;
    }
    memcpy(half, &value, sizeof value);
    EACH(i, 2) {
        v_f64 x, wide = __builtin_convertvector(half[i], v_f64), y = HAS_SCALE(format) ? wide * scale : wide;
        if (add) {
            LOAD(x, dst + i * sizeof x);
            y = x + y;
        }
        STORE(dst + i * sizeof y, y);
    }
}

/* ---- elements in a row: the last ones, too few for a step, go through copies that end with zeros ------------ */

INLINE void encode_step(const uint8_t *src, uint8_t *dst, enum cast_type type, enum cast_format format, double inverse,
                        bool special)
{
    v_u32 codes[VECTORS];
    EACH(i, VECTORS) {
        codes[i] = to_format(load(src + i * LANES32 * SIZE(type), type, format, inverse), format, special);
    }
    store_codes(dst, codes, format);
}

INLINE void encode_row(const uint8_t *src, size_t count, uint8_t *dst, enum cast_type type, enum cast_format format,
                       double inverse, bool special)
{
    for (; count >= STEP; count -= STEP, src += STEP_BYTES(type), dst += STEP_CODES(format)) {
        encode_step(src, dst, type, format, inverse, special);
    }
    if (count > 0) {
        uint8_t from[STEP * 8] = {0}, to[STEP * 2];
        memcpy(from, src, count * SIZE(type));
        encode_step(from, to, type, format, inverse, special);
        memcpy(dst, to, count * CODE_BYTES(format));
    }
}

INLINE void decode_step(const uint8_t *src, uint8_t *dst, enum cast_type type, enum cast_format format, double scale,
                        bool add)
{
    EACH(i, VECTORS) {
        v_f32 value = from_format(src + i * LANES32 * CODE_BYTES(format), format);
        store(dst + i * LANES32 * SIZE(type), value, type, format, scale, add);
    }
}

INLINE void decode_row(const uint8_t *src, size_t count, uint8_t *dst, enum cast_type type, enum cast_format format,
                       double scale, bool add)
{
    for (; count >= STEP; count -= STEP, src += STEP_CODES(format), dst += STEP_BYTES(type)) {
        decode_step(src, dst, type, format, scale, add);
    }
    if (count > 0) {
        uint8_t from[STEP * 2] = {0}, to[STEP * 8] = {0};
        memcpy(from, src, count * CODE_BYTES(format));
        memcpy(to, dst, count * SIZE(type));
        decode_step(from, to, type, format, scale, add);
        memcpy(dst, to, count * SIZE(type));
    }
}

/* ---- scales ------------------------------------------------------------------------------------------------ */

/* The largest magnitude of the finite elements; *special if there are others. */
INLINE double largest(const uint8_t *src, size_t count, enum cast_type type, bool *special)
{
    uint32_t bits32;
    uint64_t bits64;
    float narrow;
    double wide;
    if (type == F32) {
        bits32 = largest32(src, count, false);
        *special = bits32 >= INFINITY_F32;
        bits32 = *special ? largest32(src, count, true) : bits32;
        memcpy(&narrow, &bits32, sizeof narrow);
        return narrow;
    }
    bits64 = largest64(src, count, false);
    *special = bits64 >= INFINITY_F64;
    bits64 = *special ? largest64(src, count, true) : bits64;
    memcpy(&wide, &bits64, sizeof wide);
    return wide;
}

/* What the elements of a block become numbers of the format with. */
struct scale {
    float scale;
    double inverse;
    bool special; /* some are not finite, or too large for any scale */
};

INLINE struct scale scale_for(const uint8_t *src, size_t count, enum cast_type type, enum cast_format format)
{
    struct scale out = {.scale = 1, .inverse = 1};
    double most = largest(src, count, type, &out.special), scale = most / LARGEST(format);
    if (most > 0) {
        out.special = out.special || scale > FLT_MAX;
        out.scale = scale > FLT_MAX ? FLT_MAX : scale < FLT_MIN ? FLT_MIN : (float)scale;
        out.inverse = 1.0 / out.scale;
    }
    return out;
}

static inline void put_scale(uint8_t *to, float scale)
{
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    bits = htole32(bits);
    memcpy(to, &bits, SCALE_BYTES);
}

/* false: it is none, since it has a sign, is subnormal, or not finite. */
static inline bool get_scale(const uint8_t *from, float *scale)
{
    uint32_t bits;
    memcpy(&bits, from, SCALE_BYTES);
    bits = le32toh(bits);
    memcpy(scale, &bits, sizeof bits);
    return bits >= 0x00800000u && bits < INFINITY_F32;
}

/* ---- all elements ------------------------------------------------------------------------------------------ */

INLINE size_t lesser(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The scale of a block is found before the block in front of it is coded: so nothing waits for the divisions. */
INLINE void encode_blocks(const uint8_t *src, size_t count, size_t block, uint8_t *dst, enum cast_type type,
                          enum cast_format format)
{
    struct scale next = scale_for(src, lesser(count, block), type, format);
    while (count > 0) {
        size_t n = lesser(count, block);
        struct scale scale = next;
        next = scale_for(src + n * SIZE(type), lesser(count - n, block), type, format);
        put_scale(dst, scale.scale);
        if (scale.special) {
            encode_row(src, n, dst + SCALE_BYTES, type, format, scale.inverse, true);
        } else {
            encode_row(src, n, dst + SCALE_BYTES, type, format, scale.inverse, false);
        }
        src += n * SIZE(type);
        dst += SCALE_BYTES + n;
        count -= n;
    }
}

INLINE void encode(const uint8_t *src, size_t count, size_t block, uint8_t *dst, enum cast_type type,
                   enum cast_format format)
{
    if (HAS_SCALE(format)) {
        encode_blocks(src, count, block, dst, type, format);
    } else {
        encode_row(src, count, dst, type, format, 1, true);
    }
}

INLINE bool decode(const uint8_t *src, size_t count, size_t block, uint8_t *dst, enum cast_type type,
                   enum cast_format format, bool add)
{
    if (!HAS_SCALE(format)) {
        decode_row(src, count, dst, type, format, 1, add);
        return true;
    }
    while (count > 0) {
        size_t n = count < block ? count : block;
        float scale;
        if (!get_scale(src, &scale)) {
            return false;
        }
        decode_row(src + SCALE_BYTES, n, dst, type, format, scale, add);
        src += SCALE_BYTES + n;
        dst += n * SIZE(type);
        count -= n;
    }
    return true;
}

/* ---- all of them ------------------------------------------------------------------------------------------- */

#define DEFINE(type, format)                                                                                           \
    static void type##_##format##_encode(const uint8_t *src, size_t count, size_t block, uint8_t *dst)                 \
    {                                                                                                                  \
        encode(src, count, block, dst, type, format);                                                                  \
    }                                                                                                                  \
                                                                                                                       \
    static bool type##_##format##_decode(const uint8_t *src, size_t count, size_t block, uint8_t *dst)                 \
    {                                                                                                                  \
        return decode(src, count, block, dst, type, format, false);                                                    \
    }                                                                                                                  \
                                                                                                                       \
    static bool type##_##format##_decode_add(const uint8_t *src, size_t count, size_t block, uint8_t *dst)             \
    {                                                                                                                  \
        return decode(src, count, block, dst, type, format, true);                                                     \
    }

#define ROW(type, format)                                                                                              \
    [type][format] = {type##_##format##_encode, type##_##format##_decode, type##_##format##_decode_add},

#define ALL(X)                                                                                                         \
    X(F32, FLOAT16)                                                                                                    \
    X(F32, BFLOAT16)                                                                                                   \
    X(F32, E4M3)                                                                                                       \
    X(F32, E5M2)                                                                                                       \
    X(F64, FLOAT16)                                                                                                    \
    X(F64, BFLOAT16)                                                                                                   \
    X(F64, E4M3)                                                                                                       \
    X(F64, E5M2)

ALL(DEFINE)

const struct cast_table CAST_TABLE = {{ALL(ROW)}};
