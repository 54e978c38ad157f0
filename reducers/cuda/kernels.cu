/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.cu - the arithmetic of struct bps_kernels on a device: all sources in one pass, with scales,
 * divisor and rounding, and bit by bit the same results as on the host (reducers/cpu).
 *
 * They are macros over type and operation, in the C that C++ is, too: the tests compile this file for the
 * host. That the bits are the same needs a compiler that does not contract a multiplication and an addition:
 * -fmad=false.
 */
#include "kernels.h"

#ifdef __CUDACC__
#include "nvcc.h"
#endif

/* ---- memory -------------------------------------------------------------------------------------------- */

/*
 * An element anywhere: at an address that is no multiple of its size a device reads and writes only bytes.
 */
#define ELEMENT(storage)                                                                                               \
    union storage##_element {                                                                                          \
        storage whole;                                                                                                 \
        uint8_t byte[sizeof(storage)];                                                                                 \
    };                                                                                                                 \
                                                                                                                       \
    union storage##_vector {                                                                                           \
        uint4 whole;                                                                                                   \
        storage element[CUDA_VECTOR / sizeof(storage)];                                                                \
    };                                                                                                                 \
                                                                                                                       \
    INLINE storage storage##_load(const uint8_t *address)                                                              \
    {                                                                                                                  \
        union storage##_element element;                                                                               \
        if ((uintptr_t)address % sizeof(storage) == 0) {                                                               \
            return *(const storage *)address;                                                                          \
        }                                                                                                              \
        EACH(i, sizeof(storage)) {                                                                                     \
            element.byte[i] = address[i];                                                                              \
        }                                                                                                              \
        return element.whole;                                                                                          \
    }                                                                                                                  \
                                                                                                                       \
    INLINE void storage##_store(uint8_t *address, storage value)                                                       \
    {                                                                                                                  \
        union storage##_element element;                                                                               \
        element.whole = value;                                                                                         \
        if ((uintptr_t)address % sizeof(storage) == 0) {                                                               \
            *(storage *)address = value;                                                                               \
            return;                                                                                                    \
        }                                                                                                              \
        EACH(i, sizeof(storage)) {                                                                                     \
            address[i] = element.byte[i];                                                                              \
        }                                                                                                              \
    }

ELEMENT(uint8_t)
ELEMENT(int8_t)
ELEMENT(uint16_t)
ELEMENT(int16_t)
ELEMENT(uint32_t)
ELEMENT(int32_t)
ELEMENT(uint64_t)
ELEMENT(int64_t)

/* ---- floating point ------------------------------------------------------------------------------------ */

/*
 * For each type: read and write, between what lies in memory and what is computed with; apply, a factor;
 * finish, the last one; and the operations. Written, there is one bit pattern for NaN.
 */
