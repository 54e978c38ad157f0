/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_topk.c - the compressor "topk" against sorting, its bytes against the definition of their format, and against
 * bytes that nobody has coded.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compressor_tests.h"

const struct bps_module *bps_module_compressor_topk(void);

static const size_t counts[] = {0, 1, 2, 7, 31, 32, 33, 63, 65, 150, 256, 2047, 2049, 5000, 50001};

/* k, compat */
static const double methods[][METHOD_OPTIONS] = {{0.01}, {0.001}, {0.5}, {0.999}, {1}, {23}, {64}, {1e9}};

/* ---- slices -------------------------------------------------------------------------------------------------- */

/* Kinds of slices: what a guess is good for, and what it is not. */
enum kind { NORMAL, EQUAL, ZERO, FEW_VALUES, SPARSE, RISING, ONE_LARGE, BITS, KINDS };

static double element(enum kind kind, size_t i, size_t count, unsigned *seed)
{
    double x = rand_r(seed) / (double)RAND_MAX - 0.5;
    switch (kind) {
    case NORMAL:
        return x + rand_r(seed) / (double)RAND_MAX - rand_r(seed) / (double)RAND_MAX;
    case EQUAL:
        return i % 2 ? 3.25 : -3.25;
    case ZERO:
        return i % 3 ? 0.0 : -0.0;
    case FEW_VALUES:
        return floor(x * 5);
    case SPARSE:
        return rand_r(seed) % 200 ? 0 : x;
    case RISING:
        return (double)i * (i % 2 ? 1 : -1);
    case ONE_LARGE: /* where no sample looks */
        return i == count / 2 + 37 ? 1e30 : x * 1e-3;
    default:
        return x * ldexp(1, rand_r(seed) % 250 - 125);
    }
}

static void fill(struct slice *s, unsigned kind, unsigned *seed)
{
    for (size_t i = 0; i < s->count; i++) {
        rig_put(s->dtype, s->from, i, element(kind, i, s->count, seed));
    }
}

/* ---- the definition ------------------------------------------------------------------------------------------ */

static size_t kept_of(const double *method, size_t count)
{
    double k = method[0], part = round(k * (double)count);
    double kept = k >= 1 ? floor(k) : part < 1 ? 1 : part;
    return kept < (double)count ? (size_t)kept : count;
}

struct ranked {
    double magnitude;
    size_t index;
};

/* The larger one first, NaN before all; of equal ones the earlier one. */
static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    bool before = isnan(x->magnitude) ? !isnan(y->magnitude) : x->magnitude > y->magnitude;
    bool behind = isnan(y->magnitude) ? !isnan(x->magnitude) : y->magnitude > x->magnitude;
    return before ? -1 : behind ? 1 : x->index < y->index ? -1 : 1;
}

/* Marks those that must be kept. */
static bool *kept_marks(const struct slice *s, size_t kept)
{
    bool *marks = calloc(s->count + 1, sizeof *marks);
    struct ranked *all = calloc(s->count + 1, sizeof *all);
    for (size_t i = 0; i < s->count; i++) {
        all[i] = (struct ranked){fabs(rig_get(s->dtype, s->from, i)), i};
    }
    qsort(all, s->count, sizeof *all, by_rank);
    for (size_t i = 0; i < kept; i++) {
        marks[all[i].index] = true;
    }
    free(all);
    return marks;
}

/* Codes what is in s->from. */
static void slice_is_right(struct slice *s)
{
    static const uint8_t zero[8];
    size_t size = rig_size(s->dtype);
    bool *marks = kept_marks(s, kept_of(s->method, s->count));
    encode(s);
    ck_assert_int_eq(decode(s), BPS_OK);
    for (size_t i = 0; i < s->count; i++) {
        const uint8_t *want = marks[i] ? s->from + i * size : zero;
        ck_assert_msg(memcmp(s->to + i * size, want, size) == 0, "%zu of %zu: %a became %a", i, s->count,
                      rig_get(s->dtype, s->from, i), rig_get(s->dtype, s->to, i));
    }
    free(marks);
}

/* ---- tests --------------------------------------------------------------------------------------------------- */

/* The first elements are kept of those that are equal to the last one that is. */
START_TEST(test_ties)
{
    static const double five[METHOD_OPTIONS] = {5};
    for (int type = 0; type < 2; type++) {
        static const double x[9] = {1, -2, 2, 1, -3, -1, 1, 1, 2}, want[9] = {1, -2, 2, 0, -3, 0, 0, 0, 2};
        struct slice s = make_slice(_i, five, float_types[type], 9);
        put_all(&s, x);
        encode(&s);
        ck_assert_int_eq(decode(&s), BPS_OK);
        for (size_t i = 0; i < 9; i++) {
            ck_assert(rig_get(s.dtype, s.to, i) == want[i]);
        }
        free_slice(&s);
    }
}
END_TEST

