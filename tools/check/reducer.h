/* SPDX-License-Identifier: Apache-2.0 */
/* reducer.h - what the tests of reducers share: kernels, buffers with elements of all sorts, and comparisons. */
#ifndef BPS_TOOLS_CHECK_REDUCER_H
#define BPS_TOOLS_CHECK_REDUCER_H

#include "tools/check/check.h"
#include "tools/check/guarded.h"
#include "tools/check/reducer_oracle.h"

/* A reducer and one of its kernels. */
struct bps_summer {
    struct bps_check *check;
    struct bps_instance *instance;
    uint32_t op, dtype;
    struct bps_kernels kernels;
};

/* False: the reducer has no such kernels. What is wrong with those that it has fails the test. */
bool bps_summer_kernels(struct bps_summer *summer, uint32_t op, uint32_t dtype);
/* Calls fn for all operations but the average, and all types, that the reducer has. */
void bps_summer_each(struct bps_check *check, void (*fn)(struct bps_summer *summer));
/* The same for the averages of integers. */
void bps_summer_each_average(struct bps_check *check, void (*fn)(struct bps_summer *summer));

/* Elements whose end is `slack` bytes before a page that nobody may touch; the slack must not change either. */
struct bps_summands {
    struct bps_guarded memory;
    uint8_t *at;
    size_t bytes;
    struct bps_check *check;
};
/* Random ones: mostly ordinary, some of any bits, some special. */
struct bps_summands bps_summands_new(const struct bps_summer *summer, const char *name, uint32_t dtype, size_t count,
                                     size_t slack);
void bps_summands_free(struct bps_summands *summands);

/* Zeros, infinities, NaN, limits of normal and subnormal numbers and neighbours; the same for integers. */
enum { BPS_SPECIALS = 24 };
void bps_summands_special(uint32_t dtype, void *at, unsigned which);
void bps_summands_bits(uint32_t dtype, void *at, uint64_t bits);
uint64_t bps_summands_draw(void);

/* Compares `count` elements of type `of` bit by bit; what differs fails the test. */
void bps_summer_same(const struct bps_summer *summer, const char *what, uint32_t of, const void *got,
                     const void *expected, size_t count);

/* The sum of an element over sources, as exact as long double is, and that of its magnitudes. */
struct bps_exact {
    long double sum, magnitude;
};
/* One for each element, to be freed. (reducer_near.c) */
struct bps_exact *bps_summer_exact(const struct bps_summer *summer, const void *const *src, const double *scales,
                                   unsigned n, size_t count);
/* That is what a compensated `reduce` must come near to; `steps` is what first, fold and finish yield. */
void bps_summer_near(const struct bps_summer *summer, const void *got, const void *steps, const struct bps_exact *exact,
                     unsigned n, size_t count, double factor);

/* Tests with known results (reducer_known.c), and of kernels as a whole (reducer_whole.c). */
void bps_check_known_extremes(struct bps_check *check);
void bps_check_known_averages(struct bps_check *check);
void bps_check_known_8_bits(struct bps_check *check);
void bps_check_conversions(struct bps_check *check);
void bps_check_cuts(struct bps_check *check);
void bps_check_reducing_threads(struct bps_check *check);
void bps_check_environment(struct bps_check *check);

/* Tests of devices (reducer_device.c); skipped where it has none. */
void bps_check_device_marks(struct bps_check *check);
void bps_check_device_copies(struct bps_check *check);
void bps_check_device_reductions(struct bps_check *check);
void bps_check_device_close(struct bps_check *check);

#endif
