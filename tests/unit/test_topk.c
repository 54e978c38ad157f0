/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_topk.c - the compressor "topk" against sorting, its bytes against the definition of their format, and against
 * bytes that nobody has coded.
 *
 * Each test runs once for every instruction set (the loop index is the value of the option isa); what this CPU or this
 * build lacks must be refused with a message, and its other tests have nothing to do.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "checks.h"
#include "compressor_rig.h"

const struct bps_module *bps_module_compressor_topk(void);

static const size_t counts[] = {0, 1, 2, 7, 31, 32, 33, 63, 65, 150, 256, 2047, 2049, 5000, 50001};
#define COUNTS (sizeof counts / sizeof *counts)

static const double ks[] = {0.01, 0.001, 0.5, 0.999, 1, 10, 64, 1e9};
#define KS (sizeof ks / sizeof *ks)

static const uint32_t dtypes[] = {BPS_FLOAT32, BPS_FLOAT64};
static const struct bps_random draw = {.shared = 1, .own = 2};

static bps_status open_topk(struct rig *rig, int isa, double k, bool compat)
{
    const struct rig_setting settings[] = {{"k", k}, {"compat", compat}, {"isa", isa}};
    return rig_open(rig, bps_module_compressor_topk(), settings, 3);
}

#define OPEN_OR_RETURN(rig, isa, k, compat)                                                                            \
    do {                                                                                                               \
        if (open_topk(rig, isa, k, compat) != BPS_OK) {                                                                \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

/* ---- slices -------------------------------------------------------------------------------------------------- */

struct slice {
    uint32_t dtype;
    size_t count, bytes;
    uint8_t *from, *code, *to;
    void *base[3];
};

static struct slice make_slice(const struct rig *rig, uint32_t dtype, size_t count)
{
    struct slice s = {.dtype = dtype, .count = count, .bytes = rig->ops->bound(rig->instance, dtype, count)};
    s.from = rig_odd(count * rig_size(dtype), &s.base[0]);
    s.code = rig_odd(s.bytes, &s.base[1]);
    s.to = rig_odd(count * rig_size(dtype), &s.base[2]);
    for (size_t i = 0; i < count; i++) {
        rig_put(dtype, s.to, i, (double)i - 100);
    }
    return s;
}

static void free_slice(struct slice *s)
{
    for (int i = 0; i < 3; i++) {
        free(s->base[i]);
    }
}

static void encode(const struct rig *rig, struct slice *s)
{
    ck_assert_uint_eq(rig->ops->encode(rig->instance, s->dtype, s->from, s->count, &draw, s->code), s->bytes);
}

static bps_status decode(const struct rig *rig, struct slice *s)
{
    return rig->ops->decode(rig->instance, s->dtype, s->code, s->bytes, s->to, s->count);
}

static bps_status decode_add(const struct rig *rig, struct slice *s)
{
    return rig->ops->decode_add(rig->instance, s->dtype, s->code, s->bytes, s->to, s->count);
}

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

static void fill(struct slice *s, enum kind kind, unsigned *seed)
{
    for (size_t i = 0; i < s->count; i++) {
        rig_put(s->dtype, s->from, i, element(kind, i, s->count, seed));
    }
}

/* ---- the definition ------------------------------------------------------------------------------------------ */

static size_t kept_of(double k, size_t count)
{
    double part = round(k * (double)count);
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
static void slice_is_right(const struct rig *rig, struct slice *s, size_t kept)
{
    static const uint8_t zero[8];
    size_t size = rig_size(s->dtype);
    bool *marks = kept_marks(s, kept);
    encode(rig, s);
    ck_assert_int_eq(decode(rig, s), BPS_OK);
    for (size_t i = 0; i < s->count; i++) {
        const uint8_t *want = marks[i] ? s->from + i * size : zero;
        ck_assert_msg(memcmp(s->to + i * size, want, size) == 0, "%zu of %zu: %a became %a", i, s->count,
                      rig_get(s->dtype, s->from, i), rig_get(s->dtype, s->to, i));
    }
    free(marks);
}

/* ---- tests --------------------------------------------------------------------------------------------------- */

START_TEST(test_any_elements)
{
    unsigned seed = 1;
    struct rig rig;
    for (size_t example = 0; example < 2 * KS * COUNTS * KINDS; example++) {
        double k = ks[example / 2 % KS];
        size_t count = counts[example / 2 / KS % COUNTS];
        OPEN_OR_RETURN(&rig, _i, k, false);
        struct slice s = make_slice(&rig, dtypes[example % 2], count);
        fill(&s, (enum kind)(example / 2 / KS / COUNTS), &seed);
        slice_is_right(&rig, &s, kept_of(k, count));
        free_slice(&s);
        rig.ops->close(rig.instance);
    }
}
END_TEST

/* The first elements are kept of those that are equal to the last one that is. */
START_TEST(test_ties)
{
    struct rig rig;
    OPEN_OR_RETURN(&rig, _i, 5, false);
    for (int type = 0; type < 2; type++) {
        static const double x[9] = {1, -2, 2, 1, -3, -1, 1, 1, 2}, want[9] = {1, -2, 2, 0, -3, 0, 0, 0, 2};
        struct slice s = make_slice(&rig, dtypes[type], 9);
        for (size_t i = 0; i < 9; i++) {
            rig_put(s.dtype, s.from, i, x[i]);
        }
        encode(&rig, &s);
        ck_assert_int_eq(decode(&rig, &s), BPS_OK);
        for (size_t i = 0; i < 9; i++) {
            ck_assert(rig_get(s.dtype, s.to, i) == want[i]);
        }
        free_slice(&s);
    }
    rig.ops->close(rig.instance);
}
END_TEST

START_TEST(test_how_many)
{
    static const struct {
        double k;
        bool compat;
        size_t count, kept;
    } known[] = {
        {0.01, false, 149, 1}, {0.01, false, 150, 2}, {0.01, true, 192, 1},   {0.01, true, 193, 2},
        {0.01, false, 3, 1},   {0.01, true, 3, 1},    {0.01, false, 0, 0},    {0.3, true, 64, 19},
        {7, false, 100, 7},    {7, true, 5, 5},       {7.9, false, 100, 7},   {1e300, false, 9, 9},
        {1, false, 50, 1},     {0.3, true, 65, 28},   {0.999, false, 10, 10},
    };
    struct rig rig;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        OPEN_OR_RETURN(&rig, _i, known[i].k, known[i].compat);
        struct slice s = make_slice(&rig, BPS_FLOAT32, known[i].count);
        uint32_t kept;
        fill(&s, RISING, &(unsigned){1});
        encode(&rig, &s);
        memcpy(&kept, s.code, 4); /* tests run where numbers are little endian */
        ck_assert_uint_eq(kept, known[i].kept);
        free_slice(&s);
        rig.ops->close(rig.instance);
    }
}
END_TEST

/* What is not finite is kept before all else, unless there is more of it than is kept. */
START_TEST(test_nan_and_infinity_are_not_hidden)
{
    static const double broken[] = {NAN, INFINITY, -INFINITY, -NAN};
    unsigned seed = 3;
    struct rig rig;
    for (size_t example = 0; example < 2 * 4 * 100; example++) {
        size_t count = example % 3 ? 100 : 20000, bad = example % 7 + (example % 11 == 0 ? 60 : 0);
        OPEN_OR_RETURN(&rig, _i, 10, false);
        struct slice s = make_slice(&rig, dtypes[example % 2], count);
        fill(&s, BITS, &seed);
        for (size_t i = 0; i < bad; i++) {
            rig_put(s.dtype, s.from, (size_t)rand_r(&seed) % count, broken[(example / 2 + i) % 4]);
        }
        slice_is_right(&rig, &s, 10);
        free_slice(&s);
        rig.ops->close(rig.instance);
    }
}
END_TEST

START_TEST(test_decode_add_adds)
{
    unsigned seed = 2;
    struct rig rig;
    for (size_t example = 0; example < 2 * COUNTS * KS; example++) {
        OPEN_OR_RETURN(&rig, _i, ks[example / 2 / COUNTS], false);
        struct slice s = make_slice(&rig, dtypes[example % 2], counts[example / 2 % COUNTS]);
        struct slice sum = make_slice(&rig, s.dtype, s.count);
        fill(&s, NORMAL, &seed);
        encode(&rig, &s);
        memcpy(sum.code, s.code, s.bytes);
        ck_assert_int_eq(decode(&rig, &s), BPS_OK);
        ck_assert_int_eq(decode_add(&rig, &sum), BPS_OK);
        for (size_t i = 0; i < s.count; i++) {
            double want = ((double)i - 100) + rig_get(s.dtype, s.to, i);
            ck_assert(rig_get(s.dtype, sum.to, i) == (s.dtype == BPS_FLOAT32 ? (double)(float)want : want));
        }
        free_slice(&s);
        free_slice(&sum);
        rig.ops->close(rig.instance);
    }
}
END_TEST

/* The bytes on the wire, which other builds and machines have to understand. */
START_TEST(test_the_format)
{
    /*
     * 3 of 14 elements: at 0, 5 and 13, of which the two lowest bits are 0, 1, 1 and the others 0, 1, 3. The row has
     * ones at 0, 1 + 1 and 3 + 2, of 3 + 3 bits; behind it 00 10 10.
     */
    static const uint8_t want[] = {3, 0, 0, 0, 0x25, 0x05, 0, 0, 0x80, 0xbf, 0, 0, 0, 0x40, 0, 0, 0x40, 0x40};
    static const double x[14] = {-1, 0.5, 0, 0, 0.25, 2, 0, 0.5, 0.5, 0.5, 0.5, 0.5, -0.5, 3};
    struct rig rig;
    OPEN_OR_RETURN(&rig, _i, 3, false);
    struct slice s = make_slice(&rig, BPS_FLOAT32, 14);
    for (size_t i = 0; i < 14; i++) {
        rig_put(s.dtype, s.from, i, x[i]);
    }
    encode(&rig, &s);
    ck_assert_uint_eq(s.bytes, sizeof want);
    ck_assert_mem_eq(s.code, want, sizeof want);
    free_slice(&s);
    rig.ops->close(rig.instance);
}
END_TEST

/* How many elements fit into a slice of the network is looked for by bisection. */
START_TEST(test_bounds_grow)
{
    struct rig rig;
    for (size_t i = 0; i < 2 * KS * 2; i++) {
        uint32_t dtype = dtypes[i % 2];
        OPEN_OR_RETURN(&rig, _i, i % 4 < 2 ? ks[i / 4] : (double)(i * 3 / 4), false);
        size_t before = 0;
        for (size_t count = 0; count < 20000; count++) {
            size_t bound = rig.ops->bound(rig.instance, dtype, count);
            ck_assert_msg(bound >= before && bound > 0, "%zu bytes for %zu", bound, count);
            before = bound;
        }
        for (size_t count = 20000; count < (size_t)1 << 33; count += count / 1000) {
            size_t bound = rig.ops->bound(rig.instance, dtype, count);
            ck_assert(bound >= before);
            before = bound;
        }
        rig.ops->close(rig.instance);
    }
}
END_TEST

/* The settings of the calling thread make no difference, and stay. */
START_TEST(test_flushed_subnormals)
{
#ifdef __SSE2__
    struct rig rig;
    OPEN_OR_RETURN(&rig, _i, 0.5, false);
    struct slice s = make_slice(&rig, BPS_FLOAT32, 40);
    for (size_t i = 0; i < s.count; i++) {
        rig_put(s.dtype, s.from, i, i % 2 ? 0x1p-130 : 0);
        rig_put(s.dtype, s.to, i, 0x1p-130);
    }
    unsigned before = _mm_getcsr(), flush = before | 0x8040;
    _mm_setcsr(flush);
    encode(&rig, &s);
    decode_add(&rig, &s);
    unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    ck_assert_uint_eq(after & 0xffc0, flush & 0xffc0);
    ck_assert(rig_get(s.dtype, s.to, 0) == 0x1p-130 && rig_get(s.dtype, s.to, 39) == 0x1p-129);
    free_slice(&s);
    rig.ops->close(rig.instance);
#endif
}
END_TEST

/* Any length but the right one is refused, before anything is read. */
START_TEST(test_foreign_lengths)
{
    struct rig rig;
    OPEN_OR_RETURN(&rig, _i, 0.1, false);
    for (size_t count = 0; count < 100; count++) {
        struct slice s = make_slice(&rig, dtypes[count % 2], count);
        size_t right = s.bytes;
        uint8_t *code = s.code;
        fill(&s, RISING, &(unsigned){1});
        encode(&rig, &s);
        for (size_t bytes = 0; bytes < right + 9; bytes++) {
            void *base;
            s.bytes = bytes;
            s.code = rig_odd(bytes, &base);
            memcpy(s.code, code, bytes < right ? bytes : right);
            bps_status want = bytes == right ? BPS_OK : BPS_ERR_PROTOCOL;
            ck_assert_int_eq(decode(&rig, &s), want);
            ck_assert_int_eq(decode_add(&rig, &s), want);
            free(base);
        }
        free_slice(&s);
    }
    rig.ops->close(rig.instance);
}
END_TEST

static void becomes(const struct rig *rig, struct slice *s, const uint8_t bits[2], bps_status want)
{
    memcpy(s->code + 4, bits, 2);
    ck_assert_int_eq(decode(rig, s), want);
    ck_assert_int_eq(decode_add(rig, s), want);
}

/* As in test_the_format, but two low bits of each can make any order, and the last index one that is not there. */
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
    struct rig rig;
    OPEN_OR_RETURN(&rig, _i, 3, false);
    struct slice s = make_slice(&rig, BPS_FLOAT32, 14);
    fill(&s, RISING, &(unsigned){1});
    encode(&rig, &s);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        becomes(&rig, &s, known[i].bits, known[i].want);
    }
    for (uint32_t kept = 0; kept < 1000; kept++) {
        memcpy(s.code, &kept, 4);
        becomes(&rig, &s, known[0].bits, kept == 3 ? BPS_OK : BPS_ERR_PROTOCOL);
    }
    free_slice(&s);
    rig.ops->close(rig.instance);
}
END_TEST

