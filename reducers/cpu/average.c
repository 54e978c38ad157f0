/* SPDX-License-Identifier: Apache-2.0 */
/*
 * average.c - averages of integers: the sum, which the type may not hold, in a wider one.
 *
 * One element at a time, as they are rare: counters and measurements, not gradients.
 */
#include "average.h"

#include <string.h>

#include "environment.h"
#include "scaled.h"

__extension__ typedef __int128 int128_t;

/* Elements lie at any address. The quotient is rounded to minus infinity; one that is scaled, truncated. */
#define AVERAGE(type, wide)                                                                                            \
    static void type##_average(void *context, void *dst, const void *const *src, const double *scales, unsigned n,     \
                               size_t count, double scale, uint64_t divisor)                                           \
    {                                                                                                                  \
        (void)context;                                                                                                 \
        uint32_t state = fp_enter(&scale);                                                                             \
                                                                                                                       \
        for (size_t i = 0; i < count; i++) {                                                                           \
            wide total = 0, by = (wide)divisor;                                                                        \
            type value;                                                                                                \
                                                                                                                       \
            for (unsigned j = 0; j < n; j++) {                                                                         \
                memcpy(&value, (const uint8_t *)src[j] + i * sizeof value, sizeof value);                              \
                total += scales && scales[j] != 1 ? type##_of((double)value * scales[j]) : value;                      \
            }                                                                                                          \
            value =                                                                                                    \
                scale == 1 ? (type)(total / by - (total % by < 0)) : type##_of((double)total * scale / (double)by);    \
            memcpy((uint8_t *)dst + i * sizeof value, &value, sizeof value);                                           \
        }                                                                                                              \
        fp_leave(state);                                                                                               \
    }

AVERAGE(uint8_t, int64_t)
AVERAGE(int8_t, int64_t)
AVERAGE(int16_t, int64_t)
AVERAGE(int32_t, int64_t)
AVERAGE(int64_t, int128_t)

const struct bps_kernels bps_cpu_averages[BPS_DTYPES] = {
    [BPS_UINT8] = {.accumulator = BPS_UINT8, .reduce = uint8_t_average},
    [BPS_INT8] = {.accumulator = BPS_INT8, .reduce = int8_t_average},
    [BPS_INT16] = {.accumulator = BPS_INT16, .reduce = int16_t_average},
    [BPS_INT32] = {.accumulator = BPS_INT32, .reduce = int32_t_average},
    [BPS_INT64] = {.accumulator = BPS_INT64, .reduce = int64_t_average},
};
