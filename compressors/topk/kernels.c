/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.c - elements by their magnitude, compiled once for each instruction set (TOPK_TABLE names the table).
 *
 * A step of elements is compared at once. Steps with a hit, an element that is looked for, are noted without a branch,
 * which no CPU could foresee; then the hits, which are few, are taken one by one. No key has the highest bit, so signed
 * comparisons do, of which every instruction set has some.
 */
#include "kernels.h"

#include "util/vector.h"

#define STEP      32u
#define STEPS     256u /* that are noted before their hits are taken */
#define VECTORS32 (STEP / LANES32)
#define VECTORS64 (STEP / LANES64)

#define MAGNITUDE32 0x7fffffffu
#define MAGNITUDE64 0x7fffffffffffffffu

enum type { F32, F64 };

#define SIZE(type) ((type) == F32 ? 4u : 8u)

INLINE uint64_t key_of(const uint8_t *at, enum type type)
{
    uint32_t narrow;
    uint64_t wide;
    if (type == F32) {
        LOAD(narrow, at);
        return narrow & MAGNITUDE32;
    }
    LOAD(wide, at);
    return wide & MAGNITUDE64;
}

/*
 * The lanes of keys that are above another key, the first one in the lowest bit. Compiled for AVX-512, a comparison of
 * vectors goes from a mask to lanes and back, which takes longer than the comparison.
 */
INLINE uint32_t above32(v_u32 keys, int32_t key)
{
#if VECTOR == 64
    return _mm512_cmpgt_epi32_mask((__m512i)keys, _mm512_set1_epi32(key));
#else
    return SIGNS32((v_u32)((v_i32)keys > key));
#endif
}

INLINE uint32_t above64(v_u64 keys, int64_t key)
{
#if VECTOR == 64
    return _mm512_cmpgt_epi64_mask((__m512i)keys, _mm512_set1_epi64(key));
#else
    return SIGNS64((v_u64)((v_i64)keys > key));
#endif
}

/* Those of a step. */
INLINE uint32_t step_above(const uint8_t *src, int64_t key, enum type type)
{
    uint32_t above = 0;
    if (type == F32) {
        EACH(i, VECTORS32) {
            v_u32 x;
            LOAD(x, src + i * VECTOR);
            above |= above32(x & MAGNITUDE32, (int32_t)key) << i * LANES32;
        }
    } else {
        EACH(i, VECTORS64) {
            v_u64 x;
            LOAD(x, src + i * VECTOR);
            above |= above64(x & MAGNITUDE64, key) << i * LANES64;
        }
    }
    return above;
}

/* Steps with hits, and which of their elements these are, the first one in the lowest bit. */
struct hits {
    unsigned n;
    uint16_t step[STEPS];
    uint32_t mask[STEPS];
};

INLINE void note(struct hits *hits, unsigned step, uint32_t mask)
{
    hits->step[hits->n] = (uint16_t)step;
    hits->mask[hits->n] = mask;
    hits->n += mask != 0;
}

/* How many steps follow, of which hits can be noted. */
INLINE unsigned steps_of(size_t count)
{
    return count / STEP < STEPS ? (unsigned)(count / STEP) : STEPS;
}

/* The first place in a mask, which is taken out. */
INLINE unsigned take_first(uint32_t *mask)
{
    unsigned place = (unsigned)__builtin_ctz(*mask);
    *mask &= *mask - 1;
    return place;
}

/* ---- tallies ------------------------------------------------------------------------------------------------- */

/* An element in the range. It may be in the pool already, here or further on. */
INLINE void put_inside(const uint8_t *at, const struct range *range, struct tally *tally, enum type type)
{
    tally->bin[(key_of(at, type) - range->low) >> range->shift]++;
    if (tally->pooled < POOL) {
        memmove(tally->pool + tally->pooled++ * SIZE(type), at, SIZE(type));
    }
}

INLINE void tally_one(const uint8_t *at, const struct range *range, struct tally *tally, enum type type)
{
    uint64_t key = key_of(at, type);
    if (key > range->last) {
        tally->above++;
    } else if (key >= range->low) {
        tally->inside++;
        put_inside(at, range, tally, type);
    }
}

INLINE void put_hits(const uint8_t *src, uint32_t mask, const struct range *range, struct tally *tally, enum type type)
{
    while (mask != 0) {
        put_inside(src + take_first(&mask) * SIZE(type), range, tally, type);
    }
}

INLINE void tally(const uint8_t *src, size_t count, const struct range *range, struct tally *out, enum type type)
{
    const struct range fixed = *range;
    size_t above = 0, reached = 0;
    for (unsigned steps; (steps = steps_of(count)) > 0; count -= steps * STEP, src += steps * STEP * SIZE(type)) {
        struct hits hits;
        hits.n = 0;
        for (unsigned i = 0; i < steps; i++) {
            const uint8_t *at = src + i * STEP * SIZE(type);
            uint32_t over = step_above(at, (int64_t)fixed.last, type),
                     in = step_above(at, (int64_t)fixed.low - 1, type);
            above += (size_t)__builtin_popcount(over);
            reached += (size_t)__builtin_popcount(in);
            /* The difference of sets: what the compiler makes of & ~ for AVX-512 is slower. */
            note(&hits, i, in - over);
        }
        for (unsigned i = 0; i < hits.n && fixed.low < fixed.last; i++) {
            put_hits(src + hits.step[i] * STEP * SIZE(type), hits.mask[i], &fixed, out, type);
        }
    }
    out->above += above;
    out->inside += reached - above;
    for (size_t i = 0; i < count; i++) {
        tally_one(src + i * SIZE(type), &fixed, out, type);
    }
}

/* ---- places -------------------------------------------------------------------------------------------------- */

INLINE size_t find(const uint8_t *src, size_t count, uint64_t least, uint16_t *places, enum type type)
{
    size_t found = 0, i = 0;
    for (unsigned steps; (steps = steps_of(count - i)) > 0; i += steps * STEP) {
        struct hits hits;
        hits.n = 0;
        for (unsigned step = 0; step < steps; step++) {
            note(&hits, step, step_above(src + (i + step * STEP) * SIZE(type), (int64_t)least - 1, type));
        }
        for (unsigned hit = 0; hit < hits.n; hit++) {
            uint32_t mask = hits.mask[hit];
            while (mask != 0) {
                places[found++] = (uint16_t)(i + hits.step[hit] * STEP + take_first(&mask));
            }
        }
    }
    for (; i < count; i++) {
        if (key_of(src + i * SIZE(type), type) >= least) {
            places[found++] = (uint16_t)i;
        }
    }
    return found;
}

/* ---- all of them --------------------------------------------------------------------------------------------- */

#define DEFINE(name, type)                                                                                             \
    static void name##_tally(const uint8_t *src, size_t count, const struct range *range, struct tally *out)           \
    {                                                                                                                  \
        tally(src, count, range, out, type);                                                                           \
    }                                                                                                                  \
                                                                                                                       \
    static size_t name##_find(const uint8_t *src, size_t count, uint64_t least, uint16_t *places)                      \
    {                                                                                                                  \
        return find(src, count, least, places, type);                                                                  \
    }

DEFINE(f32, F32)
DEFINE(f64, F64)

const struct topk_table TOPK_TABLE = {
    .f32 = {f32_tally, f32_find},
    .f64 = {f64_tally, f64_find},
};
