/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.c - the kernels, compiled once for each instruction set (CPU_TABLE names the table it makes).
 *
 * They are macros over (type, accumulator, operation); types.h has what they are made of. Every result is
 * defined to the bit (README.md), so all instruction sets agree. That needs a compiler that neither
 * reassociates nor contracts a multiplication and an addition into one rounding: -ffp-contract=off, and
 * never -ffast-math.
 */
#include "kernels.h"

#include "environment.h"
#include "types.h"

#ifdef __FAST_MATH__
#error "the kernels must be compiled without -ffast-math"
#endif

/* ---- walking over buffers ------------------------------------------------------------------------------ */

#define INLINE static inline __attribute__((always_inline))

/* Two buffers that are passed in step, and the bytes of one block in each. */
struct walk {
    uint8_t *to;
    const uint8_t *from;
    size_t to_bytes, from_bytes;
};

typedef void (*block_fn)(uint8_t *to, const uint8_t *from, const void *factor);

/*
 * Calls fn for each `block` elements. The last ones, too few for a block, go through a padded copy: so every
 * element passes the same instructions, wherever the buffer was cut.
 */
INLINE void walk_blocks(struct walk at, size_t count, size_t block, block_fn fn, const void *factor)
{
    for (; count >= block; count -= block) {
        fn(at.to, at.from, factor);
        at.to += at.to_bytes;
        at.from += at.from_bytes;
    }
    if (count) {
        uint8_t to[STEPS * VECTOR] = {0}, from[STEPS * VECTOR] = {0};

        memcpy(to, at.to, count * (at.to_bytes / block));
        memcpy(from, at.from, count * (at.from_bytes / block));
        fn(to, from, factor);
        memcpy(at.to, to, count * (at.to_bytes / block));
    }
}

/* The arguments of reduce. */
struct reduction {
    uint8_t *dst;
    const void *const *src;
    const double *scales;
    unsigned n;
    double scale;
    uint64_t divisor;
};

static inline const uint8_t *source(const struct reduction *r, unsigned i, size_t offset)
{
    return (const uint8_t *)r->src[i] + offset;
}

static inline double source_scale(const struct reduction *r, unsigned i)
{
    return r->scales ? r->scales[i] : 1;
}

/* Whether the sources are multiplied by one factor, or by one each. */
enum scaling { NONE, ALIKE, EACH };

static inline enum scaling scaling_of(const struct reduction *r)
{
    enum scaling scaling = r->scales ? ALIKE : NONE;

    for (unsigned i = 1; r->scales && i < r->n; i++) {
        scaling = r->scales[i] != r->scales[0] ? EACH : scaling;
    }
    return scaling;
}

/* The elements that are too few for a block: one step after the other, as reduce is defined. */
static void reduce_rest(const struct reduction *r, const struct bps_kernels *steps, size_t offset, size_t count)
{
    uint8_t total[STEPS * VECTOR];

    steps->first(steps->context, total, source(r, 0, offset), count, source_scale(r, 0));
    for (unsigned i = 1; i < r->n; i++) {
        steps->fold(steps->context, total, source(r, i, offset), count, source_scale(r, i));
    }
    steps->finish(steps->context, r->dst + offset, total, count, r->scale, r->divisor);
}

/* ---- kernels ------------------------------------------------------------------------------------------- */

/* Elements in a block, and their bytes as `type`. */
#define BLOCK(acc)             (STEPS * VECTOR / acc##_size)
#define BLOCK_BYTES(type, acc) (BLOCK(acc) * type##_size)
#define STEP_BYTES(type, acc)  (VECTOR / acc##_size * type##_size)

