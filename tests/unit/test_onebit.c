/* SPDX-License-Identifier: Apache-2.0 */
/* test_onebit.c - the compressor "onebit" against its definition, and against bytes that nobody has coded. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <byteps/compressor.h>

const struct bps_module *bps_module_compressor_onebit(void);

#define MOST 100 /* elements: blocks of eight, and what is left over */

static void *host_alloc(const struct bps_host *host, size_t bytes, size_t align)
{
    (void)host;
    (void)align;
    return malloc(bytes);
}

static void host_release(const struct bps_host *host, void *memory)
{
    (void)host;
    free(memory);
}

static const struct bps_host host = {.size = sizeof host, .alloc = host_alloc, .release = host_release};
static const struct bps_compressor_ops *onebit;
static void *instance;
static const struct bps_random draw = {.shared = 1, .own = 2};

static void open_scaling(bool scaling)
{
    const struct bps_plugin *plugin = bps_module_compressor_onebit()->plugins[0];
    struct bps_report report = {""};
    onebit = plugin->ops;
    ck_assert_str_eq(plugin->options[0].name, "scaling");
    ck_assert_uint_eq(plugin->options_size, sizeof scaling);
    ck_assert_int_eq(onebit->open(&host, &scaling, &instance, &report), BPS_OK);
}

static void begin(void)
{
    open_scaling(true);
}

static void end(void)
{
    onebit->close(instance);
}

/* Some of both signs; the first ones are special. */
static void fill(float *x, size_t count)
{
    static const float special[] = {0.0f, -0.0f, 1e-45f, -1e-38f, 3.0f, -1.0f};
    for (size_t i = 0; i < count; i++) {
        x[i] = i < 6 ? special[i] : (float)((i * 7919 % 41) * (i % 3 == 0 ? -0.25 : 0.5));
    }
}

/* Memory of exactly so many bytes at an odd address, for valgrind and the sanitizers to watch; `base` is
 * freed. */
static char *odd(size_t bytes, void **base)
{
    char *memory = malloc(bytes + 1);
    *base = memory;
    return memory + 1;
}

START_TEST(test_signs_and_the_mean)
{
    float x[MOST], y[MOST];
    size_t count = (size_t)_i;
    void *in, *coded, *out;
    double mean = 0;
    fill(x, count);
    for (size_t i = 0; i < count; i++) {
        mean += fabsf(x[i]) / (double)count;
    }
    size_t bytes = onebit->bound(instance, BPS_FLOAT32, count);
    ck_assert_uint_eq(bytes, 4 + (count + 7) / 8);
    char *from = odd(sizeof *x * count, &in), *code = odd(bytes, &coded), *to = odd(sizeof *y * count, &out);
    memcpy(from, x, sizeof *x * count);
    ck_assert_uint_eq(onebit->encode(instance, BPS_FLOAT32, from, count, &draw, code), bytes);
    ck_assert_int_eq(onebit->decode(instance, BPS_FLOAT32, code, bytes, to, count), BPS_OK);
    memcpy(y, to, sizeof *y * count);
    for (size_t i = 0; i < count; i++) {
        ck_assert(fabs(fabsf(y[i]) - mean) <= 1e-6 * mean + 1e-44);
        ck_assert_int_eq(signbit(y[i]) != 0, signbit(x[i]) != 0);
    }
    if (count % 8 > 0) {
        ck_assert_uint_eq((uint8_t)code[bytes - 1] >> count % 8, 0); /* the bits behind the last element */
    }
    free(in);
    free(coded);
    free(out);
}
END_TEST

START_TEST(test_decode_add_adds)
{
    float x[MOST], once[MOST], sum[MOST];
    char code[4 + MOST];
    size_t count = (size_t)_i;
    fill(x, count);
    size_t bytes = onebit->encode(instance, BPS_FLOAT32, x, count, &draw, code);
    onebit->decode(instance, BPS_FLOAT32, code, bytes, once, count);
    memcpy(sum, x, sizeof *x * count);
    ck_assert_int_eq(onebit->decode_add(instance, BPS_FLOAT32, code, bytes, sum, count), BPS_OK);
    for (size_t i = 0; i < count; i++) {
        float want = x[i] + once[i];
        ck_assert_mem_eq(&sum[i], &want, sizeof want);
    }
}
END_TEST

