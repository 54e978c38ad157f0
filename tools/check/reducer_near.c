/* SPDX-License-Identifier: Apache-2.0 */
/* reducer_near.c - sums that keep what their additions round off: how far from the exact ones they may be. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/check/reducer.h"

static long double number_at(uint32_t dtype, const void *elements, size_t i)
{
    float narrow;
    double wide;
    if (dtype == BPS_FLOAT32) {
        memcpy(&narrow, (const char *)elements + i * sizeof narrow, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, (const char *)elements + i * sizeof wide, sizeof wide);
    return wide;
}

struct bps_exact *bps_summer_exact(const struct bps_summer *summer, const void *const *src, const double *scales,
                                   unsigned n, size_t count)
{
    struct bps_exact *exact = calloc(count + 1, sizeof *exact);
    void *scaled = calloc(count + 1, sizeof(double));
    BPS_CHECK(summer->check, exact != NULL && scaled != NULL, "out of memory");
    for (unsigned j = 0; j < n; j++) {
        oracle_first(summer->dtype, scaled, src[j], count, scales != NULL ? scales[j] : 1);
        for (size_t i = 0; i < count; i++) {
            long double x = number_at(summer->dtype, scaled, i);
            exact[i].sum += x;
            exact[i].magnitude += fabsl(x);
        }
    }
    free(scaled);
    return exact;
}

/* What reducer.h allows, and what the long double and the last factor round. */
static long double allowed(uint32_t dtype, const struct bps_exact *exact, unsigned n, double factor)
{
    long double u = dtype == BPS_FLOAT32 ? 0x1p-24L : 0x1p-53L, least = dtype == BPS_FLOAT32 ? 0x1p-149L : 0x1p-1074L;
    long double relative = 4 * u * fabsl(exact->sum) + n * (n * u * u + LDBL_EPSILON) * exact->magnitude;
    return relative * fabsl((long double)factor) + least;
}

void bps_summer_near(const struct bps_summer *summer, const void *got, const void *steps, const struct bps_exact *exact,
                     unsigned n, size_t count, double factor)
{
    uint32_t dtype = summer->dtype;
    size_t size = oracle_size(dtype);
    for (size_t i = 0; i < count; i++) {
        long double of_steps = number_at(dtype, steps, i), x = number_at(dtype, got, i);
        if (n <= 2 || !isfinite(of_steps)) {
            bps_summer_same(summer, "dst", dtype, (const char *)got + i * size, (const char *)steps + i * size, 1);
            continue;
        }
        long double right = exact[i].sum * (long double)factor, most = allowed(dtype, &exact[i], n, factor);
        BPS_CHECK(summer->check, fabsl(x - right) <= most,
                  "dst: element %zu of %zu is %.17Lg; expected %.17Lg, with an error of at most %.3Lg, as the kernels "
                  "are `compensated`",
                  i, count, x, right, most);
    }
}
