/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scaled.h - integers times a factor: computed in double precision and truncated. What the type does not
 * hold becomes the nearest number that it does.
 */
#ifndef BPS_CPU_SCALED_H
#define BPS_CPU_SCALED_H

#include <stdint.h>

/* The limits of int64 round to powers of two as doubles, so what is below the upper one fits. */
#define SCALED(type, least, greatest)                                                                                  \
    static inline type type##_of(double number)                                                                        \
    {                                                                                                                  \
        return number >= (double)(greatest) ? (greatest) : number <= (double)(least) ? (least) : (type)number;         \
    }

SCALED(uint8_t, 0, UINT8_MAX)
SCALED(int8_t, INT8_MIN, INT8_MAX)
SCALED(int16_t, INT16_MIN, INT16_MAX)
SCALED(int32_t, INT32_MIN, INT32_MAX)
SCALED(int64_t, INT64_MIN, INT64_MAX)

#endif