/* The bytes on the wire, which other builds and machines have to understand. */
START_TEST(test_the_format)
{
    const float x[10] = {1, -1, 1, 1, -1, 1, 1, -1, -1, 11};
    const uint8_t want[] = {0, 0, 0, 0x40, 0x92, 0x01}; /* 2.0; the elements 1, 4, 7; and 8 */
    uint8_t code[sizeof want];
    ck_assert_uint_eq(onebit->encode(instance, BPS_FLOAT32, x, 10, &draw, code), sizeof want);
    ck_assert_mem_eq(code, want, sizeof want);
}
END_TEST

START_TEST(test_without_scaling)
{
    const float x[3] = {-7, 0.5f, 1e30f};
    float y[3];
    char code[5];
    onebit->close(instance);
    open_scaling(false);
    size_t bytes = onebit->encode(instance, BPS_FLOAT32, x, 3, &draw, code);
    onebit->decode(instance, BPS_FLOAT32, code, bytes, y, 3);
    ck_assert(y[0] == -1 && y[1] == 1 && y[2] == 1);
}
END_TEST

/* A gradient that is broken stays so. */
START_TEST(test_nan_and_infinity_are_not_hidden)
{
    const float broken[] = {NAN, INFINITY, -INFINITY};
    for (size_t b = 0; b < 3; b++) {
        for (size_t place = 0; place < 11; place++) {
            float x[11] = {0}, y[11];
            char code[6];
            x[place] = broken[b];
            size_t bytes = onebit->encode(instance, BPS_FLOAT32, x, 11, &draw, code);
            onebit->decode(instance, BPS_FLOAT32, code, bytes, y, 11);
            ck_assert(!isfinite(y[place]));
        }
    }
}
END_TEST

START_TEST(test_other_types_are_not_coded)
{
    for (uint32_t dtype = 0; dtype < BPS_DTYPES; dtype++) {
        ck_assert_uint_eq(onebit->bound(instance, dtype, 100) > 0, dtype == BPS_FLOAT32);
    }
}
END_TEST

/* Any length but the right one is refused, before anything is read; any bytes of that length are elements. */
START_TEST(test_foreign_bytes)
{
    unsigned seed = 1;
    for (size_t count = 0; count < MOST; count++) {
        size_t right = onebit->bound(instance, BPS_FLOAT32, count);
        for (size_t bytes = 0; bytes <= right + 9; bytes++) {
            void *coded, *out;
            char *code = odd(bytes, &coded), *to = odd(sizeof(float) * count, &out);
            for (size_t i = 0; i < bytes; i++) {
                code[i] = (char)rand_r(&seed);
            }
            memset(to, 0, sizeof(float) * count);
            bps_status want = bytes == right ? BPS_OK : BPS_ERR_PROTOCOL;
            ck_assert_int_eq(onebit->decode(instance, BPS_FLOAT32, code, bytes, to, count), want);
            ck_assert_int_eq(onebit->decode_add(instance, BPS_FLOAT32, code, bytes, to, count), want);
            free(coded);
            free(out);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("onebit");
    TCase *tests = tcase_create("onebit");
    tcase_add_checked_fixture(tests, begin, end);
    tcase_add_loop_test(tests, test_signs_and_the_mean, 0, MOST);
    tcase_add_loop_test(tests, test_decode_add_adds, 0, MOST);
    tcase_add_test(tests, test_the_format);
    tcase_add_test(tests, test_without_scaling);
    tcase_add_test(tests, test_nan_and_infinity_are_not_hidden);
    tcase_add_test(tests, test_other_types_are_not_coded);
    tcase_add_test(tests, test_foreign_bytes);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed > 0;
}
