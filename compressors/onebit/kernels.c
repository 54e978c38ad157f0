/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.c - signs to bits and back, compiled once for each instruction set (ONEBIT_TABLE names the table it makes).
 *
 * Magnitudes are summed in float64, of which no slice is too long, in 32 sums: the element i goes to the sum i % 32
 * and in the end they are added in their order. So every instruction set gets the same scale, to the bit.
 */
#include "kernels.h"

#include <endian.h>
#include <stdbool.h>

#include "util/vector.h"

#define BLOCK       32u /* elements whose signs make one word of bits */
#define BLOCK_BYTES 4u
#define SUMS        (BLOCK / LANES64)

#define SIGN32 0x80000000u
#define SIGN64 0x8000000000000000u

enum type { F32, F64 };

/* ---- a vector of elements -------------------------------------------------------------------------------- */

static const uint32_t places32[16] = {1,      1 << 1, 1 << 2,  1 << 3,  1 << 4,  1 << 5,  1 << 6,  1 << 7,
                                      1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15};
static const uint64_t places64[8] = {1, 1 << 1, 1 << 2, 1 << 3, 1 << 4, 1 << 5, 1 << 6, 1 << 7};

/* The sign of lane i is the bit i of `bits`. */
INLINE v_u32 signed32(v_u32 scale, uint32_t bits)
{
    v_u32 place, all = (v_u32){0} + bits;
    LOAD(place, places32);
    return scale ^ ((v_u32)((all & place) == place) & SIGN32);
}

INLINE v_u64 signed64(v_u64 scale, uint32_t bits)
{
    v_u64 place, all = (v_u64){0} + bits;
    LOAD(place, places64);
    return scale ^ ((v_u64)((all & place) == place) & SIGN64);
}

/* ---- a block of elements --------------------------------------------------------------------------------- */

/* What an element adds to the sum: its magnitude; without scaling 0, or NaN if it is not finite. */
INLINE v_f64 summand(v_f64 x, bool scaled)
{
    return scaled ? (v_f64)((v_u64)x & ~SIGN64) : x - x;
}

INLINE uint32_t encode_block(const uint8_t *src, v_f64 sum[SUMS], enum type type, bool scaled)
{
    uint32_t bits = 0;
    EACH(i, SUMS) {
        if (type == F32) {
            half_f32 x;
            LOAD(x, src + i * sizeof x);
            sum[i] += summand(__builtin_convertvector(x, v_f64), scaled);
        } else {
            v_u64 x;
            LOAD(x, src + i * sizeof x);
            sum[i] += summand((v_f64)x, scaled);
            bits |= SIGNS64(x) << i * LANES64;
        }
    }
    if (type == F32) {
        EACH(i, BLOCK / LANES32) {
            v_u32 x;
            LOAD(x, src + i * sizeof x);
            bits |= SIGNS32(x) << i * LANES32;
        }
    }
    return bits;
}

INLINE void decode_block32(uint8_t *dst, v_u32 scale, uint32_t bits, bool add)
{
    EACH(i, BLOCK / LANES32) {
        v_f32 x, y = (v_f32)signed32(scale, bits >> i * LANES32);
        if (add) {
            LOAD(x, dst + i * VECTOR);
            y = x + y;
        }
        STORE(dst + i * VECTOR, y);
    }
}

INLINE void decode_block64(uint8_t *dst, v_u64 scale, uint32_t bits, bool add)
{
    EACH(i, BLOCK / LANES64) {
        v_f64 x, y = (v_f64)signed64(scale, bits >> i * LANES64);
        if (add) {
            LOAD(x, dst + i * VECTOR);
            y = x + y;
        }
        STORE(dst + i * VECTOR, y);
    }
}

/* ---- all elements ---------------------------------------------------------------------------------------- */

#define SIZE(type) ((type) == F32 ? 4u : 8u)

/* The last elements, too few for a block, go through a copy that ends with zeros, which neither counts nor is kept. */
INLINE double encode(const uint8_t *src, size_t count, uint8_t *bits, enum type type, bool scaled)
{
    v_f64 sum[SUMS] = {{0}};
    double total = 0;
    for (; count >= BLOCK; count -= BLOCK, src += BLOCK * SIZE(type), bits += BLOCK_BYTES) {
        uint32_t word = htole32(encode_block(src, sum, type, scaled));
        STORE(bits, word);
    }
    if (count > 0) {
        uint8_t rest[BLOCK * 8] = {0};
        memcpy(rest, src, count * SIZE(type));
        uint32_t word = htole32(encode_block(rest, sum, type, scaled));
        memcpy(bits, &word, (count + 7) / 8);
    }
    for (unsigned i = 0; i < BLOCK; i++) {
        total += sum[i / LANES64][i % LANES64];
    }
    return total;
}

INLINE void decode_block(uint8_t *dst, uint32_t word, double scale, enum type type, bool add)
{
    if (type == F32) {
        decode_block32(dst, (v_u32)((v_f32){0} + (float)scale), le32toh(word), add);
    } else {
        decode_block64(dst, (v_u64)((v_f64){0} + scale), le32toh(word), add);
    }
}

INLINE void decode(const uint8_t *bits, size_t count, double scale, uint8_t *dst, enum type type, bool add)
{
    uint32_t word = 0;
    for (; count >= BLOCK; count -= BLOCK, dst += BLOCK * SIZE(type), bits += BLOCK_BYTES) {
        LOAD(word, bits);
        decode_block(dst, word, scale, type, add);
    }
    if (count > 0) {
        uint8_t rest[BLOCK * 8] = {0};
        memcpy(rest, dst, count * SIZE(type));
        memcpy(&word, bits, (count + 7) / 8);
        decode_block(rest, word, scale, type, add);
        memcpy(dst, rest, count * SIZE(type));
    }
}

/* ---- all of them ----------------------------------------------------------------------------------------- */

#define DEFINE(name, type)                                                                                             \
    static double name##_encode(const uint8_t *src, size_t count, uint8_t *bits)                                       \
    {                                                                                                                  \
        return encode(src, count, bits, type, true);                                                                   \
    }                                                                                                                  \
                                                                                                                       \
    static double name##_encode_unscaled(const uint8_t *src, size_t count, uint8_t *bits)                              \
    {                                                                                                                  \
        return encode(src, count, bits, type, false);                                                                  \
    }                                                                                                                  \
                                                                                                                       \
    static void name##_decode(const uint8_t *bits, size_t count, double scale, uint8_t *dst)                           \
    {                                                                                                                  \
        decode(bits, count, scale, dst, type, false);                                                                  \
    }                                                                                                                  \
                                                                                                                       \
    static void name##_decode_add(const uint8_t *bits, size_t count, double scale, uint8_t *dst)                       \
    {                                                                                                                  \
        decode(bits, count, scale, dst, type, true);                                                                   \
    }

DEFINE(f32, F32)
DEFINE(f64, F64)

const struct onebit_table ONEBIT_TABLE = {
    .f32 = {f32_encode, f32_encode_unscaled, f32_decode, f32_decode_add},
    .f64 = {f64_encode, f64_encode_unscaled, f64_decode, f64_decode_add},
};
