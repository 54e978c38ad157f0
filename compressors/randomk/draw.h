/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draw.h - which elements of a slice a number stands for.
 *
 * The slice is cut into `kept` strata of as equal sizes as there are, the elements of which follow each other, and of
 * each stratum one element is drawn: that makes no element twice, needs no memory, and goes through the slice in its
 * order. Since strata differ by one element where `kept` does not divide `count`, they begin at an element that is
 * drawn as well, and go around: so each element is drawn with the probability kept / count, but for 2^-32 of that.
 * Whatever the number is, the elements exist and are distinct.
 */
#ifndef BPS_RANDOMK_DRAW_H
#define BPS_RANDOMK_DRAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/xorshift.h"

__extension__ typedef unsigned __int128 uint128_t;

struct draw {
    uint64_t number, drawn;
    size_t count, kept;
    size_t size, longer;   /* of a stratum; so many of them have one element more, */
    size_t rest;           /* evenly: when this reaches `kept` */
    size_t begin;          /* of the next stratum */
    struct xorshift state; /* of compat */
    bool compat;
};

/* The finalizer of splitmix64: each bit of the result depends on all of the argument. */
static inline uint64_t draw_mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Below n, the i-th of the number. */
static inline size_t draw_below(const struct draw *draw, uint64_t i, size_t n)
{
    return (size_t)((uint128_t)draw_mix(draw->number + (i + 1) * 0x9e3779b97f4a7c15u) * n >> 64);
}

/* `compat`: with replacement, by xorshift128+ from this state on; else the state's a is the number. */
static inline struct draw draw_begin(struct xorshift state, size_t count, size_t kept, bool compat)
{
    struct draw draw = {.number = state.a, .count = count, .kept = kept, .state = state, .compat = compat};
    if (kept > 0) {
        draw.size = count / kept;
        draw.longer = count % kept;
        draw.begin = draw_below(&draw, 0, count);
    }
    return draw;
}

/* The next element, of `kept` there are. */
static inline size_t draw_next(struct draw *draw)
{
    if (draw->compat) {
        return (size_t)(xorshift_next(&draw->state) % draw->count);
    }
    size_t size = draw->size, index;
    draw->rest += draw->longer;
    if (draw->rest >= draw->kept) {
        draw->rest -= draw->kept;
        size++;
    }
    index = draw->begin + draw_below(draw, ++draw->drawn, size);
    draw->begin += size;
    return index < draw->count ? index : index - draw->count;
}

#endif
