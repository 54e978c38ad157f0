/* SPDX-License-Identifier: Apache-2.0 */
/* reducer_known.c - results that are written down here, whatever the oracle thinks. */
#include <stdlib.h>
#include <string.h>

#include "tools/check/reducer.h"

static struct bps_summer open_summer(struct bps_check *check)
{
    return (struct bps_summer){.check = check, .instance = bps_check_open(check)};
}

static void need(struct bps_summer *summer, uint32_t op, uint32_t dtype)
{
    if (!bps_summer_kernels(summer, op, dtype)) {
        bps_check_skip(summer->check, "it has no %s of %s", bps_op_name(op), bps_dtype_name(dtype));
    }
}

/* ---- min and max: what types.h says ---- */

void bps_check_known_extremes(struct bps_check *check)
{
    const float nan = __builtin_nanf(""), a[] = {-0.0f, 0.0f, nan, 1, 2, -__builtin_inff()};
    const float b[] = {0.0f, -0.0f, 1, nan, 3, 5};
    const uint32_t least[] = {0x80000000, 0x80000000, 0x7fc00000, 0x7fc00000, 0x40000000, 0xff800000};
    const uint32_t most[] = {0, 0, 0x7fc00000, 0x7fc00000, 0x40400000, 0x40a00000};
    const void *sources[] = {a, b};
    struct bps_summer summer = open_summer(check);
    float out[6];
    need(&summer, BPS_MIN, BPS_FLOAT32);
    summer.kernels.reduce(summer.kernels.context, out, sources, NULL, 2, 6, 1, 1);
    bps_summer_same(&summer, "min", BPS_FLOAT32, out, least, 6);
    need(&summer, BPS_MAX, BPS_FLOAT32);
    summer.kernels.reduce(summer.kernels.context, out, sources, NULL, 2, 6, 1, 1);
    bps_summer_same(&summer, "max", BPS_FLOAT32, out, most, 6);
    bps_check_close(check, summer.instance);
}

/* ---- averages ---- */

/* Rows of three sources and their average. */
#define AVERAGE_IS(summer, type, dtype_, ...)                                                                          \
    do {                                                                                                               \
        const type rows[][4] = {__VA_ARGS__};                                                                          \
        if (bps_summer_kernels(summer, BPS_AVERAGE, dtype_)) {                                                         \
            for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {                                          \
                const void *sources[] = {&rows[row][0], &rows[row][1], &rows[row][2]};                                 \
                type mean = 0;                                                                                         \
                (summer)->kernels.reduce((summer)->kernels.context, &mean, sources, NULL, 3, 1, 1, 3);                 \
                bps_summer_same(summer, "average", dtype_, &mean, &rows[row][3], 1);                                   \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)

/* Sums that the type does not hold, and quotients below 0. */
static void averages_of_extremes(struct bps_summer *summer)
{
    AVERAGE_IS(summer, int8_t, BPS_INT8, {100, 100, 100, 100}, {-128, -128, -128, -128}, {-1, 0, 0, -1});
    AVERAGE_IS(summer, uint8_t, BPS_UINT8, {255, 255, 255, 255}, {255, 255, 254, 254}, {0, 0, 2, 0});
    AVERAGE_IS(summer, int16_t, BPS_INT16, {INT16_MAX, INT16_MAX, INT16_MAX, INT16_MAX},
               {INT16_MIN, INT16_MIN, INT16_MIN, INT16_MIN}, {-1, -1, 0, -1});
    AVERAGE_IS(summer, int32_t, BPS_INT32, {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX},
               {INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN}, {INT32_MIN, INT32_MAX, 0, -1});
    AVERAGE_IS(summer, int64_t, BPS_INT64, {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX},
               {INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN}, {INT64_MIN, INT64_MAX, 0, -1},
               {INT64_MAX, INT64_MAX, INT64_MAX - 1, INT64_MAX - 1});
}

/* Of truncated contributions; with a factor at the end the quotient is truncated, too. */
static void averages_with_scales(struct bps_summer *summer)
{
    const int8_t a[] = {100, -7, 3, -128}, b[] = {100, 4, -3, -128};
    const void *sources[] = {a, b};
    const double scales[] = {0.5, 2};
    int8_t mean[4];
    if (!bps_summer_kernels(summer, BPS_AVERAGE, BPS_INT8)) {
        return;
    }
    summer->kernels.reduce(summer->kernels.context, mean, sources, scales, 2, 4, 1,
                           2); /* 50 + 127, -3 + 8, 1 - 6, -64 - 128 */
    bps_summer_same(summer, "average with scales", BPS_INT8, mean, (int8_t[]){88, 2, -3, -96}, 4);
    summer->kernels.reduce(summer->kernels.context, mean, sources, NULL, 2, 4, 1.5, 2); /* 150, -2.25, 0, -192 */
    bps_summer_same(summer, "average with a factor", BPS_INT8, mean, (int8_t[]){127, -2, 0, -128}, 4);
    summer->kernels.reduce(summer->kernels.context, mean, sources, scales, 2, 4, -0.25,
                           2); /* -22.125, -0.625, 0.625, 24 */
    bps_summer_same(summer, "average with both", BPS_INT8, mean, (int8_t[]){-22, 0, 0, 24}, 4);
}

void bps_check_known_averages(struct bps_check *check)
{
    struct bps_summer summer = open_summer(check);
    averages_of_extremes(&summer);
    averages_with_scales(&summer);
    bps_check_close(check, summer.instance);
}

/* ---- 448 of E4M3, 57344 of E5M2 ---- */

void bps_check_known_8_bits(struct bps_check *check)
{
    const float near_448[] = {448, 464, 464.01f, 479, 480, -500, 1e30f, -448, __builtin_inff(), 0x1p-9f};
    const uint8_t e4m3[] = {0x7e, 0x7e, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0xfe, 0x7f, 0x01};
    const float near_57344[] = {57344, 61439, 61440, 65536, -1e30f, -57344, __builtin_nanf(""), 0x1p-16f};
    const uint8_t e5m2[] = {0x7b, 0x7b, 0x7c, 0x7c, 0xfc, 0xfb, 0x7e, 0x01};
    struct bps_summer summer = open_summer(check);
    uint8_t out[10];
    need(&summer, BPS_SUM, BPS_FLOAT8_E4M3FN);
    summer.kernels.finish(summer.kernels.context, out, near_448, sizeof e4m3, 1, 1);
    bps_summer_same(&summer, "finish", BPS_FLOAT8_E4M3FN, out, e4m3, sizeof e4m3);
    need(&summer, BPS_SUM, BPS_FLOAT8_E5M2);
    summer.kernels.finish(summer.kernels.context, out, near_57344, sizeof e5m2, 1, 1);
    bps_summer_same(&summer, "finish", BPS_FLOAT8_E5M2, out, e5m2, sizeof e5m2);
    bps_check_close(check, summer.instance);
}
