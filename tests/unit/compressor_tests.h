/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compressor_tests.h - the tests of what every compressor promises, made of a table of what one is.
 *
 * What is special about one compressor stays in its file: what its bytes mean, and which of them it refuses. All tests
 * run once for each variant of it, which are the instruction sets for most; the loop index is the value of that option.
 * A variant that this CPU or this build lacks must be refused with a message, and has no other test.
 */
#ifndef COMPRESSOR_TESTS_H
#define COMPRESSOR_TESTS_H

#include "checks.h"
#include "compressor_rig.h"

#define METHOD_OPTIONS 4

/* Elements, what they are coded as, and what becomes of them, all at odd addresses, with an instance of their own. */
struct slice {
    struct rig rig;
    const double *method;
    uint32_t dtype;
    size_t count, room, bytes; /* room: of the code, of which `bytes` are used */
    uint8_t *from, *code, *to;
    void *base[3];
};

/* What some elements must be coded as, for other builds and machines have to understand it. */
struct known_code {
    const double *method;
    uint32_t dtype;
    size_t count, bytes;
    const double *elements;
    uint8_t code[24];
};

/* Options that are refused, and what the message must say. */
struct refused_options {
    double method[METHOD_OPTIONS];
    const char *text;
};

struct promise {
    const char *name;
    const struct bps_module *(*module)(void);
    struct bps_random draw;

    const char *options[METHOD_OPTIONS]; /* but for the variant; a method is a value for each */
    const double (*methods)[METHOD_OPTIONS];
    size_t n_methods, decoders; /* the first so many decode each in another way; 0: all do */
    const size_t *counts;
    size_t n_counts;

    const char *variant; /* the option, "isa" say; NULL: there are none */
    const char *variants[RIG_ISAS];
    int n_variants, n_needed; /* of these, the first ones, which every build has */

    bool exact;                                                          /* encode fills all of bound() */
    size_t (*bound)(const double *method, uint32_t dtype, size_t count); /* what it must be; NULL: it only grows */
    void (*described)(const double *method, const char *text);           /* asserts that describe() is right */
    void (*is_right)(struct slice *s);                                   /* codes, and asserts what becomes of it */
    void (*fill)(struct slice *s, unsigned which, unsigned *seed);       /* `which`: of n_fills; NULL: of any_bits() */
    unsigned n_fills;
    size_t (*spoils)(const double *method); /* elements of a block, of which one spoils all; NULL: all of the slice */
    double (*spoiled)(double broken);       /* what they become then; NULL: whatever is not finite */

    size_t length_step, n_lengths; /* of slices that are given other lengths; 0: each of fewer than 100 elements */
    const struct refused_options *refused;
    size_t n_refused;
    const struct known_code *known;
    size_t n_known;
    void (*special)(TCase *tests, int variant); /* adds the other tests of a variant that is there */
};

/* Of those that have the option isa. */
#define ISA_VARIANTS                                                                                                   \
    .variant = "isa", .variants = {"", "baseline", "avx2", "avx512"}, .n_variants = RIG_ISAS, .n_needed = 2

/* The one that is tested. */
extern const struct promise *promised;

/* What encode draws from; the promise's at first. */
extern struct bps_random slice_draw;

static const uint32_t float_types[] = {BPS_FLOAT32, BPS_FLOAT64};

#define SIZE_OF(array) (sizeof(array) / sizeof *(array))
#define ALL(array)     .array = array, .n_##array = SIZE_OF(array) /* of a promise */

/* Whether it opens, with this value of the option for the variant. */
bps_status open_variant(struct rig *rig, int variant, const double *method);

/* Elements are as calm() makes them; `to` has -100, -99, ... */
struct slice make_slice(int variant, const double *method, uint32_t dtype, size_t count);
void free_slice(struct slice *s);
void encode(struct slice *s);
bps_status decode(struct slice *s);
bps_status decode_add(struct slice *s);

/* Asserts that these bytes, in memory of just their size, are refused, or elements, and then the same when added. */
bps_status decode_bytes(const struct slice *s, const uint8_t *code, size_t bytes);

/* 2 MiB between two pages that nobody may touch; and the place of so many bytes beside one of these. */
uint8_t *make_fence(void);
uint8_t *fenced_place(uint8_t *fence, size_t bytes, bool at_the_end);

/* Finite, of both signs, some zero. */
void calm(struct slice *s);
/* Any magnitudes and signs; half of the slices have some that are not finite. */
void any_bits(struct slice *s, unsigned which, unsigned *seed);
void put_all(struct slice *s, const double *elements);

/* What promises may say. */
size_t itself_alone(const double *method);
double unchanged(double broken);
double nan_of(double broken);

/* A number of Philox4x32-10, by its definition. */
uint32_t philox(uint64_t key, uint64_t counter, size_t word);

bool same(double a, double b);          /* also both NaN; zeros have signs */
double typed(uint32_t dtype, double x); /* rounded to the type */

/* Runs the tests of the promise and its special ones; what main() returns. */
int run_compressor_tests(const struct promise *promise);

#endif
