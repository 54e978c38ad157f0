/* SPDX-License-Identifier: Apache-2.0 */
/*
 * values.c - the elements that are drawn, out of a slice and into one.
 *
 * Only `finite` looks at all elements, which costs what it takes to read them, on any instruction set.
 */
#include "values.h"

#include "util/vector.h"

#define WINDOW 65536u /* elements of which it is known whether they were drawn before */

#define INFINITY_F32 0x7f800000u
#define INFINITY_F64 0x7ff0000000000000u
#define NAN_F32      0x7fc00000u
#define NAN_F64      0x7ff8000000000000u

/* ---- draws that may be the same ------------------------------------------------------------------------------ */

/* Marks a place of a window; whether it was marked before. */
static bool mark(uint64_t *marks, size_t place)
{
    uint64_t bit = (uint64_t)1 << place % 64;
    bool marked = (marks[place / 64] & bit) != 0;
    marks[place / 64] |= bit;
    return marked;
}

/* Makes a value -0.0 if its element was drawn before: all draws again for each window, so that a few marks do. */
static void drop_repeated(const struct draw *draw, uint8_t *values, size_t size)
{
    static const float nothing32 = -0.0f;
    static const double nothing64 = -0.0;
    for (size_t first = 0; first < draw->count; first += WINDOW) {
        uint64_t marks[WINDOW / 64] = {0};
        struct draw again = *draw;
        for (size_t i = 0; i < draw->kept; i++) {
            size_t place = draw_next(&again) - first;
            if (place < WINDOW && mark(marks, place)) {
                memcpy(values + i * size, size == 4 ? (const void *)&nothing32 : &nothing64, size);
            }
        }
    }
}

/* ---- each type ----------------------------------------------------------------------------------------------- */

#define DEFINE(bits, type, vector, infinity, nan)                                                                      \
    static void gather##bits(const uint8_t *src, const struct draw *draw, double factor, uint8_t *values)              \
    {                                                                                                                  \
        struct draw next = *draw;                                                                                      \
        for (size_t i = 0; i < draw->kept; i++) {                                                                      \
            type x;                                                                                                    \
            LOAD(x, src + draw_next(&next) * sizeof x);                                                                \
            x = (type)(x * factor);                                                                                    \
            STORE(values + i * sizeof x, x);                                                                           \
        }                                                                                                              \
        if (draw->compat) {                                                                                            \
            drop_repeated(draw, values, sizeof(type));                                                                 \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    static void scatter##bits(const uint8_t *values, const struct draw *draw, bool add, uint8_t *dst)                  \
    {                                                                                                                  \
        struct draw next = *draw;                                                                                      \
        for (size_t i = 0; i < draw->kept; i++) {                                                                      \
            uint8_t *element = dst + draw_next(&next) * sizeof(type);                                                  \
            type x, y;                                                                                                 \
            LOAD(x, element);                                                                                          \
            LOAD(y, values + i * sizeof y);                                                                            \
            y = add ? x + y : y;                                                                                       \
            STORE(element, y);                                                                                         \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    static bool finite##bits(const uint8_t *src, size_t count)                                                         \
    {                                                                                                                  \
        const size_t lanes = sizeof(vector) / sizeof(type);                                                            \
        vector all = {0}, x;                                                                                           \
        bool broken = false;                                                                                           \
        for (; count >= lanes; count -= lanes, src += sizeof x) {                                                      \
            LOAD(x, src);                                                                                              \
            all |= (vector)((x & infinity) == infinity);                                                               \
        }                                                                                                              \
        x = (vector){0};                                                                                               \
        memcpy(&x, src, count * sizeof(type));                                                                         \
        all |= (vector)((x & infinity) == infinity);                                                                   \
        for (size_t i = 0; i < lanes; i++) {                                                                           \
            broken = broken || all[i] != 0;                                                                            \
        }                                                                                                              \
        return !broken;                                                                                                \
    }                                                                                                                  \
                                                                                                                       \
    static size_t nans##bits(const uint8_t *src, size_t count)                                                         \
    {                                                                                                                  \
        size_t found = 0;                                                                                              \
        for (size_t i = 0; i < count; i++) {                                                                           \
            type x;                                                                                                    \
            LOAD(x, src + i * sizeof x);                                                                               \
            found += x != x;                                                                                           \
        }                                                                                                              \
        return found;                                                                                                  \
    }                                                                                                                  \
                                                                                                                       \
    static void break_all##bits(uint8_t *dst, size_t count)                                                            \
    {                                                                                                                  \
        const uint##bits##_t broken = nan;                                                                             \
        for (size_t i = 0; i < count; i++) {                                                                           \
            STORE(dst + i * sizeof broken, broken);                                                                    \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    const struct randomk_values randomk_values##bits = {                                                               \
        sizeof(type), gather##bits, scatter##bits, finite##bits, nans##bits, break_all##bits,                          \
    };

DEFINE(32, float, v_u32, INFINITY_F32, NAN_F32)
DEFINE(64, double, v_u64, INFINITY_F64, NAN_F64)
