/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_onebit.c - the compressor "onebit" against its definition, and against bytes that nobody has coded.
 */
#include <math.h>
#include <string.h>

#include "compressor_tests.h"

const struct bps_module *bps_module_compressor_onebit(void);

#define LARGE 100003

static const size_t counts[] = {0, 1, 7, 8, 9, 31, 32, 33, 63, 64, 65, 255, 256, 257, LARGE};

static const double methods[][METHOD_OPTIONS] = {{true}, {false}}; /* scaling */

static size_t bytes_of(const double *method, uint32_t dtype, size_t count)
{
    (void)method;
    return rig_size(dtype) + (count + 7) / 8;
}

/* Some of both signs; the first ones are special. */
static void fill(struct slice *s, unsigned which, unsigned *seed)
{
    static const double first[] = {0.0, -0.0, 1e-45, -1e-38, 3.0, -1.0};
    (void)which;
    (void)seed;
    for (size_t i = 0; i < s->count; i++) {
        double common = (double)(i * 7919 % 41) * (i % 3 == 0 ? -0.25 : 0.5);
        rig_put(s->dtype, s->from, i, i < SIZE_OF(first) ? first[i] : common);
    }
}

/* With scaling the mean of the magnitudes; each with its sign. */
static void slice_is_right(struct slice *s)
{
    long double sum = 0;
    for (size_t i = 0; i < s->count; i++) {
        sum += fabs(rig_get(s->dtype, s->from, i));
    }
    double mean = s->method[0] == 0 ? 1 : s->count > 0 ? (double)(sum / (long double)s->count) : 0;
    encode(s);
    ck_assert_int_eq(decode(s), BPS_OK);
    for (size_t i = 0; i < s->count; i++) {
        double x = rig_get(s->dtype, s->from, i), y = rig_get(s->dtype, s->to, i);
        ck_assert(fabs(fabs(y) - mean) <= (s->dtype == BPS_FLOAT32 ? 1e-7 : 1e-15) * mean + 1e-45);
        ck_assert((signbit(y) != 0) == (signbit(x) != 0));
        ck_assert((s->code[rig_size(s->dtype) + i / 8] >> i % 8 & 1) == (signbit(x) != 0));
    }
    if (s->count % 8 > 0) {
        ck_assert_uint_eq(s->code[s->bytes - 1] >> s->count % 8, 0); /* the bits behind the last element */
    }
}

START_TEST(test_without_scaling)
{
    for (size_t c = 0; c < 2 * SIZE_OF(counts); c++) {
        struct slice s = make_slice(_i, methods[1], float_types[c % 2], counts[c / 2]);
        if (s.count > 0) {
            rig_put(s.dtype, s.from, s.count / 2, s.dtype == BPS_FLOAT32 ? 3e38 : 1e308);
        }
        encode(&s);
        ck_assert_int_eq(decode(&s), BPS_OK);
        for (size_t i = 0; i < s.count; i++) {
            ck_assert(rig_get(s.dtype, s.to, i) == (signbit(rig_get(s.dtype, s.from, i)) ? -1 : 1));
        }
        free_slice(&s);
    }
}
END_TEST

/* Large elements are no overflow: neither their sum, nor that the last ones add little to what is there. */
START_TEST(test_the_mean_of_many_or_large_elements)
{
    const size_t many = 2u << 20;
    struct slice s = make_slice(_i, methods[0], BPS_FLOAT32, many);
    for (int large = 0; large < 2; large++) {
        for (size_t i = 0; i < many; i++) {
            rig_put(s.dtype, s.from, i, large ? 3e38 : 0.1f);
        }
        encode(&s);
        ck_assert_int_eq(decode(&s), BPS_OK);
        ck_assert(rig_get(s.dtype, s.to, many - 1) == rig_get(s.dtype, s.from, 0));
    }
    free_slice(&s);
}
END_TEST

/* Codes three elements, puts `value` in the byte `at`, and says what becomes of it. */
static bps_status changed(int isa, bool scaling, uint32_t dtype, size_t at, uint8_t value)
{
    struct slice s = make_slice(isa, methods[scaling ? 0 : 1], dtype, 3);
    encode(&s);
    s.code[at] = value;
    bps_status status = decode_bytes(&s, s.code, s.bytes);
    free_slice(&s);
    return status;
}

/* Bits behind the last element, negative scales, and scales where there are none. */
START_TEST(test_foreign_bytes_of_each_kind)
{
    for (int type = 0; type < 2; type++) {
        size_t scale = rig_size(float_types[type]);
        for (unsigned bits = 0; bits < 256; bits++) {
            bps_status want = bits < 8 ? BPS_OK : BPS_ERR_PROTOCOL;
            ck_assert_int_eq(changed(_i, true, float_types[type], scale, (uint8_t)bits), want);
        }
        for (unsigned high = 0; high < 256; high++) {
            bps_status want = high < 128 ? BPS_OK : BPS_ERR_PROTOCOL;
            ck_assert_int_eq(changed(_i, true, float_types[type], scale - 1, (uint8_t)high), want);
            want = high == 0x3f ? BPS_OK : BPS_ERR_PROTOCOL;
            if (high != 0x7f) { /* that is a NaN for float32 */
                ck_assert_int_eq(changed(_i, false, float_types[type], scale - 1, (uint8_t)high), want);
            }
        }
    }
}
END_TEST

/* ---- what it promises ---------------------------------------------------------------------------------------- */

static void described(const double *method, const char *text)
{
    ck_assert_int_eq(strstr(text, "not scaled") != NULL, method[0] == 0);
}

static const double elements[] = {1, -1, 1, 1, -1, 1, 1, -1, -1, 11};
static const struct known_code known[] = {
    {methods[0], BPS_FLOAT32, 10, 6, elements, {0, 0, 0, 0x40, 0x92, 0x01}}, /* 2.0; the elements 1, 4, 7; and 8 */
    {methods[0], BPS_FLOAT64, 10, 10, elements, {0, 0, 0, 0, 0, 0, 0, 0x40, 0x92, 0x01}},
};

static void special(TCase *tests, int variant)
{
    tcase_add_loop_test(tests, test_without_scaling, variant, variant + 1);
    tcase_add_loop_test(tests, test_the_mean_of_many_or_large_elements, variant, variant + 1);
    tcase_add_loop_test(tests, test_foreign_bytes_of_each_kind, variant, variant + 1);
}

int main(void)
{
    return run_compressor_tests(&(const struct promise){
        .name = "onebit",
        .module = bps_module_compressor_onebit,
        ALL(methods),
        ALL(counts),
        .options = {"scaling"},
        ISA_VARIANTS,
        .exact = true,
        .bound = bytes_of,
        .described = described,
        .is_right = slice_is_right,
        .fill = fill,
        .n_fills = 1,
        ALL(known),
        .special = special,
    });
}
