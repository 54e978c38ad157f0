/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xorshift.h - the generator of the original BytePS, xorshift128+ (Vigna, 2014), and where it is in a round.
 *
 * The original has one for each slice, whose state begins as its seed twice, and which goes on from round to round.
 * Here nothing is kept between rounds: all that the rounds before have drawn is skipped. A step is a linear map of the
 * state's bits, so 2^i steps are one as well; a skip takes those that its length is made of.
 */
#ifndef BPS_COMPRESSOR_XORSHIFT_H
#define BPS_COMPRESSOR_XORSHIFT_H

#include <byteps/compressor.h>

struct xorshift {
    uint64_t a, b;
};

static inline uint64_t xorshift_next(struct xorshift *state)
{
    uint64_t t = state->a, s = state->b;
    state->a = s;
    t ^= t << 23;
    t ^= t >> 17;
    t ^= s ^ s >> 26;
    state->b = t;
    return t + s;
}

/* What 2^i steps make of each bit of a state: those of a, then those of b. */
struct xorshift_skips {
    struct xorshift of[64][128];
};

static inline struct xorshift xorshift_map(const struct xorshift *of_bits, struct xorshift state)
{
    struct xorshift to = {0, 0};
    for (unsigned bit = 0; bit < 128; bit++) {
        uint64_t is_set = -((bit < 64 ? state.a >> bit : state.b >> (bit - 64)) & 1);
        to.a ^= of_bits[bit].a & is_set;
        to.b ^= of_bits[bit].b & is_set;
    }
    return to;
}

static inline void xorshift_skips_init(struct xorshift_skips *skips)
{
    for (unsigned bit = 0; bit < 128; bit++) {
        struct xorshift *first = &skips->of[0][bit];
        *first = (struct xorshift){bit < 64 ? 1ull << bit : 0, bit < 64 ? 0 : 1ull << (bit - 64)};
        xorshift_next(first);
    }
    for (unsigned i = 1; i < 64; i++) {
        for (unsigned bit = 0; bit < 128; bit++) {
            skips->of[i][bit] = xorshift_map(skips->of[i - 1], skips->of[i - 1][bit]);
        }
    }
}

/* Its state where a round begins, of which each draws so many numbers. Without a seed a round begins anywhere. */
static inline struct xorshift xorshift_of(const struct xorshift_skips *skips, const struct bps_random *random,
                                          uint64_t draws)
{
    if (random->seed == 0) {
        return (struct xorshift){random->shared, random->shared};
    }
    struct xorshift state = {random->seed, random->seed};
    uint64_t skipped = random->round * draws;
    for (unsigned i = 0; i < 64; i++) {
        if ((skipped >> i & 1) != 0) {
            state = xorshift_map(skips->of[i], state);
        }
    }
    return state;
}

#endif
