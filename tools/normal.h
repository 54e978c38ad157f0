/* SPDX-License-Identifier: Apache-2.0 */
/* normal.h - normally distributed numbers, as gradients roughly are, to measure coding with. */
#ifndef BPS_CMD_NORMAL_H
#define BPS_CMD_NORMAL_H

#include <stddef.h>
#include <stdint.h>

/* The same for a seed in all runs. The sum of twelve uniform numbers is normally distributed, nearly. */
static inline void bps_normal(float *to, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++) {
        double sum = -6;
        for (int j = 0; j < 12; j++) {
            seed = seed * 1664525u + 1013904223u;
            sum += seed / 4294967296.0;
        }
        to[i] = (float)sum;
    }
}

#endif
