/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_randomk.c - the compressor "randomk" against the definition of what it draws, and of what the original does.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "compressor_rig.h"

const struct bps_module *bps_module_compressor_randomk(void);

static const size_t counts[] = {0, 1, 2, 7, 63, 65, 150, 256, 5000, 140000};
#define COUNTS (sizeof counts / sizeof *counts)

static const double ks[] = {0.01, 0.3, 0.999, 1, 10, 64, 1e9};
#define KS (sizeof ks / sizeof *ks)

static const uint32_t dtypes[] = {BPS_FLOAT32, BPS_FLOAT64};
static struct bps_random draw = {.shared = 1, .own = 2};

enum { INDEPENDENT = 1, UNBIASED = 2, COMPAT = 4 };

static bps_status open_randomk(struct rig *rig, double k, int flags)
{
    const struct rig_setting settings[] = {
        {"k", k}, {"independent", flags & INDEPENDENT}, {"unbiased", flags & UNBIASED}, {"compat", flags & COMPAT}};
    return rig_open(rig, bps_module_compressor_randomk(), settings, 4);
}

static void must_open(struct rig *rig, double k, int flags)
{
    ck_assert_int_eq(open_randomk(rig, k, flags), BPS_OK);
}

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

static void fill(struct slice *s, unsigned *seed)
{
    for (size_t i = 0; i < s->count; i++) {
        rig_put(s->dtype, s->from, i, rand_r(seed) / (double)RAND_MAX - 0.5);
    }
}

/* ---- the definitions ----------------------------------------------------------------------------------------- */

/* Of the original BytePS: of a slice that is filled up to a multiple of 8 elements of its type, 4 or 8 bytes each. */
static double part_of_the_original(float k, size_t count, size_t size)
{
    while (count % (8 * size) != 0) {
        count++;
    }
    float bytes = k * (float)(count * size);
    return floorf(bytes / (float)size);
}

static size_t kept_of(double k, size_t count, size_t compat)
{
    double part = compat > 0 ? part_of_the_original((float)k, count, compat) : round(k * (double)count);
    double kept = k >= 1 ? floor(k) : part < 1 ? 1 : part;
    return kept < (double)count ? (size_t)kept : count;
}

