/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_lossless.c - the compressor "lossless": that the same bits come out, that its bytes are as it says, and what it
 * does with bytes that nobody has coded.
 *
 * Each test runs once for each library (the loop index is the value of the option method); one that this build lacks
 * must be refused with a message, and its other tests have nothing to do.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "compressor_rig.h"
#include "watched.h"

const struct bps_module *bps_module_compressor_lossless(void);

#define METHODS 2
#define CHUNK   16384u

static const size_t counts[] = {0, 1, 2, 7, 64, 1000, 16383, 16384, 16385, 50001};
#define COUNTS (sizeof counts / sizeof *counts)

static const uint32_t dtypes[] = {BPS_FLOAT32, BPS_FLOAT64};
static const struct bps_random draw = {.shared = 1, .own = 2};

static bps_status open_lossless(struct rig *rig, int method, int level)
{
    const struct rig_setting settings[] = {{"method", method}, {"level", level}};
    return rig_open(rig, bps_module_compressor_lossless(), settings, 2);
}

#define OPEN_OR_RETURN(rig, method, level)                                                                             \
    do {                                                                                                               \
        if (open_lossless(rig, method, level) != BPS_OK) {                                                             \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

/* What elements are like: gradients; any bits, those of NaN among them; one value; zeros, some negative. */
enum like { GRADIENTS, NOISE, ONE_VALUE, ZEROS, LIKES };

struct slice {
    uint32_t dtype;
    size_t count, room, bytes;
    uint8_t *from, *code, *to;
    void *base[3];
};

/* splitmix64 */
static uint64_t next(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static void fill(struct slice *s, enum like like)
{
    uint64_t state = 7;
    for (size_t i = 0; i < s->count; i++) {
        uint64_t bits = next(&state);
        double x = ((double)(next(&state) % 2000) - 999.5) * (double)(next(&state) % 1000) * 1e-7;
        if (like == NOISE) {
            memcpy(s->from + i * rig_size(s->dtype), &bits, rig_size(s->dtype));
        } else {
            rig_put(s->dtype, s->from, i, like == GRADIENTS ? x : like == ONE_VALUE ? -0.3 : i % 5 == 0 ? -0.0 : 0.0);
        }
    }
}

static struct slice make_slice(const struct rig *rig, uint32_t dtype, size_t count, enum like like)
{
    struct slice s = {.dtype = dtype, .count = count, .room = rig->ops->bound(rig->instance, dtype, count)};
    s.from = rig_odd(count * rig_size(dtype), &s.base[0]);
    s.code = rig_odd(s.room, &s.base[1]);
    s.to = rig_odd(count * rig_size(dtype), &s.base[2]);
    fill(&s, like);
    for (size_t i = 0; i < count; i++) {
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
    s->bytes = rig->ops->encode(rig->instance, s->dtype, s->from, s->count, &draw, s->code);
    ck_assert_uint_le(s->bytes, s->room);
}

static bps_status decode(const struct rig *rig, struct slice *s)
{
    return rig->ops->decode(rig->instance, s->dtype, s->code, s->bytes, s->to, s->count);
}

static bps_status decode_add(const struct rig *rig, struct slice *s)
{
    return rig->ops->decode_add(rig->instance, s->dtype, s->code, s->bytes, s->to, s->count);
}

static void the_same_bits(const struct rig *rig, struct slice *s)
{
    encode(rig, s);
    ck_assert_int_eq(decode(rig, s), BPS_OK);
    ck_assert_mem_eq(s->to, s->from, s->count * rig_size(s->dtype));
}

START_TEST(test_the_same_bits)
{
    static const int levels[] = {1, 2, 3, 12, 19};
    struct rig rig;
    for (size_t level = 0; level < 5; level++) {
        if (_i == 1 && levels[level] > 12) {
            continue;
        }
        OPEN_OR_RETURN(&rig, _i, levels[level]);
        for (size_t example = 0; example < COUNTS * 2 * LIKES; example++) {
            struct slice s = make_slice(&rig, dtypes[example % 2], counts[example / 2 / LIKES], example / 2 % LIKES);
            the_same_bits(&rig, &s);
            free_slice(&s);
        }
        rig.ops->close(rig.instance);
    }
}
END_TEST

START_TEST(test_decode_add_adds)
{
    struct rig rig;
    OPEN_OR_RETURN(&rig, _i, 1);
    for (size_t c = 0; c < 2 * COUNTS; c++) {
        struct slice s = make_slice(&rig, dtypes[c % 2], counts[c / 2], GRADIENTS);
        encode(&rig, &s);
        ck_assert_int_eq(decode_add(&rig, &s), BPS_OK);
        for (size_t i = 0; i < s.count; i++) {
            double sum = (double)i + rig_get(s.dtype, s.from, i);
            ck_assert(rig_get(s.dtype, s.to, i) == (s.dtype == BPS_FLOAT32 ? (double)(float)sum : sum));
        }
        free_slice(&s);
    }
    rig.ops->close(rig.instance);
}
END_TEST

/* The byte p, from the highest one, of an element with its sign at the lower end. */
static uint8_t byte_of(const struct slice *s, size_t i, size_t p)
{
    uint64_t wide = 0;
    uint32_t narrow = 0;
    memcpy(s->dtype == BPS_FLOAT32 ? (void *)&narrow : &wide, s->from + i * rig_size(s->dtype), rig_size(s->dtype));
    wide = s->dtype == BPS_FLOAT32 ? (narrow & 0x7fffffffu) * 2ull + (narrow >> 31)
                                   : (wide & 0x7fffffffffffffffu) * 2 + (wide >> 63);
    return (uint8_t)(wide >> 8 * (rig_size(s->dtype) - 1 - p));
}

/* Reads the chunk at `at`; how many of its planes are shorter than they were. */
static size_t read_chunk(const struct slice *s, size_t *at, size_t first, size_t n)
{
    size_t head = *at, shorter = 0;
    *at += 2 * rig_size(s->dtype);
    for (size_t p = 0; p < rig_size(s->dtype); p++) {
        size_t length = s->code[head + 2 * p] + 256u * s->code[head + 2 * p + 1];
        ck_assert(length > 0 && length <= n);
        for (size_t i = 0; i < n && length == n; i++) {
            ck_assert(s->code[*at + i] == byte_of(s, first + i, p));
        }
        shorter += length < n;
        *at += length;
    }
    return shorter;
}

/* Chunks, lengths, and planes that did not shrink; of noise all are so, and of gradients the exponents are not. */
START_TEST(test_the_format)
{
    struct rig rig;
    OPEN_OR_RETURN(&rig, _i, 1);
    for (size_t example = 0; example < COUNTS * 2 * LIKES; example++) {
        enum like like = example / 2 % LIKES;
        struct slice s = make_slice(&rig, dtypes[example % 2], counts[example / 2 / LIKES], like);
        size_t at = 0;
        encode(&rig, &s);
        for (size_t i = 0; i < s.count; i += CHUNK) {
            size_t n = s.count - i < CHUNK ? s.count - i : CHUNK, shorter = read_chunk(&s, &at, i, n);
            if (n >= 1000) {
                ck_assert(like == NOISE ? shorter == 0 : like != GRADIENTS || _i == 1 || shorter >= 1);
                ck_assert(like != ONE_VALUE || shorter == rig_size(s.dtype));
            }
        }
        ck_assert_uint_eq(at, s.bytes);
        ck_assert(like != NOISE || s.count < 1000 || s.bytes == s.room);
        free_slice(&s);
    }
    rig.ops->close(rig.instance);
}
END_TEST

START_TEST(test_bounds)
{
    struct rig rig;
    OPEN_OR_RETURN(&rig, _i, 1);
    for (size_t count = 0; count < 40000; count++) {
        size_t now = rig.ops->bound(rig.instance, BPS_FLOAT32, count);
        ck_assert_uint_gt(rig.ops->bound(rig.instance, BPS_FLOAT32, count + 1), now);
    }
    for (uint32_t dtype = 0; dtype < BPS_DTYPES; dtype++) {
        bool coded = dtype == BPS_FLOAT32 || dtype == BPS_FLOAT64;
        ck_assert_uint_eq(rig.ops->bound(rig.instance, dtype, 100) > 0, coded);
    }
    rig.ops->close(rig.instance);
}
END_TEST

static void *code_again_and_again(void *arg)
{
    const struct rig *rig = arg;
    for (size_t example = 0; example < 40; example++) {
        struct slice s = make_slice(rig, dtypes[example % 2], 20000 + example, example / 2 % LIKES);
        the_same_bits(rig, &s);
        free_slice(&s);
    }
    return NULL;
}

/* Threads share an instance; none is in another's way. */
START_TEST(test_threads)
{
    pthread_t threads[6];
    struct rig rig;
    OPEN_OR_RETURN(&rig, _i, 1);
    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, code_again_and_again, &rig), 0);
    }
    for (int i = 0; i < 6; i++) {
        pthread_join(threads[i], NULL);
    }
    rig.ops->close(rig.instance);
}
END_TEST

/* ---- foreign bytes ------------------------------------------------------------------------------------------ */

/* Decodes other bytes, in memory of just their size. */
static bps_status decode_bytes(const struct rig *rig, struct slice *s, const uint8_t *code, size_t bytes)
{
    struct slice other = *s;
    void *base;
    other.code = rig_odd(bytes, &base);
    other.bytes = bytes;
    memcpy(other.code, code, bytes);
    bps_status status = decode(rig, &other);
    ck_assert_int_eq(decode_add(rig, &other), status);
    ck_assert(status == BPS_OK ? bytes <= s->room : status == BPS_ERR_PROTOCOL);
    free(base);
    return status;
}

START_TEST(test_foreign_lengths)
{
    struct rig rig;
    OPEN_OR_RETURN(&rig, _i, 1);
    for (size_t example = 0; example < 2 * LIKES * 4; example++) {
        struct slice s = make_slice(&rig, dtypes[example % 2], 100 * (example / 2 / LIKES), example / 2 % LIKES);
        encode(&rig, &s);
        uint8_t longer[5000] = {0};
        memcpy(longer, s.code, s.bytes);
        for (size_t bytes = 0; bytes < s.bytes + 9; bytes++) {
            ck_assert_int_eq(decode_bytes(&rig, &s, longer, bytes), bytes == s.bytes ? BPS_OK : BPS_ERR_PROTOCOL);
        }
        free_slice(&s);
    }
    rig.ops->close(rig.instance);
}
END_TEST

/* Any other byte anywhere is refused, or something; a length that is none is refused. */
START_TEST(test_foreign_bytes)
{
    struct rig rig;
    OPEN_OR_RETURN(&rig, _i, 1);
    for (size_t example = 0; example < 2 * LIKES; example++) {
        struct slice s = make_slice(&rig, dtypes[example % 2], 300, example / 2);
        encode(&rig, &s);
        for (size_t at = 0; at < s.bytes; at++) {
            uint8_t right = s.code[at];
            for (unsigned byte = 0; byte < 256; byte += 5 * EVERY(5)) {
                s.code[at] = (uint8_t)byte;
                bps_status status = decode_bytes(&rig, &s, s.code, s.bytes);
                if (at < 2 * rig_size(s.dtype) && byte != right) {
                    ck_assert_int_eq(status, BPS_ERR_PROTOCOL);
                }
            }
            s.code[at] = right;
        }
        free_slice(&s);
    }
    rig.ops->close(rig.instance);
}
END_TEST

/* A frame that means nothing, or one of an old format, is not coded here; nor are two. */
START_TEST(test_other_frames)
{
    static const uint32_t magic[] = {0x184d2a50, 0xfd2fb527, 0xfd2fb526, 0xfd2fb525, 0xfd2fb522};
    struct rig rig;
    OPEN_OR_RETURN(&rig, _i, 1);
    struct slice s = make_slice(&rig, BPS_FLOAT32, 300, ONE_VALUE);
    encode(&rig, &s);
    for (size_t i = 0; i < sizeof magic / sizeof *magic; i++) {
        uint8_t other[2000], skip[8] = {0x50, 0x2a, 0x4d, 0x18};
        memcpy(other, s.code, s.bytes);
        memcpy(other + 8, &magic[i], sizeof magic[i]);
        ck_assert_int_eq(decode_bytes(&rig, &s, other, s.bytes), BPS_ERR_PROTOCOL);
        memcpy(other, s.code, s.bytes);
        memmove(other + 16, s.code + 8, s.bytes - 8);
        memcpy(other + 8, skip, sizeof skip);
        other[0] = (uint8_t)(other[0] + 8);
        ck_assert_int_eq(decode_bytes(&rig, &s, other, s.bytes + 8), BPS_ERR_PROTOCOL);
    }
    free_slice(&s);
    rig.ops->close(rig.instance);
}
END_TEST

START_TEST(test_options)
{
    static const char *const names[METHODS] = {"zstd", "lz4"};
    struct rig rig;
    char text[100];
    bps_status status = open_lossless(&rig, _i, 3);
    if (status != BPS_OK) {
        ck_assert_int_eq(status, BPS_ERR_UNSUPPORTED);
        ck_assert_ptr_nonnull(strstr(rig.report.text, names[_i]));
        return;
    }
    rig.ops->describe(rig.instance, text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, names[_i]));
    ck_assert_ptr_nonnull(strstr(text, "level 3"));
    rig.ops->close(rig.instance);
    if (_i == 1) {
        ck_assert_int_eq(open_lossless(&rig, _i, 13), BPS_ERR_CONF);
        ck_assert_ptr_nonnull(strstr(rig.report.text, "expected 1..12"));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lossless");
    TCase *tests = tcase_create("lossless");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, test_the_same_bits, 0, METHODS);
    tcase_add_loop_test(tests, test_decode_add_adds, 0, METHODS);
    tcase_add_loop_test(tests, test_the_format, 0, METHODS);
    tcase_add_loop_test(tests, test_bounds, 0, METHODS);
    tcase_add_loop_test(tests, test_threads, 0, METHODS);
#ifndef __SANITIZE_THREAD__ /* one thread: minutes, in which it has nothing to see */
    tcase_add_loop_test(tests, test_foreign_lengths, 0, METHODS);
    tcase_add_loop_test(tests, test_foreign_bytes, 0, METHODS);
#endif
    tcase_add_loop_test(tests, test_other_frames, 0, METHODS);
    tcase_add_loop_test(tests, test_options, 0, METHODS);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed > 0;
}