START_TEST(test_how_many)
{
    static const struct {
        double method[METHOD_OPTIONS];
        size_t count, kept;
    } known[] = {
        {{0.01, false}, 149, 1}, {{0.01, false}, 150, 2}, {{0.01, true}, 192, 1},   {{0.01, true}, 193, 2},
        {{0.01, false}, 3, 1},   {{0.01, true}, 3, 1},    {{0.01, false}, 0, 0},    {{0.3, true}, 64, 19},
        {{7, false}, 100, 7},    {{7, true}, 5, 5},       {{7.9, false}, 100, 7},   {{1e300, false}, 9, 9},
        {{1, false}, 50, 1},     {{0.3, true}, 65, 28},   {{0.999, false}, 10, 10},
    };
    for (size_t i = 0; i < SIZE_OF(known); i++) {
        struct slice s = make_slice(_i, known[i].method, BPS_FLOAT32, known[i].count);
        uint32_t kept;
        fill(&s, RISING, &(unsigned){1});
        encode(&s);
        memcpy(&kept, s.code, 4); /* tests run where numbers are little endian */
        ck_assert_uint_eq(kept, known[i].kept);
        free_slice(&s);
    }
}
END_TEST

/* What is not finite is kept before all else, unless there is more of it than is kept. */
START_TEST(test_many_that_are_not_finite)
{
    static const double broken[] = {NAN, INFINITY, -INFINITY, -NAN};
    unsigned seed = 3;
    for (size_t example = 0; example < 2 * 4 * 100; example++) {
        size_t count = example % 3 ? 100 : 20000, bad = example % 7 + (example % 11 == 0 ? 60 : 0);
        struct slice s = make_slice(_i, methods[5], float_types[example % 2], count);
        fill(&s, BITS, &seed);
        for (size_t i = 0; i < bad; i++) {
            rig_put(s.dtype, s.from, (size_t)rand_r(&seed) % count, broken[(example / 2 + i) % 4]);
        }
        slice_is_right(&s);
        free_slice(&s);
    }
}
END_TEST

static void becomes(struct slice *s, const uint8_t bits[2], bps_status want)
{
    memcpy(s->code + 4, bits, 2);
    ck_assert_int_eq(decode(s), want);
    ck_assert_int_eq(decode_add(s), want);
}

/* As in what is known, but two low bits of each can make any order, and the last index one that is not there. */
START_TEST(test_foreign_indices)
{
    static const struct {
        uint8_t bits[2];
        bps_status want;
    } known[] = {
        {{0x25, 0x05}, BPS_OK},           /* 0, 5, 13 */
        {{0x25, 0x07}, BPS_OK},           /* 0, 7, 13 */
        {{0x25, 0x09}, BPS_ERR_PROTOCOL}, /* 0, 5, 14 */
        {{0x07, 0x09}, BPS_OK},           /* 0, 1, 2 */
        {{0x07, 0x05}, BPS_ERR_PROTOCOL}, /* 0, 1, 1 */
        {{0x47, 0x04}, BPS_ERR_PROTOCOL}, /* 1, 0, 1 */
        {{0x05, 0x05}, BPS_ERR_PROTOCOL}, /* two */
        {{0x2d, 0x05}, BPS_ERR_PROTOCOL}, /* four */
        {{0x00, 0x05}, BPS_ERR_PROTOCOL}, /* none */
        {{0x25, 0x15}, BPS_ERR_PROTOCOL}, /* bits behind the end */
    };
    static const double three[METHOD_OPTIONS] = {3};
    struct slice s = make_slice(_i, three, BPS_FLOAT32, 14);
    fill(&s, RISING, &(unsigned){1});
    encode(&s);
    for (size_t i = 0; i < SIZE_OF(known); i++) {
        becomes(&s, known[i].bits, known[i].want);
    }
    for (uint32_t kept = 0; kept < 1000; kept++) {
        memcpy(s.code, &kept, 4);
        becomes(&s, known[0].bits, kept == 3 ? BPS_OK : BPS_ERR_PROTOCOL);
    }
    free_slice(&s);
}
END_TEST

/* ---- what it promises ---------------------------------------------------------------------------------------- */

static void described(const double *method, const char *text)
{
    ck_assert(method[0] != 0.01 || strncmp(text, "1 % of", 6) == 0);
}

/*
 * 3 of 14 elements: at 0, 5 and 13, of which the two lowest bits are 0, 1, 1 and the others 0, 1, 3. The row has
 * ones at 0, 1 + 1 and 3 + 2, of 3 + 3 bits; behind it 00 10 10.
 */
static const double three[METHOD_OPTIONS] = {3},
                    elements[] = {-1, 0.5, 0, 0, 0.25, 2, 0, 0.5, 0.5, 0.5, 0.5, 0.5, -0.5, 3};
static const struct known_code known[] = {
    {three, BPS_FLOAT32, 14, 18, elements, {3, 0, 0, 0, 0x25, 0x05, 0, 0, 0x80, 0xbf, 0, 0, 0, 0x40, 0, 0, 0x40, 0x40}},
};
static const struct refused_options refused[] = {{{0}, "k = 0"}};

static void special(TCase *tests, int variant)
{
    tcase_add_loop_test(tests, test_ties, variant, variant + 1);
    tcase_add_loop_test(tests, test_how_many, variant, variant + 1);
    tcase_add_loop_test(tests, test_many_that_are_not_finite, variant, variant + 1);
    tcase_add_loop_test(tests, test_foreign_indices, variant, variant + 1);
}

int main(void)
{
    return run_compressor_tests(&(const struct promise){
        .name = "topk",
        .module = bps_module_compressor_topk,
        ALL(methods),
        ALL(counts),
        .options = {"k", "compat"},
        ISA_VARIANTS,
        .exact = true,
        .described = described,
        .is_right = slice_is_right,
        .fill = fill,
        .n_fills = KINDS,
        .spoils = itself_alone,
        .spoiled = unchanged,
        ALL(refused),
        ALL(known),
        .special = special,
    });
}