/* The i-th output of splitmix64 that begins with a number, as a fraction of 2^64 of n. */
static size_t drawn(uint64_t number, uint64_t i, size_t n)
{
    uint64_t x = number + (i + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    uint64_t high = (x >> 32) * n, low = (x & UINT32_MAX) * n; /* n is below 2^32 */
    return (size_t)((high + (low >> 32)) >> 32);
}

/* Stratum j is from floor(j * count / kept) to that of j + 1, behind what is drawn first. */
static void draw_strata(uint64_t number, size_t count, size_t kept, size_t *index)
{
    for (size_t j = 0; j < kept; j++) {
        size_t low = j * count / kept, high = (j + 1) * count / kept;
        index[j] = (drawn(number, 0, count) + low + drawn(number, j + 1, high - low)) % count;
    }
}

static void draw_as_the_original(uint64_t state[2], size_t count, size_t kept, size_t *index)
{
    for (size_t j = 0; j < kept; j++) {
        uint64_t t = state[0], s = state[1];
        state[0] = s;
        t ^= t << 23;
        t ^= t >> 17;
        t = t ^ s ^ (s >> 26);
        state[1] = t;
        index[j] = (size_t)((t + s) % count);
    }
}

/* What each element becomes; its factor, or 0. */
static double *factors(const struct slice *s, size_t kept, uint64_t number, int flags)
{
    double *factor = calloc(s->count + 1, sizeof *factor), share = (double)s->count / (double)kept;
    size_t *index = calloc(kept + 1, sizeof *index);
    if ((flags & COMPAT) != 0) {
        draw_as_the_original((uint64_t[]){number, number}, s->count, kept, index);
    } else {
        draw_strata(number, s->count, kept, index);
    }
    for (size_t j = 0; j < kept; j++) {
        factor[index[j]] = (flags & UNBIASED) == 0 ? 1 : (flags & INDEPENDENT) != 0 ? share : sqrt(share);
    }
    free(index);
    return factor;
}

static double typed(uint32_t dtype, double x)
{
    return dtype == BPS_FLOAT32 ? (double)(float)x : x;
}

static void slice_is_right(const struct rig *rig, struct slice *s, size_t kept, int flags)
{
    struct slice sum = make_slice(rig, s->dtype, s->count);
    double *factor = factors(s, kept, flags & INDEPENDENT ? draw.own : draw.shared, flags);
    encode(rig, s);
    memcpy(sum.code, s->code, s->bytes);
    ck_assert_int_eq(decode(rig, s), BPS_OK);
    ck_assert_int_eq(decode_add(rig, &sum), BPS_OK);
    for (size_t i = 0; i < s->count; i++) {
        double want = typed(s->dtype, rig_get(s->dtype, s->from, i) * factor[i]);
        ck_assert_msg(rig_get(s->dtype, s->to, i) == want, "%zu of %zu: %a became %a", i, s->count, want,
                      rig_get(s->dtype, s->to, i));
        ck_assert(rig_get(s->dtype, sum.to, i) == typed(s->dtype, (double)i - 100 + want));
    }
    free(factor);
    free_slice(&sum);
}

/* ---- tests --------------------------------------------------------------------------------------------------- */

START_TEST(test_any_elements)
{
    static const int all_flags[] = {0, INDEPENDENT, UNBIASED, UNBIASED | INDEPENDENT, COMPAT, COMPAT | INDEPENDENT};
    unsigned seed = 1;
    struct rig rig;
    for (size_t example = 0; example < 2 * KS * COUNTS * 6; example++) {
        double k = ks[example / 2 % KS];
        size_t count = counts[example / 2 / KS % COUNTS];
        int flags = all_flags[example / 2 / KS / COUNTS];
        must_open(&rig, k, flags);
        draw.shared = 1 + (uint64_t)rand_r(&seed) * 0x9e3779b97f4a7c15u;
        struct slice s = make_slice(&rig, dtypes[example % 2], count);
        fill(&s, &seed);
        slice_is_right(&rig, &s, kept_of(k, count, flags & COMPAT ? rig_size(s.dtype) : 0), flags);
        free_slice(&s);
        rig.ops->close(rig.instance);
    }
}
END_TEST

/* With a seed it is one generator, which goes on from round to round. */
START_TEST(test_the_seed_of_the_original)
{
    enum { COUNT = 50, KEPT = 3, ROUNDS = 3000 };
    uint64_t state[2] = {77, 77};
    struct rig rig;
    must_open(&rig, KEPT, COMPAT);
    struct slice s = make_slice(&rig, BPS_FLOAT32, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        rig_put(s.dtype, s.from, i, 1);
    }
    for (uint64_t round = 0; round < ROUNDS; round++) {
        size_t index[KEPT], found = 0, want = 0;
        bool drawn[COUNT] = {false};
        draw_as_the_original(state, COUNT, KEPT, index);
        draw = (struct bps_random){.shared = round * round, .own = round, .seed = 77, .round = round};
        encode(&rig, &s);
        ck_assert_int_eq(decode(&rig, &s), BPS_OK);
        for (size_t j = 0; j < KEPT; j++) {
            want += !drawn[index[j]];
            drawn[index[j]] = true;
            ck_assert_double_eq(rig_get(s.dtype, s.to, index[j]), 1);
        }
        for (size_t i = 0; i < COUNT; i++) {
            found += rig_get(s.dtype, s.to, i) != 0;
        }
        ck_assert_uint_eq(found, want);
    }
    free_slice(&s);
    rig.ops->close(rig.instance);
}
END_TEST

/* Each element is kept as often as any other, and so many at a time. */
START_TEST(test_all_alike)
{
    static const size_t shapes[][2] = {{103, 10}, {100, 10}, {64, 63}, {9, 2}, {1000, 1}};
    const uint64_t rounds = 10000;
    for (size_t i = 0; i < 5; i++) {
        size_t count = shapes[i][0], kept = shapes[i][1], *times = calloc(count, sizeof *times);
        struct rig rig;
        must_open(&rig, (double)kept, 0);
        struct slice s = make_slice(&rig, BPS_FLOAT32, count);
        for (size_t j = 0; j < count; j++) {
            rig_put(s.dtype, s.from, j, 1);
        }
        for (draw.shared = 0; draw.shared < rounds; draw.shared++) {
            size_t found = 0;
            encode(&rig, &s);
            ck_assert_int_eq(decode(&rig, &s), BPS_OK);
            for (size_t j = 0; j < count; j++) {
                bool there = rig_get(s.dtype, s.to, j) != 0;
                times[j] += there;
                found += there;
            }
            ck_assert_uint_eq(found, kept);
        }
        double p = (double)kept / (double)count, mean = p * (double)rounds, deviation = sqrt(mean * (1 - p));
        for (size_t j = 0; j < count; j++) {
            ck_assert_msg(fabs((double)times[j] - mean) < 5 * deviation, "%zu of %zu: %zu times", j, count, times[j]);
        }
        free(times);
        free_slice(&s);
        rig.ops->close(rig.instance);
    }
}
END_TEST

/* Two codings of the same elements, as a round has them. */
START_TEST(test_unbiased)
{
    for (int flags = UNBIASED; flags < COMPAT; flags++) {
        struct rig rig;
        double total = 0;
        const int rounds = 10000;
        must_open(&rig, 0.25, flags);
        struct slice s = make_slice(&rig, BPS_FLOAT32, 20);
        for (int round = 0; round < rounds; round++) {
            for (size_t i = 0; i < s.count; i++) {
                rig_put(s.dtype, s.from, i, 1);
            }
            for (unsigned coding = 0; coding < 2; coding++) {
                draw.shared = (uint64_t)round;
                draw.own = (uint64_t)round * 2 + coding;
                encode(&rig, &s);
                ck_assert_int_eq(decode(&rig, &s), BPS_OK);
                memcpy(s.from, s.to, s.count * sizeof(float));
            }
            for (size_t i = 0; i < s.count; i++) {
                total += rig_get(s.dtype, s.to, i);
            }
        }
        ck_assert_double_eq_tol(total / rounds / (double)s.count, 1, 0.05);
        free_slice(&s);
        rig.ops->close(rig.instance);
    }
}
END_TEST

/* A gradient that is broken stays so, whether its element is drawn or not. */
START_TEST(test_nan_and_infinity_are_not_hidden)
{
    static const double broken[] = {NAN, INFINITY, -INFINITY, -NAN};
    for (size_t example = 0; example < 2 * 2 * 4 * 45; example++) {
        struct rig rig;
        must_open(&rig, 3, example / 8 % 2 ? COMPAT : 0);
        struct slice s = make_slice(&rig, dtypes[example % 2], 45);
        fill(&s, &(unsigned){1});
        rig_put(s.dtype, s.from, example / 16, broken[example / 2 % 4]);
        encode(&rig, &s);
        for (int add = 0; add < 2; add++) {
            ck_assert_int_eq(add ? decode_add(&rig, &s) : decode(&rig, &s), BPS_OK);
            for (size_t i = 0; i < s.count; i++) {
                ck_assert(isnan(rig_get(s.dtype, s.to, i)));
            }
        }
        free_slice(&s);
        rig.ops->close(rig.instance);
    }
}
END_TEST

/* The number, and the elements it stands for: the bytes on the wire. */
START_TEST(test_the_format)
{
    static const uint8_t want[] = {8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0x40, 0, 0, 0x80, 0x40, 0, 0, 0xe0, 0x40};
    struct rig rig;
    must_open(&rig, 3, 0);
    struct slice s = make_slice(&rig, BPS_FLOAT32, 10);
    for (size_t i = 0; i < s.count; i++) {
        rig_put(s.dtype, s.from, i, (double)i);
    }
    draw.shared = 0x0102030405060708;
    encode(&rig, &s);
    ck_assert_uint_eq(s.bytes, sizeof want);
    ck_assert_mem_eq(s.code, want, sizeof want);
    free_slice(&s);
    rig.ops->close(rig.instance);
}
END_TEST

/* Any length but the right one is refused, before anything is read; any number is taken. */
START_TEST(test_foreign_bytes)
{
    unsigned seed = 5;
    struct rig rig;
    must_open(&rig, 0.1, 0);
    for (size_t count = 0; count < 100; count++) {
        struct slice s = make_slice(&rig, dtypes[count % 2], count);
        size_t right = s.bytes;
        uint8_t *code = s.code;
        fill(&s, &seed);
        encode(&rig, &s);
        for (size_t bytes = 0; bytes < right + 9; bytes++) {
            void *base;
            s.bytes = bytes;
            s.code = rig_odd(bytes, &base);
            memcpy(s.code, code, bytes < right ? bytes : right);
            for (size_t i = 0; i < 8 && i < bytes; i++) {
                s.code[i] = (uint8_t)(rand_r(&seed) % 3 ? rand_r(&seed) : 0xff);
            }
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

START_TEST(test_a_single_nan_is_foreign)
{
    struct rig rig;
    must_open(&rig, 3, 0);
    struct slice s = make_slice(&rig, BPS_FLOAT32, 14);
    fill(&s, &(unsigned){1});
    encode(&rig, &s);
    rig_put(s.dtype, s.code + 8, 1, NAN);
    ck_assert_int_eq(decode(&rig, &s), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(decode_add(&rig, &s), BPS_ERR_PROTOCOL);
    free_slice(&s);
    rig.ops->close(rig.instance);
}
END_TEST

START_TEST(test_options)
{
    struct rig rig;
    char text[100];
    must_open(&rig, 0.01, INDEPENDENT | UNBIASED);
    rig.ops->describe(rig.instance, text, sizeof text);
    ck_assert_str_eq(text, "1 % of the elements, drawn by each, unbiased");
    size_t before = 0;
    for (size_t count = 0; count < 3000; count++) {
        ck_assert_uint_ge(rig.ops->bound(rig.instance, BPS_FLOAT32, count), before);
        before = rig.ops->bound(rig.instance, BPS_FLOAT32, count);
    }
    for (uint32_t dtype = 0; dtype < BPS_DTYPES; dtype++) {
        bool coded = dtype == BPS_FLOAT32 || dtype == BPS_FLOAT64;
        ck_assert_uint_eq(rig.ops->bound(rig.instance, dtype, 100) > 0, coded);
    }
    rig.ops->close(rig.instance);
    ck_assert_int_eq(open_randomk(&rig, -1, 0), BPS_ERR_CONF);
    ck_assert_ptr_nonnull(strstr(rig.report.text, "k = -1"));
    ck_assert_int_eq(open_randomk(&rig, 1, COMPAT | UNBIASED), BPS_ERR_CONF);
    ck_assert_ptr_nonnull(strstr(rig.report.text, "unbiased"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("randomk");
    TCase *tests = tcase_create("randomk");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, test_any_elements);
    tcase_add_test(tests, test_the_seed_of_the_original);
    tcase_add_test(tests, test_all_alike);
    tcase_add_test(tests, test_unbiased);
    tcase_add_test(tests, test_nan_and_infinity_are_not_hidden);
    tcase_add_test(tests, test_the_format);
    tcase_add_test(tests, test_foreign_bytes);
    tcase_add_test(tests, test_a_single_nan_is_foreign);
    tcase_add_test(tests, test_options);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed > 0;
}
