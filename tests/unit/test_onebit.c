/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_onebit.c - the compressor "onebit" against its definition, and against bytes that nobody has coded.
 *
 * Each test runs once for every instruction set (the loop index is the value of the option isa) and for both types;
 * what this CPU or this build lacks must be refused with a message, and its other tests have nothing to do.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "checks.h"
#include "compressor_rig.h"

const struct bps_module *bps_module_compressor_onebit(void);

#define LARGE 100003

static const size_t counts[] = {0, 1, 7, 8, 9, 31, 32, 33, 63, 64, 65, 255, 256, 257, LARGE};
#define COUNTS (sizeof counts / sizeof *counts)

static const uint32_t dtypes[] = {BPS_FLOAT32, BPS_FLOAT64};
static const struct bps_random draw = {.shared = 1, .own = 2};

static bps_status open_onebit(struct rig *rig, int isa, bool scaling)
{
    const struct rig_setting settings[] = {{"scaling", scaling}, {"isa", isa}};
    return rig_open(rig, bps_module_compressor_onebit(), settings, 2);
}

#define OPEN_OR_RETURN(rig, isa, scaling)                                                                              \
    do {                                                                                                               \
        if (open_onebit(rig, isa, scaling) != BPS_OK) {                                                                \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

/* A slice, what it is coded as, and what becomes of it; all at odd addresses. */
struct slice {
    uint32_t dtype;
    size_t count, bytes;
    uint8_t *from, *code, *to;
    void *base[3];
};

/* Some of both signs; the first ones are special. */
static struct slice make_slice(const struct rig *rig, uint32_t dtype, size_t count)
{
    static const double special[] = {0.0, -0.0, 1e-45, -1e-38, 3.0, -1.0};
    struct slice s = {.dtype = dtype, .count = count, .bytes = rig->ops->bound(rig->instance, dtype, count)};
    s.from = rig_odd(count * rig_size(dtype), &s.base[0]);
    s.code = rig_odd(s.bytes, &s.base[1]);
    s.to = rig_odd(count * rig_size(dtype), &s.base[2]);
    for (size_t i = 0; i < count; i++) {
        double common = (double)(i * 7919 % 41) * (i % 3 == 0 ? -0.25 : 0.5);
        rig_put(dtype, s.from, i, i < 6 ? special[i] : common);
        rig_put(dtype, s.to, i, (double)i);
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

static void signs_and_the_mean(const struct rig *rig, uint32_t dtype, size_t count)
{
    struct slice s = make_slice(rig, dtype, count);
    long double sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += fabs(rig_get(dtype, s.from, i));
    }
    double mean = count > 0 ? (double)(sum / (long double)count) : 0;
    ck_assert_uint_eq(s.bytes, rig_size(dtype) + (count + 7) / 8);
    encode(rig, &s);
    ck_assert_int_eq(decode(rig, &s), BPS_OK);
    for (size_t i = 0; i < count; i++) {
        double x = rig_get(dtype, s.from, i), y = rig_get(dtype, s.to, i);
        ck_assert(fabs(fabs(y) - mean) <= (dtype == BPS_FLOAT32 ? 1e-7 : 1e-15) * mean + 1e-45);
        ck_assert((signbit(y) != 0) == (signbit(x) != 0));
        ck_assert((s.code[rig_size(dtype) + i / 8] >> i % 8 & 1) == (signbit(x) != 0));
    }
    if (count % 8 > 0) {
        ck_assert_uint_eq(s.code[s.bytes - 1] >> count % 8, 0); /* the bits behind the last element */
    }
    free_slice(&s);
}

START_TEST(test_signs_and_the_mean)
{
    struct rig rig;
    OPEN_OR_RETURN(&rig, _i, true);
    for (size_t c = 0; c < COUNTS; c++) {
        signs_and_the_mean(&rig, BPS_FLOAT32, counts[c]);
        signs_and_the_mean(&rig, BPS_FLOAT64, counts[c]);
    }
    rig.ops->close(rig.instance);
}
END_TEST

/* All instruction sets write the same bytes. */
START_TEST(test_the_same_as_the_baseline)
{
    struct rig rig, baseline;
    for (int scaling = 0; scaling < 2; scaling++) {
        OPEN_OR_RETURN(&rig, _i, scaling);
        ck_assert_int_eq(open_onebit(&baseline, 1, scaling), BPS_OK);
        for (size_t c = 0; c < 2 * COUNTS; c++) {
            struct slice s = make_slice(&rig, dtypes[c % 2], counts[c / 2]);
            struct slice want = make_slice(&baseline, dtypes[c % 2], counts[c / 2]);
            encode(&rig, &s);
            encode(&baseline, &want);
            ck_assert_mem_eq(s.code, want.code, s.bytes);
            ck_assert_int_eq(decode_add(&rig, &s), decode_add(&baseline, &want));
            ck_assert_mem_eq(s.to, want.to, s.count * rig_size(s.dtype));
            free_slice(&s);
            free_slice(&want);
        }
        rig.ops->close(rig.instance);
        baseline.ops->close(baseline.instance);
    }
}
END_TEST

static void adds(const struct rig *rig, uint32_t dtype, size_t count)
{
    struct slice once = make_slice(rig, dtype, count), sum = make_slice(rig, dtype, count);
    encode(rig, &once);
    encode(rig, &sum);
    ck_assert_int_eq(decode(rig, &once), BPS_OK);
    ck_assert_int_eq(decode_add(rig, &sum), BPS_OK);
    for (size_t i = 0; i < count; i++) {
        double want = (double)i + rig_get(dtype, once.to, i);
        ck_assert(rig_get(dtype, sum.to, i) == (dtype == BPS_FLOAT32 ? (double)(float)want : want));
    }
    free_slice(&once);
    free_slice(&sum);
}

START_TEST(test_decode_add_adds)
{
    struct rig rig;
    OPEN_OR_RETURN(&rig, _i, true);
    for (size_t c = 0; c < COUNTS; c++) {
        adds(&rig, BPS_FLOAT32, counts[c]);
        adds(&rig, BPS_FLOAT64, counts[c]);
    }
    rig.ops->close(rig.instance);
}
END_TEST

/* The bytes on the wire, which other builds and machines have to understand. */
START_TEST(test_the_format)
{
    static const uint8_t want[2][10] = {
        {0, 0, 0, 0x40, 0x92, 0x01}, /* 2.0; the elements 1, 4, 7; and 8 */
        {0, 0, 0, 0, 0, 0, 0, 0x40, 0x92, 0x01},
    };
    struct rig rig;
    OPEN_OR_RETURN(&rig, _i, true);
    for (int type = 0; type < 2; type++) {
        static const double x[10] = {1, -1, 1, 1, -1, 1, 1, -1, -1, 11};
        struct slice s = make_slice(&rig, dtypes[type], 10);
        for (size_t i = 0; i < 10; i++) {
            rig_put(s.dtype, s.from, i, x[i]);
        }
        encode(&rig, &s);
        ck_assert_mem_eq(s.code, want[type], s.bytes);
        free_slice(&s);
    }
    rig.ops->close(rig.instance);
}
END_TEST

START_TEST(test_without_scaling)
{
    struct rig rig;
    OPEN_OR_RETURN(&rig, _i, false);
    for (size_t c = 0; c < 2 * COUNTS; c++) {
        struct slice s = make_slice(&rig, dtypes[c % 2], counts[c / 2]);
        if (s.count > 0) {
            rig_put(s.dtype, s.from, s.count / 2, s.dtype == BPS_FLOAT32 ? 3e38 : 1e308);
        }
        encode(&rig, &s);
        ck_assert_int_eq(decode(&rig, &s), BPS_OK);
        for (size_t i = 0; i < s.count; i++) {
            ck_assert(rig_get(s.dtype, s.to, i) == (signbit(rig_get(s.dtype, s.from, i)) ? -1 : 1));
        }
        free_slice(&s);
    }
    rig.ops->close(rig.instance);
}
END_TEST

/* Large elements are no overflow: neither their sum, nor that the last ones add little to what is there. */
START_TEST(test_the_mean_of_many_or_large_elements)
{
    const size_t many = 2u << 20;
    struct rig rig;
    OPEN_OR_RETURN(&rig, _i, true);
    struct slice s = make_slice(&rig, BPS_FLOAT32, many);
    for (int large = 0; large < 2; large++) {
        for (size_t i = 0; i < many; i++) {
            rig_put(s.dtype, s.from, i, large ? 3e38 : 0.1f);
        }
        encode(&rig, &s);
        ck_assert_int_eq(decode(&rig, &s), BPS_OK);
        ck_assert(rig_get(s.dtype, s.to, many - 1) == rig_get(s.dtype, s.from, 0));
    }
    free_slice(&s);
    rig.ops->close(rig.instance);
}
END_TEST

/* A gradient that is broken stays so. */
START_TEST(test_nan_and_infinity_are_not_hidden)
{
    static const double broken[] = {NAN, INFINITY, -INFINITY, -NAN};
    struct rig rig;
    for (size_t example = 0; example < 2 * 2 * 4 * 45; example++) {
        size_t b = example / 4 % 4, place = example / 16;
        OPEN_OR_RETURN(&rig, _i, example % 2 == 0);
        struct slice s = make_slice(&rig, dtypes[example / 2 % 2], 45);
        rig_put(s.dtype, s.from, place, broken[b]);
        encode(&rig, &s);
        ck_assert_int_eq(decode(&rig, &s), BPS_OK);
        for (size_t i = 0; i < s.count; i++) {
            ck_assert(!isfinite(rig_get(s.dtype, s.to, i)));
        }
        free_slice(&s);
        rig.ops->close(rig.instance);
    }
}
END_TEST

START_TEST(test_other_types_are_not_coded)
{
    struct rig rig;
    OPEN_OR_RETURN(&rig, _i, true);
    for (uint32_t dtype = 0; dtype < BPS_DTYPES; dtype++) {
        bool coded = dtype == BPS_FLOAT32 || dtype == BPS_FLOAT64;
        ck_assert_uint_eq(rig.ops->bound(rig.instance, dtype, 100) > 0, coded);
    }
    rig.ops->close(rig.instance);
}
END_TEST

/* The floating point settings of the calling thread make no difference, and stay. */
START_TEST(test_flushed_subnormals)
{
#ifdef __SSE2__
    struct rig rig;
    OPEN_OR_RETURN(&rig, _i, true);
    struct slice s = make_slice(&rig, BPS_FLOAT32, 5);
    for (size_t i = 0; i < s.count; i++) {
        rig_put(s.dtype, s.from, i, 1e-40);
    }
    unsigned before = _mm_getcsr(), flush = before | 0x8040;
    _mm_setcsr(flush);
    encode(&rig, &s);
    decode(&rig, &s);
    unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    ck_assert_uint_eq(after & 0xffc0, flush & 0xffc0);
    ck_assert_mem_eq(s.to, s.from, s.count * sizeof(float));
    free_slice(&s);
    rig.ops->close(rig.instance);
#endif
}
END_TEST

/* Any length but the right one is refused, before anything is read. */
START_TEST(test_foreign_lengths)
{
    struct rig rig;
    OPEN_OR_RETURN(&rig, _i, true);
    for (size_t example = 0; example < 200; example++) {
        struct slice s = make_slice(&rig, dtypes[example % 2], example / 2);
        size_t right = s.bytes;
        encode(&rig, &s);
        for (size_t bytes = 0; bytes < right + 9; bytes++) {
            void *base;
            uint8_t *code = s.code;
            s.bytes = bytes;
            s.code = rig_odd(bytes, &base);
            memcpy(s.code, code, bytes < right ? bytes : right);
            bps_status want = bytes == right ? BPS_OK : BPS_ERR_PROTOCOL;
            ck_assert_int_eq(decode(&rig, &s), want);
            ck_assert_int_eq(decode_add(&rig, &s), want);
            free(base);
            s.code = code;
        }
        free_slice(&s);
    }
    rig.ops->close(rig.instance);
}
END_TEST

/* Codes three elements, puts `value` in the byte `at`, and says what becomes of it. */
static bps_status changed(int isa, bool scaling, uint32_t dtype, size_t at, uint8_t value)
{
    struct rig rig;
    ck_assert_int_eq(open_onebit(&rig, isa, scaling), BPS_OK);
    struct slice s = make_slice(&rig, dtype, 3);
    encode(&rig, &s);
    s.code[at] = value;
    bps_status status = decode(&rig, &s);
    ck_assert_int_eq(decode_add(&rig, &s), status);
    free_slice(&s);
    rig.ops->close(rig.instance);
    return status;
}

/* Bits behind the last element, negative scales, and scales where there are none. */
START_TEST(test_foreign_bytes)
{
    struct rig rig;
    OPEN_OR_RETURN(&rig, _i, true);
    rig.ops->close(rig.instance);
    for (int type = 0; type < 2; type++) {
        size_t scale = rig_size(dtypes[type]);
        for (unsigned bits = 0; bits < 256; bits++) {
            bps_status want = bits < 8 ? BPS_OK : BPS_ERR_PROTOCOL;
            ck_assert_int_eq(changed(_i, true, dtypes[type], scale, (uint8_t)bits), want);
        }
        for (unsigned high = 0; high < 256; high++) {
            bps_status want = high < 128 ? BPS_OK : BPS_ERR_PROTOCOL;
            ck_assert_int_eq(changed(_i, true, dtypes[type], scale - 1, (uint8_t)high), want);
            want = high == 0x3f ? BPS_OK : BPS_ERR_PROTOCOL;
            if (high != 0x7f) { /* that is a NaN for float32 */
                ck_assert_int_eq(changed(_i, false, dtypes[type], scale - 1, (uint8_t)high), want);
            }
        }
    }
}
END_TEST

START_TEST(test_isa)
{
    static const char *const names[RIG_ISAS] = {"", "baseline", "avx2", "avx512"};
    struct rig rig;
    char text[100];
    if (open_onebit(&rig, _i, true) != BPS_OK) {
        ck_assert_int_gt(_i, 1);
        ck_assert_ptr_nonnull(strstr(rig.report.text, names[_i]));
        return;
    }
    rig.ops->describe(rig.instance, text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, names[_i]));
    rig.ops->close(rig.instance);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("onebit");
    TCase *tests = tcase_create("onebit");
    tcase_add_loop_test(tests, test_signs_and_the_mean, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_the_same_as_the_baseline, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_decode_add_adds, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_the_format, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_without_scaling, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_the_mean_of_many_or_large_elements, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_nan_and_infinity_are_not_hidden, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_other_types_are_not_coded, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_flushed_subnormals, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_foreign_lengths, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_foreign_bytes, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_isa, 0, RIG_ISAS);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed > 0;
}