#define FIRST(type, acc)                                                                                               \
    INLINE void type##_first_block(uint8_t *to, const uint8_t *src, const void *factor)                                \
    {                                                                                                                  \
        v_##acc value[STEPS];                                                                                          \
                                                                                                                       \
        EACH_STEP(at)                                                                                                  \
        {                                                                                                              \
            value[at] = type##_load(src + at * STEP_BYTES(type, acc));                                                 \
        }                                                                                                              \
        acc##_apply(value, *(const acc##_factor *)factor);                                                             \
        acc##_tidy(value);                                                                                             \
        EACH_STEP(at)                                                                                                  \
        {                                                                                                              \
            acc##_store(to + at * VECTOR, value[at]);                                                                  \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    static void type##_first(void *context, void *to, const void *src, size_t count, double scale)                     \
    {                                                                                                                  \
        (void)context;                                                                                                 \
        struct walk at = {to, src, STEPS * VECTOR, BLOCK_BYTES(type, acc)};                                            \
        uint32_t state = fp_enter(&scale);                                                                             \
        acc##_factor factor = acc##_weigh(scale, 1);                                                                   \
                                                                                                                       \
        walk_blocks(at, count, BLOCK(acc), type##_first_block, &factor);                                               \
        fp_leave(state);                                                                                               \
    }

#define FOLD(type, acc, op)                                                                                            \
    INLINE void type##_##op##_block(uint8_t *to, const uint8_t *src, const void *factor)                               \
    {                                                                                                                  \
        v_##acc value[STEPS];                                                                                          \
                                                                                                                       \
        EACH_STEP(at)                                                                                                  \
        {                                                                                                              \
            value[at] = type##_load(src + at * STEP_BYTES(type, acc));                                                 \
        }                                                                                                              \
        acc##_apply(value, *(const acc##_factor *)factor);                                                             \
        EACH_STEP(at)                                                                                                  \
        {                                                                                                              \
            value[at] = acc##_##op(acc##_load(to + at * VECTOR), value[at]);                                           \
        }                                                                                                              \
        acc##_tidy(value);                                                                                             \
        EACH_STEP(at)                                                                                                  \
        {                                                                                                              \
            acc##_store(to + at * VECTOR, value[at]);                                                                  \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    static void type##_fold_##op(void *context, void *to, const void *src, size_t count, double scale)                 \
    {                                                                                                                  \
        (void)context;                                                                                                 \
        struct walk at = {to, src, STEPS * VECTOR, BLOCK_BYTES(type, acc)};                                            \
        uint32_t state = fp_enter(&scale);                                                                             \
        acc##_factor factor = acc##_weigh(scale, 1);                                                                   \
                                                                                                                       \
        walk_blocks(at, count, BLOCK(acc), type##_##op##_block, &factor);                                              \
        fp_leave(state);                                                                                               \
    }

/* dst may begin where the accumulators do and be narrower: all of a block is read first. */
#define FINISH(type, acc)                                                                                              \
    INLINE void type##_finish_block(uint8_t *dst, const uint8_t *from, const void *factor)                             \
    {                                                                                                                  \
        v_##acc value[STEPS];                                                                                          \
                                                                                                                       \
        EACH_STEP(at)                                                                                                  \
        {                                                                                                              \
            value[at] = acc##_load(from + at * VECTOR);                                                                \
        }                                                                                                              \
        acc##_apply(value, *(const acc##_factor *)factor);                                                             \
        acc##_tidy(value);                                                                                             \
        EACH_PAIR(at)                                                                                                  \
        {                                                                                                              \
            type##_store2(dst + at * STEP_BYTES(type, acc), &value[at]);                                               \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    static void type##_finish(void *context, void *dst, const void *from, size_t count, double scale,                  \
                              uint64_t divisor)                                                                        \
    {                                                                                                                  \
        (void)context;                                                                                                 \
        struct walk at = {dst, from, BLOCK_BYTES(type, acc), STEPS * VECTOR};                                          \
        uint32_t state = fp_enter(&scale);                                                                             \
        acc##_factor factor = acc##_weigh(scale, divisor);                                                             \
                                                                                                                       \
        walk_blocks(at, count, BLOCK(acc), type##_finish_block, &factor);                                              \
        fp_leave(state);                                                                                               \
    }

/* A block of one source. */
#define GATHER(type, acc)                                                                                              \
    INLINE void type##_gather(v_##acc *out, const struct reduction *r, unsigned i, size_t offset,                      \
                              enum scaling scaling, acc##_factor alike)                                                \
    {                                                                                                                  \
        acc##_factor factor = scaling == EACH ? acc##_weigh(r->scales[i], 1) : alike;                                  \
                                                                                                                       \
        EACH_PAIR(at)                                                                                                  \
        {                                                                                                              \
            type##_split(&out[at], source(r, i, offset + at * STEP_BYTES(type, acc)));                                 \
        }                                                                                                              \
        if (scaling != NONE) {                                                                                         \
            acc##_apply(out, factor);                                                                                  \
        }                                                                                                              \
    }

/*
 * All sources, a block of each in one go, with the totals in registers. Mostly there are no scales, or those of an
 * average, which are alike; often there are two sources and no factor at the end: these are constants where this is
 * inlined.
 */
#define REDUCE(type, dtype, acc, op, op_number)                                                                        \
    INLINE void type##_##op##_sources(const struct reduction *r, unsigned n, size_t end, acc##_factor last,            \
                                      enum scaling scaling, acc##_factor alike, bool weighted)                         \
    {                                                                                                                  \
        for (size_t offset = 0; offset < end; offset += BLOCK_BYTES(type, acc)) {                                      \
            v_##acc total[STEPS], value[STEPS];                                                                        \
                                                                                                                       \
            type##_gather(total, r, 0, offset, scaling, alike);                                                        \
            for (unsigned i = 1; i < n; i++) {                                                                         \
                type##_gather(value, r, i, offset, scaling, alike);                                                    \
                EACH_STEP(at)                                                                                          \
                {                                                                                                      \
                    total[at] = acc##_##op(total[at], value[at]);                                                      \
                }                                                                                                      \
            }                                                                                                          \
            if (weighted) {                                                                                            \
                acc##_apply(total, last);                                                                              \
            }                                                                                                          \
            acc##_tidy(total);                                                                                         \
            EACH_PAIR(at)                                                                                              \
            {                                                                                                          \
                type##_join(r->dst + offset + at * STEP_BYTES(type, acc), &total[at]);                                 \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    static void type##_reduce_##op(void *context, void *dst, const void *const *src, const double *scales, unsigned n, \
                                   size_t count, double scale, uint64_t divisor)                                       \
    {                                                                                                                  \
        (void)context;                                                                                                 \
        uint32_t state = fp_enter(&scale);                                                                             \
        struct reduction r = {dst, src, scales, n, scale, divisor};                                                    \
        acc##_factor last = acc##_weigh(scale, divisor), alike = acc##_weigh(source_scale(&r, 0), 1);                  \
        enum scaling scaling = scaling_of(&r);                                                                         \
        bool weighted = scale != 1 || divisor != 1;                                                                    \
        size_t rest = count % BLOCK(acc), end = (count - rest) * type##_size;                                          \
                                                                                                                       \
        if (scaling == EACH) {                                                                                         \
            type##_##op##_sources(&r, n, end, last, EACH, alike, true);                                                \
        } else if (scaling == ALIKE && (n != 2 || weighted)) {                                                         \
            type##_##op##_sources(&r, n, end, last, ALIKE, alike, true);                                               \
        } else if (scaling == ALIKE) {                                                                                 \
            type##_##op##_sources(&r, 2, end, last, ALIKE, alike, false);                                              \
        } else if (n != 2) {                                                                                           \
            type##_##op##_sources(&r, n, end, last, NONE, alike, true);                                                \
        } else if (weighted) {                                                                                         \
            type##_##op##_sources(&r, 2, end, last, NONE, alike, true);                                                \
        } else {                                                                                                       \
            type##_##op##_sources(&r, 2, end, last, NONE, alike, false);                                               \
        }                                                                                                              \
        if (rest) {                                                                                                    \
            reduce_rest(&r, &CPU_TABLE.of[op_number][dtype], end, rest);                                               \
        }                                                                                                              \
        fp_leave(state);                                                                                               \
    }

/* ---- all of them --------------------------------------------------------------------------------------- */

/* Element types: short name and dtype, then name and dtype of the accumulator. */
#define TYPES(X)                                                                                                       \
    X(f32, BPS_FLOAT32, f32, BPS_FLOAT32)                                                                              \
    X(f64, BPS_FLOAT64, f64, BPS_FLOAT64)                                                                              \
    X(f16, BPS_FLOAT16, f32, BPS_FLOAT32)                                                                              \
    X(bf16, BPS_BFLOAT16, f32, BPS_FLOAT32)                                                                            \
    X(e4m3, BPS_FLOAT8_E4M3FN, f32, BPS_FLOAT32)                                                                       \
    X(e5m2, BPS_FLOAT8_E5M2, f32, BPS_FLOAT32)                                                                         \
    X(u8, BPS_UINT8, u8, BPS_UINT8)                                                                                    \
    X(i8, BPS_INT8, i8, BPS_INT8)                                                                                      \
    X(i16, BPS_INT16, i16, BPS_INT16)                                                                                  \
    X(i32, BPS_INT32, i32, BPS_INT32)                                                                                  \
    X(i64, BPS_INT64, i64, BPS_INT64)                                                                                  \
    X(b8, BPS_BOOL, b8, BPS_BOOL)

#define DEFINE(type, dtype, acc, acc_dtype)                                                                            \
    FIRST(type, acc)                                                                                                   \
    FINISH(type, acc)                                                                                                  \
    FOLD(type, acc, sum)                                                                                               \
    FOLD(type, acc, min)                                                                                               \
    FOLD(type, acc, max)                                                                                               \
    FOLD(type, acc, product)                                                                                           \
    GATHER(type, acc)                                                                                                  \
    REDUCE(type, dtype, acc, sum, BPS_SUM)                                                                             \
    REDUCE(type, dtype, acc, min, BPS_MIN)                                                                             \
    REDUCE(type, dtype, acc, max, BPS_MAX)                                                                             \
    REDUCE(type, dtype, acc, product, BPS_PRODUCT)

TYPES(DEFINE)

/* The functions of one operation. */
#define ROW(type, acc_dtype, op) {acc_dtype, NULL, type##_first, type##_fold_##op, type##_finish, type##_reduce_##op}

#define SUM(type, dtype, acc, acc_dtype)     [dtype] = ROW(type, acc_dtype, sum),
#define MIN(type, dtype, acc, acc_dtype)     [dtype] = ROW(type, acc_dtype, min),
#define MAX(type, dtype, acc, acc_dtype)     [dtype] = ROW(type, acc_dtype, max),
#define PRODUCT(type, dtype, acc, acc_dtype) [dtype] = ROW(type, acc_dtype, product),

const struct cpu_table CPU_TABLE = {{
    [BPS_SUM] = {TYPES(SUM)},
    [BPS_MIN] = {TYPES(MIN)},
    [BPS_MAX] = {TYPES(MAX)},
    [BPS_PRODUCT] = {TYPES(PRODUCT)},
}};