START_TEST(test_options)
{
    static const char *const names[RIG_ISAS] = {"", "baseline", "avx2", "avx512"};
    struct rig rig;
    char text[100];
    if (open_topk(&rig, _i, 0.01, false) != BPS_OK) {
        ck_assert_int_gt(_i, 1);
        ck_assert_ptr_nonnull(strstr(rig.report.text, names[_i]));
        return;
    }
    rig.ops->describe(rig.instance, text, sizeof text);
    ck_assert(strstr(text, names[_i]) != NULL && strncmp(text, "1 % of", 6) == 0);
    for (uint32_t dtype = 0; dtype < BPS_DTYPES; dtype++) {
        bool coded = dtype == BPS_FLOAT32 || dtype == BPS_FLOAT64;
        ck_assert_uint_eq(rig.ops->bound(rig.instance, dtype, 100) > 0, coded);
    }
    rig.ops->close(rig.instance);
    ck_assert_int_eq(open_topk(&rig, _i, 0, false), BPS_ERR_CONF);
    ck_assert_ptr_nonnull(strstr(rig.report.text, "k = 0"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("topk");
    TCase *tests = tcase_create("topk");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, test_any_elements, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_ties, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_how_many, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_nan_and_infinity_are_not_hidden, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_decode_add_adds, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_the_format, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_bounds_grow, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_flushed_subnormals, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_foreign_lengths, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_foreign_indices, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_options, 0, RIG_ISAS);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed > 0;
}
