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

INLINE void tally_one(uint64_t key, const struct range *range, struct tally *tally)
{
    if (key > range->last) {
        tally->above++;
    } else if (key >= range->low) {
        tally->inside++;
        tally->bin[(key - range->low) >> range->shift]++;
    }
}

/* Counts, lane by lane, the keys that are above the range and those that are not below it; a mask of those inside. */
INLINE uint32_t compare_step32(const uint8_t *src, const struct range *range, v_u32 *above, v_u32 *reached)
{
    uint32_t inside = 0;
    EACH(i, VECTORS32) {
        v_u32 x;
        LOAD(x, src + i * VECTOR);
        x &= MAGNITUDE32;
        v_u32 over = (v_u32)((v_i32)x > (int32_t)range->last), in = (v_u32)((v_i32)x > (int32_t)range->low - 1);
        *above -= over;
        *reached -= in;
        inside |= SIGNS32(in & ~over) << i * LANES32;
    }
    return inside;
}

INLINE uint32_t compare_step64(const uint8_t *src, const struct range *range, v_u64 *above, v_u64 *reached)
{
    uint32_t inside = 0;
    EACH(i, VECTORS64) {
        v_u64 x;
        LOAD(x, src + i * VECTOR);
        x &= MAGNITUDE64;
        v_u64 over = (v_u64)((v_i64)x > (int64_t)range->last), in = (v_u64)((v_i64)x > (int64_t)range->low - 1);
        *above -= over;
        *reached -= in;
        inside |= SIGNS64(in & ~over) << i * LANES64;
    }
    return inside;
}

INLINE void bin_hits(const uint8_t *src, uint32_t mask, const struct range *range, struct tally *tally, enum type type)
{
    while (mask != 0) {
        uint64_t key = key_of(src + take_first(&mask) * SIZE(type), type);
        tally->bin[(key - range->low) >> range->shift]++;
    }
}

INLINE void tally(const uint8_t *src, size_t count, const struct range *range, struct tally *out, enum type type)
{
    const struct range fixed = *range;
    v_u32 above32 = {0}, reached32 = {0};
    v_u64 above64 = {0}, reached64 = {0};
    size_t above = 0, reached = 0;
    for (unsigned steps; (steps = steps_of(count)) > 0; count -= steps * STEP, src += steps * STEP * SIZE(type)) {
        struct hits hits;
        hits.n = 0;
        for (unsigned i = 0; i < steps; i++) {
            const uint8_t *at = src + i * STEP * SIZE(type);
            note(&hits, i,
                 type == F32 ? compare_step32(at, &fixed, &above32, &reached32)
                             : compare_step64(at, &fixed, &above64, &reached64));
        }
        for (unsigned i = 0; i < hits.n && fixed.low < fixed.last; i++) {
            bin_hits(src + hits.step[i] * STEP * SIZE(type), hits.mask[i], &fixed, out, type);
        }
    }
    for (unsigned i = 0; i < LANES32; i++) {
        above += type == F32 ? above32[i] : i < LANES64 ? above64[i] : 0;
        reached += type == F32 ? reached32[i] : i < LANES64 ? reached64[i] : 0;
    }
    out->above += above;
    out->inside += reached - above;
    for (size_t i = 0; i < count; i++) {
        tally_one(key_of(src + i * SIZE(type), type), &fixed, out);
    }
}

/* ---- places -------------------------------------------------------------------------------------------------- */

INLINE uint32_t reached_step(const uint8_t *src, uint64_t least, enum type type)
{
    uint32_t reached = 0;
    if (type == F32) {
        EACH(i, VECTORS32) {
            v_u32 x;
            LOAD(x, src + i * VECTOR);
            reached |= SIGNS32((v_u32)((v_i32)(x & MAGNITUDE32) > (int32_t)least - 1)) << i * LANES32;
        }
    } else {
        EACH(i, VECTORS64) {
            v_u64 x;
            LOAD(x, src + i * VECTOR);
            reached |= SIGNS64((v_u64)((v_i64)(x & MAGNITUDE64) > (int64_t)least - 1)) << i * LANES64;
        }
    }
    return reached;
}

INLINE size_t find(const uint8_t *src, size_t count, uint64_t least, uint16_t *places, enum type type)
{
    size_t found = 0, i = 0;
    for (unsigned steps; (steps = steps_of(count - i)) > 0; i += steps * STEP) {
        struct hits hits;
        hits.n = 0;
        for (unsigned step = 0; step < steps; step++) {
            note(&hits, step, reached_step(src + (i + step * STEP) * SIZE(type), least, type));
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