#define FLOAT(type, bits)                                                                                              \
    union type##_bits {                                                                                                \
        bits pattern;                                                                                                  \
        type value;                                                                                                    \
    };                                                                                                                 \
                                                                                                                       \
    INLINE type type##_of(bits pattern)                                                                                \
    {                                                                                                                  \
        union type##_bits u;                                                                                           \
        u.pattern = pattern;                                                                                           \
        return u.value;                                                                                                \
    }                                                                                                                  \
                                                                                                                       \
    INLINE bits type##_pattern(type value)                                                                             \
    {                                                                                                                  \
        union type##_bits u;                                                                                           \
        u.value = value;                                                                                               \
        return u.pattern;                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    INLINE type type##_sum(type a, type b)                                                                             \
    {                                                                                                                  \
        return a + b;                                                                                                  \
    }                                                                                                                  \
                                                                                                                       \
    INLINE type type##_product(type a, type b)                                                                         \
    {                                                                                                                  \
        return a * b;                                                                                                  \
    }                                                                                                                  \
                                                                                                                       \
    /* A NaN is passed on: if b is one, neither comparison holds. Equal zeros: -0 is below +0. */                      \
    INLINE type type##_min(type a, type b)                                                                             \
    {                                                                                                                  \
        if (a == b) {                                                                                                  \
            return type##_of(type##_pattern(a) | type##_pattern(b));                                                   \
        }                                                                                                              \
        return a < b || a != a ? a : b;                                                                                \
    }                                                                                                                  \
                                                                                                                       \
    INLINE type type##_max(type a, type b)                                                                             \
    {                                                                                                                  \
        if (a == b) {                                                                                                  \
            return type##_of(type##_pattern(a) & type##_pattern(b));                                                   \
        }                                                                                                              \
        return a > b || a != a ? a : b;                                                                                \
    }                                                                                                                  \
                                                                                                                       \
    INLINE type type##_apply(type value, double factor)                                                                \
    {                                                                                                                  \
        return value * (type)factor;                                                                                   \
    }

FLOAT(float, uint32_t)
FLOAT(double, uint64_t)

INLINE float f32_read(uint32_t bits)
{
    return float_of(bits);
}

INLINE uint32_t f32_write(float value)
{
    return value != value ? 0x7fc00000u : float_pattern(value);
}

INLINE double f64_read(uint64_t bits)
{
    return double_of(bits);
}

INLINE uint64_t f64_write(double value)
{
    return value != value ? 0x7ff8000000000000u : double_pattern(value);
}

INLINE float f16_read(uint16_t bits)
{
    return float_of_half(bits);
}

INLINE uint16_t f16_write(float value)
{
    return value != value ? 0x7e00u : half_of_float(value);
}

/* bfloat16 is the upper half of a float32; what is cut off rounds to nearest, ties to even. */
INLINE float bf16_read(uint16_t bits)
{
    return float_of((uint32_t)bits << 16);
}

INLINE uint16_t bf16_write(float value)
{
    uint32_t bits = float_pattern(value);
    return value != value ? 0x7fc0u : (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* Of 8 bits: the product puts the exponent right, of subnormals too. All ones of E4M3 are NaN. */
INLINE float e4m3_read(uint8_t bits)
{
    uint32_t magnitude = float_pattern(float_of((bits & 0x7fu) << 20) * 0x1p120f);
    return float_of((bits & 0x80u) << 24 | ((bits & 0x7fu) == 0x7fu ? 0x7fc00000u : magnitude));
}

/* E5M2 is the upper half of a float16. */
INLINE float e5m2_read(uint8_t bits)
{
    return float_of_half((uint16_t)(bits << 8));
}

/*
 * Without the sign, and without what is too large; ties to even. Beside `number` the last place of a float is
 * that of a subnormal: the addition rounds to it.
 */
INLINE uint32_t float8_round(uint32_t magnitude, unsigned fraction, unsigned bias)
{
    unsigned cut = 23 - fraction;
    uint32_t half = (1u << (cut - 1)) - 1u + (magnitude >> cut & 1u), number = (151u - bias - fraction) << 23;
    if (magnitude < (128u - bias) << 23) {
        return float_pattern(float_of(magnitude) + float_of(number)) - number;
    }
    return (magnitude - ((127u - bias) << 23) + half) >> cut;
}

/* NaN, too, is larger than the middle between 448 and what would follow. */
INLINE uint8_t e4m3_write(float value)
{
    uint32_t bits = float_pattern(value), magnitude = bits & 0x7fffffffu;
    return (uint8_t)(magnitude > 0x43e80000u ? 0x7fu : (bits >> 24 & 0x80u) | float8_round(magnitude, 3, 7));
}

INLINE uint8_t e5m2_write(float value)
{
    uint32_t bits = float_pattern(value), magnitude = bits & 0x7fffffffu;
    uint32_t number = magnitude >= 0x47800000u ? 0x7cu : float8_round(magnitude, 2, 15);
    return (uint8_t)(value != value ? 0x7eu : (bits >> 24 & 0x80u) | number);
}

/* ---- integers ------------------------------------------------------------------------------------------ */

/* Sums and products are those of the unsigned `wide`, and wrap. There are no factors. */
#define INTEGER(name, type, wide)                                                                                      \
    INLINE type name##_read(type value)                                                                                \
    {                                                                                                                  \
        return value;                                                                                                  \
    }                                                                                                                  \
                                                                                                                       \
    INLINE type name##_write(type value)                                                                               \
    {                                                                                                                  \
        return value;                                                                                                  \
    }                                                                                                                  \
                                                                                                                       \
    INLINE type type##_sum(type a, type b)                                                                             \
    {                                                                                                                  \
        return (type)((wide)a + (wide)b);                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    INLINE type type##_product(type a, type b)                                                                         \
    {                                                                                                                  \
        return (type)((wide)a * (wide)b);                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    INLINE type type##_apply(type value, double factor)                                                                \
    {                                                                                                                  \
        (void)factor;                                                                                                  \
        return value;                                                                                                  \
    }

#define ORDER(type)                                                                                                    \
    INLINE type type##_min(type a, type b)                                                                             \
    {                                                                                                                  \
        return a < b ? a : b;                                                                                          \
    }                                                                                                                  \
                                                                                                                       \
    INLINE type type##_max(type a, type b)                                                                             \
    {                                                                                                                  \
        return a > b ? a : b;                                                                                          \
    }

INTEGER(u8, uint8_t, uint32_t)
INTEGER(i8, int8_t, uint32_t)
INTEGER(i16, int16_t, uint32_t)
INTEGER(i32, int32_t, uint32_t)
INTEGER(i64, int64_t, uint64_t)
ORDER(uint8_t)
ORDER(int16_t)
ORDER(int32_t)
ORDER(int64_t)

/* ---- bool ---------------------------------------------------------------------------------------------- */

/* Whatever is not 0 counts as 1, already when it is read; so "and" and "or" are those of bits. */
typedef uint32_t truth;

INLINE truth b8_read(uint8_t value)
{
    return value != 0;
}

INLINE uint8_t b8_write(truth value)
{
    return (uint8_t)value;
}

INLINE truth truth_sum(truth a, truth b)
{
    return a | b;
}

INLINE truth truth_product(truth a, truth b)
{
    return a & b;
}

#define truth_min truth_product
#define truth_max truth_sum

INLINE truth truth_apply(truth value, double factor)
{
    (void)factor;
    return value;
}

/* ---- kernels ------------------------------------------------------------------------------------------- */

#define REDUCE(type, storage, total_type, op)                                                                          \
    INLINE void type##_##op##_element(const struct cuda_reduction *r, uint64_t offset)                                 \
    {                                                                                                                  \
        total_type total = type##_read(storage##_load(r->src[0] + offset));                                            \
        total = total_type##_apply(total, r->scale[0]);                                                                \
        EACH_FURTHER_SOURCE(s, r) {                                                                                    \
            total_type value = type##_read(storage##_load(r->src[s] + offset));                                        \
            total = total_type##_##op(total, total_type##_apply(value, r->scale[s]));                                  \
        }                                                                                                              \
        storage##_store(r->dst + offset, type##_write(total_type##_apply(total, r->factor)));                          \
    }                                                                                                                  \
                                                                                                                       \
    INLINE void type##_##op##_vector(const struct cuda_reduction *r, uint64_t offset)                                  \
    {                                                                                                                  \
        union storage##_vector vector;                                                                                 \
        total_type total[CUDA_VECTOR / sizeof(storage)];                                                               \
        vector.whole = *(const uint4 *)(r->src[0] + offset);                                                           \
        EACH(i, CUDA_VECTOR / sizeof(storage)) {                                                                       \
            total[i] = total_type##_apply(type##_read(vector.element[i]), r->scale[0]);                                \
        }                                                                                                              \
        EACH_FURTHER_SOURCE(s, r) {                                                                                    \
            vector.whole = *(const uint4 *)(r->src[s] + offset);                                                       \
            EACH(i, CUDA_VECTOR / sizeof(storage)) {                                                                   \
                total_type value = type##_read(vector.element[i]);                                                     \
                total[i] = total_type##_##op(total[i], total_type##_apply(value, r->scale[s]));                        \
            }                                                                                                          \
        }                                                                                                              \
        EACH(i, CUDA_VECTOR / sizeof(storage)) {                                                                       \
            vector.element[i] = type##_write(total_type##_apply(total[i], r->factor));                                 \
        }                                                                                                              \
        *(uint4 *)(r->dst + offset) = vector.whole;                                                                    \
    }                                                                                                                  \
                                                                                                                       \
    KERNEL(bps_reduce_##type##_##op, CUDA_PROCESSOR_BLOCKS(sizeof(storage)))                                           \
    {                                                                                                                  \
        const struct cuda_reduction *r = &reduction;                                                                   \
        uint64_t self = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;                                               \
        uint64_t inside = r->vectors * (CUDA_VECTOR / sizeof(storage));                                                \
        if (self < r->vectors) {                                                                                       \
            type##_##op##_vector(r, r->head * sizeof(storage) + self * CUDA_VECTOR);                                   \
        }                                                                                                              \
        if (self < r->count - inside) {                                                                                \
            type##_##op##_element(r, (self < r->head ? self : self + inside) * sizeof(storage));                       \
        }                                                                                                              \
    }

#define REDUCTIONS(type, storage, total_type)                                                                          \
    REDUCE(type, storage, total_type, sum)                                                                             \
    REDUCE(type, storage, total_type, min)                                                                             \
    REDUCE(type, storage, total_type, max)                                                                             \
    REDUCE(type, storage, total_type, product)

REDUCTIONS(f32, uint32_t, float)
REDUCTIONS(f64, uint64_t, double)
REDUCTIONS(f16, uint16_t, float)
REDUCTIONS(bf16, uint16_t, float)
REDUCTIONS(e4m3, uint8_t, float)
REDUCTIONS(e5m2, uint8_t, float)
REDUCTIONS(u8, uint8_t, uint8_t)
REDUCTIONS(i16, int16_t, int16_t)
REDUCTIONS(i32, int32_t, int32_t)
REDUCTIONS(i64, int64_t, int64_t)
REDUCTIONS(b8, uint8_t, truth)

/* Compared as int32_t: registers have 32 bits, and else its sign would be extended anew for each source. */
REDUCE(i8, int8_t, int8_t, sum)
REDUCE(i8, int8_t, int32_t, min)
REDUCE(i8, int8_t, int32_t, max)
REDUCE(i8, int8_t, int8_t, product)
