/* SPDX-License-Identifier: Apache-2.0 */
/*
 * average.h - averages of floating point whose sum their type may not hold: contributions are multiplied by a power of
 * two first, the share. That rounds nothing but subnormal numbers, and what is left of the division is done last.
 */
#ifndef BPS_SUM_AVERAGE_H
#define BPS_SUM_AVERAGE_H

#include <stdint.h>

#include <byteps/byteps.h>

/* The smallest power of two that is not below n. */
static inline uint32_t bps_power_of_two(uint32_t n)
{
    uint32_t power = 1;
    while (power < n) {
        power *= 2;
    }
    return power;
}

/* Types that are accumulated in one of the same range. Those of 8 bits and float16 are in float32. */
static inline bool bps_sum_may_overflow(uint32_t dtype)
{
    return dtype == BPS_FLOAT32 || dtype == BPS_FLOAT64 || dtype == BPS_BFLOAT16;
}

/* What each contribution of n workers is multiplied by. */
static inline double bps_share(uint32_t op, uint32_t dtype, uint32_t n)
{
    return op == BPS_AVERAGE && bps_sum_may_overflow(dtype) ? 1.0 / bps_power_of_two(n) : 1.0;
}

/* The arguments of a reducer's `finish` and `reduce`. */
struct bps_last_factor {
    double scale;
    uint64_t divisor;
};

/* What makes the result of the sum of n shares: nothing, if the shares have been all of the division. */
static inline struct bps_last_factor bps_last_factor(uint32_t op, uint32_t dtype, uint32_t n, double postscale)
{
    double share = bps_share(op, dtype, n);
    struct bps_last_factor last = {postscale / share, op == BPS_AVERAGE ? n : 1};
    return share * n == 1.0 ? (struct bps_last_factor){postscale, 1} : last;
}

#endif
