/* SPDX-License-Identifier: Apache-2.0 */
/*
 * types.h - the element types: for each, how a vector of accumulators is loaded, stored, scaled and
 * combined.
 *
 *   size             of an element in bytes
 *   load, store      between memory of any alignment and a vector
 *   weigh, apply     the factor of first, fold and finish: made once, applied to STEPS vectors
 *   tidy             what comes before every store, for STEPS vectors: there is one bit pattern for NaN
 *   sum, min, max, product
 *   store2, split, join   the same for two vectors, see at the end
 *
 * float16, bfloat16 (half.h), E4M3 and E5M2 (float8.h), whose accumulators are float32, have only what
 * touches memory.
 */
#ifndef BPS_CPU_TYPES_H
#define BPS_CPU_TYPES_H

#include "float8.h"
#include "half.h"
#include "nan.h"
#include "scaled.h"
#include "vector.h"

enum {
    f16_size = 2,
    bf16_size = 2,
    e4m3_size = 1,
    e5m2_size = 1,
    f32_size = 4,
    f64_size = 8,
    u8_size = 1,
    i8_size = 1,
    i16_size = 2,
    i32_size = 4,
    i64_size = 8,
    b8_size = 1,
};

/* ---- floating point ------------------------------------------------------------------------------------ */

/* A factor is what first, fold and finish multiply by: scale / divisor, rounded once. */
#define FLOAT_TYPE(name, type, bits_vector, nan)                                                                       \
    typedef type name##_factor;                                                                                        \
                                                                                                                       \
    static inline v_##name name##_load(const uint8_t *address)                                                         \
    {                                                                                                                  \
        v_##name value;                                                                                                \
                                                                                                                       \
        LOAD(value, address);                                                                                          \
        return value;                                                                                                  \
    }                                                                                                                  \
                                                                                                                       \
    static inline void name##_store(uint8_t *address, v_##name value)                                                  \
    {                                                                                                                  \
        STORE(address, value);                                                                                         \
    }                                                                                                                  \
                                                                                                                       \
    static inline name##_factor name##_weigh(double scale, uint64_t divisor)                                           \
    {                                                                                                                  \
        return (type)(scale / (double)divisor);                                                                        \
    }                                                                                                                  \
                                                                                                                       \
    static inline void name##_apply(v_##name value[STEPS], name##_factor factor)                                       \
    {                                                                                                                  \
        EACH_STEP(at)                                                                                                  \
        {                                                                                                              \
            value[at] *= factor;                                                                                       \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    /* Which NaN an addition of two returns depends on the order of its operands: the compiler's choice. */            \
    static inline void name##_tidy(v_##name value[STEPS])                                                              \
    {                                                                                                                  \
        if (__builtin_expect(name##_any_nan(value), 0)) {                                                              \
            EACH_STEP(at)                                                                                              \
            {                                                                                                          \
                value[at] = (v_##name)SELECT(value[at] != value[at], (nan), (bits_vector)value[at]);                   \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    static inline v_##name name##_sum(v_##name a, v_##name b)                                                          \
    {                                                                                                                  \
        return a + b;                                                                                                  \
    }                                                                                                                  \
                                                                                                                       \
    static inline v_##name name##_product(v_##name a, v_##name b)                                                      \
    {                                                                                                                  \
        return a * b;                                                                                                  \
    }                                                                                                                  \
                                                                                                                       \
    /* A NaN is passed on: if b is one, neither comparison holds. Equal zeros: -0 is below +0. */                      \
    static inline v_##name name##_min(v_##name a, v_##name b)                                                          \
    {                                                                                                                  \
        bits_vector take_a = (bits_vector)(a < b) | (bits_vector)(a != a), equal = (bits_vector)(a == b);              \
                                                                                                                       \
        return (v_##name)(SELECT(take_a, (bits_vector)a, (bits_vector)b) | (equal & (bits_vector)a));                  \
    }                                                                                                                  \
                                                                                                                       \
    static inline v_##name name##_max(v_##name a, v_##name b)                                                          \
    {                                                                                                                  \
        bits_vector take_a = (bits_vector)(a > b) | (bits_vector)(a != a), equal = (bits_vector)(a == b);              \
                                                                                                                       \
        return (v_##name)(SELECT(take_a, (bits_vector)a, (bits_vector)b) & (~equal | (bits_vector)a));                 \
    }

FLOAT_TYPE(f32, float, v_i32, NAN_F32)
FLOAT_TYPE(f64, double, v_i64, 0x7ff8000000000000)

/* ---- integers ------------------------------------------------------------------------------------------ */

/*
 * Factors of integers are rare: one element at a time. Sums and products are those of unsigned integers, which
 * wrap; the rest is done in the type itself.
 */
#define INTEGER_TYPE(name, type, unsigned_vector)                                                                      \
    typedef double name##_factor;                                                                                      \
                                                                                                                       \
    static inline name##_factor name##_weigh(double scale, uint64_t divisor)                                           \
    {                                                                                                                  \
        return scale / (double)divisor;                                                                                \
    }                                                                                                                  \
                                                                                                                       \
    static __attribute__((noinline)) void name##_scale(v_##name value[STEPS], double factor)                           \
    {                                                                                                                  \
        EACH_STEP(at)                                                                                                  \
        {                                                                                                              \
            for (size_t i = 0; i < sizeof value[at] / sizeof value[at][0]; i++) {                                      \
                value[at][i] = type##_of((double)value[at][i] * factor);                                               \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    /* What is handed on is a copy, so that the values themselves stay in registers. */                                \
    static inline void name##_apply(v_##name value[STEPS], name##_factor factor)                                       \
    {                                                                                                                  \
        v_##name scaled[STEPS];                                                                                        \
                                                                                                                       \
        if (__builtin_expect(factor != 1, 0)) {                                                                        \
            memcpy(scaled, value, sizeof scaled);                                                                      \
            name##_scale(scaled, factor);                                                                              \
            memcpy(value, scaled, sizeof scaled);                                                                      \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    static inline void name##_tidy(v_##name value[STEPS])                                                              \
    {                                                                                                                  \
        (void)value;                                                                                                   \
    }                                                                                                                  \
                                                                                                                       \
    static inline v_##name name##_load(const uint8_t *address)                                                         \
    {                                                                                                                  \
        v_##name value;                                                                                                \
                                                                                                                       \
        LOAD(value, address);                                                                                          \
        return value;                                                                                                  \
    }                                                                                                                  \
                                                                                                                       \
    static inline void name##_store(uint8_t *address, v_##name value)                                                  \
    {                                                                                                                  \
        STORE(address, value);                                                                                         \
    }                                                                                                                  \
                                                                                                                       \
    static inline v_##name name##_sum(v_##name a, v_##name b)                                                          \
    {                                                                                                                  \
        return (v_##name)((unsigned_vector)a + (unsigned_vector)b);                                                    \
    }                                                                                                                  \
                                                                                                                       \
    static inline v_##name name##_product(v_##name a, v_##name b)                                                      \
    {                                                                                                                  \
        return (v_##name)((unsigned_vector)a * (unsigned_vector)b);                                                    \
    }                                                                                                                  \
                                                                                                                       \
    static inline v_##name name##_min(v_##name a, v_##name b)                                                          \
    {                                                                                                                  \
        return SELECT((v_##name)(a < b), a, b);                                                                        \
    }                                                                                                                  \
                                                                                                                       \
    static inline v_##name name##_max(v_##name a, v_##name b)                                                          \
    {                                                                                                                  \
        return SELECT((v_##name)(a > b), a, b);                                                                        \
    }

INTEGER_TYPE(u8, uint8_t, v_u8)
INTEGER_TYPE(i8, int8_t, v_u8)
INTEGER_TYPE(i16, int16_t, v_u16)
INTEGER_TYPE(i32, int32_t, v_u32)
INTEGER_TYPE(i64, int64_t, v_u64)

/* ---- bool ---------------------------------------------------------------------------------------------- */

/* Whatever is not 0 counts as 1, already when it is loaded; so "and" and "or" are those of bits. */
typedef v_u8 v_b8;
typedef int b8_factor; /* there are none */

static inline b8_factor b8_weigh(double scale, uint64_t divisor)
{
    (void)scale;
    (void)divisor;
    return 1;
}

static inline void b8_apply(v_b8 value[STEPS], b8_factor factor)
{
    (void)value;
    (void)factor;
}

static inline void b8_tidy(v_b8 value[STEPS])
{
    (void)value;
}

static inline v_b8 b8_load(const uint8_t *address)
{
    v_u8 value;

    LOAD(value, address);
    return (v_u8)(value != 0) & 1;
}

static inline void b8_store(uint8_t *address, v_b8 value)
{
    STORE(address, value);
}

static inline v_b8 b8_sum(v_b8 a, v_b8 b)
{
    return a | b;
}

static inline v_b8 b8_product(v_b8 a, v_b8 b)
{
    return a & b;
}

#define b8_min b8_product
#define b8_max b8_sum

/* ---- pairs of vectors ---------------------------------------------------------------------------------- */

/*
 * store2 stores two vectors of accumulators side by side. split and join load and store as many elements as
 * two such vectors have lanes, in whatever order is cheapest: for where they meet only their like.
 */
#define PAIRS(type, acc)                                                                                               \
    static inline void type##_store2(uint8_t *address, const v_##acc value[2])                                         \
    {                                                                                                                  \
        type##_store(address, value[0]);                                                                               \
        type##_store(address + VECTOR * type##_size / acc##_size, value[1]);                                           \
    }                                                                                                                  \
                                                                                                                       \
    static inline void type##_split(v_##acc out[2], const uint8_t *address)                                            \
    {                                                                                                                  \
        out[0] = type##_load(address);                                                                                 \
        out[1] = type##_load(address + VECTOR * type##_size / acc##_size);                                             \
    }                                                                                                                  \
                                                                                                                       \
    static inline void type##_join(uint8_t *address, const v_##acc value[2])                                           \
    {                                                                                                                  \
        type##_store2(address, value);                                                                                 \
    }

PAIRS(f32, f32)
PAIRS(f64, f64)
PAIRS(f16, f32)
PAIRS(e4m3, f32)
PAIRS(e5m2, f32)
PAIRS(u8, u8)
PAIRS(i8, i8)
PAIRS(i16, i16)
PAIRS(i32, i32)
PAIRS(i64, i64)
PAIRS(b8, b8)

#endif
