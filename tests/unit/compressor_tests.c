/* SPDX-License-Identifier: Apache-2.0 */
/* compressor_tests.c - the tests of what every compressor promises. */
#include "compressor_tests.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "watched.h"

#define FILLS (promised->fill != NULL ? promised->n_fills : 4)

static void fill(struct slice *s, unsigned which, unsigned *seed)
{
    (promised->fill != NULL ? promised->fill : any_bits)(s, which, seed);
}

/* How many; each combination of method, type and count is one. */
static size_t examples(void)
{
    return promised->n_methods * 2 * promised->n_counts;
}

static struct slice example_slice(int variant, size_t example)
{
    size_t m = example / 2 % promised->n_methods, c = example / 2 / promised->n_methods;
    return make_slice(variant, promised->methods[m], float_types[example % 2], promised->counts[c]);
}

/* What its elements are like; all kinds with each method, for one count or the other. */
static unsigned kind_of(size_t example)
{
    return (unsigned)((example / 2 + example / 2 / promised->n_methods) % FILLS);
}

static void equal_elements(const struct slice *a, const uint8_t *b)
{
    for (size_t i = 0; i < a->count; i++) {
        double x = rig_get(a->dtype, a->to, i), y = rig_get(a->dtype, b, i);
        ck_assert_msg(same(x, y), "%zu of %zu: %a and %a", i, a->count, x, y);
    }
}

/* ---- elements ------------------------------------------------------------------------------------------------ */

START_TEST(test_any_elements)
{
    unsigned seed = 1;
    for (size_t example = 0; example < examples(); example++) {
        struct slice s = example_slice(_i, example);
        promised->is_right(&s);
        for (unsigned which = 0; which < FILLS; which++) {
            fill(&s, which, &seed);
            promised->is_right(&s);
        }
        free_slice(&s);
    }
}
END_TEST

START_TEST(test_decode_add_adds)
{
    unsigned seed = 2;
    for (size_t example = 0; example < examples(); example++) {
        struct slice s = example_slice(_i, example), sum = example_slice(_i, example);
        fill(&s, kind_of(example), &seed);
        encode(&s);
        memcpy(sum.code, s.code, s.bytes);
        sum.bytes = s.bytes;
        ck_assert_int_eq(decode(&s), BPS_OK);
        ck_assert_int_eq(decode_add(&sum), BPS_OK);
        for (size_t i = 0; i < s.count; i++) {
            double want = typed(s.dtype, ((double)i - 100) + rig_get(s.dtype, s.to, i));
            ck_assert(same(rig_get(s.dtype, sum.to, i), want));
        }
        free_slice(&s);
        free_slice(&sum);
    }
}
END_TEST

/* All instruction sets write the same bytes, and make the same elements of them. */
START_TEST(test_the_same_as_the_baseline)
{
    unsigned seed = 3;
    for (size_t example = 0; example < examples(); example++) {
        struct slice s = example_slice(_i, example), baseline = example_slice(1, example);
        fill(&s, kind_of(example), &seed);
        memcpy(baseline.from, s.from, s.count * rig_size(s.dtype));
        encode(&s);
        encode(&baseline);
        ck_assert_uint_eq(s.bytes, baseline.bytes);
        ck_assert_mem_eq(s.code, baseline.code, s.bytes);
        ck_assert_int_eq(decode_add(&s), BPS_OK);
        ck_assert_int_eq(decode_add(&baseline), BPS_OK);
        equal_elements(&s, baseline.to);
        free_slice(&s);
        free_slice(&baseline);
    }
}
END_TEST

static void one_is_broken(struct slice *s, size_t place, double broken)
{
    size_t spoils = promised->spoils != NULL ? promised->spoils(s->method) : s->count;
    calm(s);
    rig_put(s->dtype, s->from, place, broken);
    encode(s);
    for (size_t i = 0; i < s->count; i++) {
        rig_put(s->dtype, s->to, i, i == 7 ? -INFINITY : (double)i);
    }
    ck_assert_int_eq(decode_add(s), BPS_OK);
    for (size_t i = 0; i < s->count; i++) {
        bool finite = isfinite(rig_get(s->dtype, s->to, i));
        ck_assert(finite == (i != 7 && i / spoils != place / spoils));
    }
    ck_assert_int_eq(decode(s), BPS_OK);
    for (size_t i = 0; i < s->count; i++) {
        double y = rig_get(s->dtype, s->to, i);
        if (i / spoils != place / spoils) {
            ck_assert(isfinite(y));
        } else {
            ck_assert(promised->spoiled != NULL ? same(y, promised->spoiled(broken)) : !isfinite(y));
        }
    }
}

/* A gradient that is broken stays so, and what is far enough away is not. */
START_TEST(test_nan_and_infinity_are_not_hidden)
{
    static const double broken[] = {NAN, INFINITY, -INFINITY, -NAN};
    for (size_t example = 0; example < promised->n_methods * 2; example++) {
        const double *method = promised->methods[example / 2];
        size_t spoils = promised->spoils != NULL ? promised->spoils(method) : 1;
        struct slice s = make_slice(_i, method, float_types[example % 2], spoils == 1 ? 45 : 3 * spoils - 5);
        for (size_t place = 0; place < s.count; place += EVERY(3) * (1 + s.count / 46)) {
            for (size_t i = 0; i < 4; i++) {
                one_is_broken(&s, place, broken[i]);
            }
        }
        free_slice(&s);
    }
}
END_TEST

/* ---- surroundings -------------------------------------------------------------------------------------------- */

/* How many elements fit into a slice of the network is looked for by bisection. */
START_TEST(test_bounds)
{
    for (size_t example = 0; example < promised->n_methods * 2; example++) {
        const double *method = promised->methods[example / 2];
        uint32_t dtype = float_types[example % 2];
        struct rig rig;
        size_t before = 0;
        ck_assert_int_eq(open_variant(&rig, _i, method), BPS_OK);
        for (size_t count = 0; count < (size_t)1 << 33; count += count < 40000 ? EVERY(7) : count / 1000) {
            size_t now = rig.ops->bound(rig.instance, dtype, count);
            ck_assert_msg(now >= before && (now > 0 || count == 0), "%zu bytes for %zu", now, count);
            ck_assert(promised->bound == NULL || now == promised->bound(method, dtype, count));
            before = now;
        }
        for (uint32_t other = 0; other < BPS_DTYPES; other++) {
            bool coded = other == BPS_FLOAT32 || other == BPS_FLOAT64;
            ck_assert_uint_eq(rig.ops->bound(rig.instance, other, 100) > 0, coded);
        }
        rig.ops->close(rig.instance);
    }
}
END_TEST

/* Nothing is read or written before its memory or behind it, nor of what is coded more than it has. */
START_TEST(test_beside_a_guard_page)
{
    uint8_t *fences[3] = {make_fence(), make_fence(), make_fence()};
    for (size_t example = 0; example < examples(); example++) {
        struct slice s = example_slice(_i, example), fenced = s;
        size_t bytes = s.count * rig_size(s.dtype);
        encode(&s);
        ck_assert_int_eq(decode(&s), BPS_OK);
        for (int at_the_end = 0; at_the_end < 2; at_the_end++) {
            fenced.from = memcpy(fenced_place(fences[0], bytes, at_the_end), s.from, bytes);
            fenced.code = fenced_place(fences[1], s.room, at_the_end);
            fenced.to = memset(fenced_place(fences[2], bytes, at_the_end), 0, bytes);
            encode(&fenced);
            ck_assert_mem_eq(fenced.code, s.code, s.bytes);
            fenced.code = memmove(fenced_place(fences[1], s.bytes, at_the_end), fenced.code, s.bytes);
            ck_assert_int_eq(decode_add(&fenced), BPS_OK);
            ck_assert_int_eq(decode(&fenced), BPS_OK);
            equal_elements(&s, fenced.to);
        }
        free_slice(&s);
    }
}
END_TEST

#ifdef __SSE2__
/* Subnormal numbers, whose sums are, too. */
static void tiny(struct slice *s, uint8_t *elements)
{
    for (size_t i = 0; i < s->count; i++) {
        rig_put(s->dtype, elements, i, ldexp((double)(i % 7) - 3, s->dtype == BPS_FLOAT32 ? -133 : -1030));
    }
}

/* Codes, decodes and adds with this control word, which must be left alone; `other` receives the decoded elements. */
static void code_under(unsigned control, struct slice *s, uint8_t *other)
{
    struct slice once = *s;
    once.to = other;
    unsigned before = _mm_getcsr();
    _mm_setcsr(control);
    s->bytes = once.bytes = s->rig.ops->encode(s->rig.instance, s->dtype, s->from, s->count, &slice_draw, s->code);
    unsigned encoded = _mm_getcsr();
    bps_status status = decode(&once);
    unsigned decoded = _mm_getcsr();
    bps_status added = decode_add(s);
    unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    ck_assert(status == BPS_OK && added == BPS_OK);
    ck_assert_uint_eq(encoded & 0xffc0, control & 0xffc0);
    ck_assert_uint_eq(decoded & 0xffc0, control & 0xffc0);
    ck_assert_uint_eq(after & 0xffc0, control & 0xffc0);
}

static void settings_make_no_difference(int variant, const double *method, uint32_t dtype, unsigned which)
{
    unsigned seed = which;
    struct slice want = make_slice(variant, method, dtype, 400), s = make_slice(variant, method, dtype, 400);
    struct slice once = make_slice(variant, method, dtype, 400), want_once = make_slice(variant, method, dtype, 400);
    if (which == 0) {
        tiny(&s, s.from);
        tiny(&s, s.to);
        tiny(&want, want.to);
    } else {
        fill(&s, which % FILLS, &seed);
    }
    memcpy(want.from, s.from, s.count * rig_size(dtype));
    code_under(0x1f80, &want, want_once.to);
    code_under(which % 2 ? 0x9fc0 : 0xffc0, &s, once.to); /* subnormals flushed, and also towards zero */
    ck_assert_uint_eq(s.bytes, want.bytes);
    ck_assert_mem_eq(s.code, want.code, s.bytes);
    equal_elements(&once, want_once.to);
    equal_elements(&s, want.to);
    if (which == 0) {
        promised->is_right(&s);
    }
    free_slice(&want);
    free_slice(&s);
    free_slice(&once);
    free_slice(&want_once);
}

/* The floating point settings of the calling thread make no difference, and stay. */
START_TEST(test_settings_of_the_thread)
{
    for (size_t example = 0; example < promised->n_methods * 2 * 3; example++) {
        const double *method = promised->methods[example / 6];
        settings_make_no_difference(_i, method, float_types[example % 2], (unsigned)(example / 2 % 3));
    }
}
END_TEST
#endif

static void *code_again_and_again(void *arg)
{
    const struct slice *want = arg;
    struct slice s = *want;
    s.code = rig_odd(s.room, &s.base[0]);
    s.to = rig_odd(s.count * rig_size(s.dtype), &s.base[1]);
    for (int round = 0; round < 3; round++) {
        encode(&s);
        ck_assert_uint_eq(s.bytes, want->bytes);
        ck_assert_mem_eq(s.code, want->code, s.bytes);
        ck_assert_int_eq(decode(&s), BPS_OK);
        equal_elements(&s, want->to);
    }
    free(s.base[0]);
    free(s.base[1]);
    return NULL;
}

/* Threads share an instance; none is in another's way. */
START_TEST(test_threads)
{
    for (size_t example = 0; example < promised->n_methods * 2; example++) {
        pthread_t threads[4];
        struct slice s = make_slice(_i, promised->methods[example / 2], float_types[example % 2], 20000 + example);
        encode(&s);
        ck_assert_int_eq(decode(&s), BPS_OK);
        for (int i = 0; i < 4; i++) {
            ck_assert_int_eq(pthread_create(&threads[i], NULL, code_again_and_again, &s), 0);
        }
        for (int i = 0; i < 4; i++) {
            pthread_join(threads[i], NULL);
        }
        free_slice(&s);
    }
}
END_TEST

/* ---- bytes --------------------------------------------------------------------------------------------------- */

/* The bytes on the wire, which other builds and machines have to understand. */
START_TEST(test_the_format)
{
    for (size_t i = 0; i < promised->n_known; i++) {
        const struct known_code *known = &promised->known[i];
        struct slice s = make_slice(_i, known->method, known->dtype, known->count);
        put_all(&s, known->elements);
        encode(&s);
        ck_assert_uint_eq(s.bytes, known->bytes);
        ck_assert_mem_eq(s.code, known->code, s.bytes);
        free_slice(&s);
    }
}
END_TEST

static size_t decoders(void)
{
    return promised->decoders > 0 ? promised->decoders : promised->n_methods;
}

/* Any length but the right one is refused, before anything is read. */
START_TEST(test_foreign_lengths)
{
    unsigned seed = 4;
    size_t step = promised->length_step > 0 ? promised->length_step : 1;
    size_t lengths = promised->length_step > 0 ? promised->n_lengths : 100;
    for (size_t example = 0; example < decoders() * 2 * lengths; example++) {
        const double *method = promised->methods[example / 2 % decoders()];
        struct slice s = make_slice(_i, method, float_types[example % 2], step * (example / 2 / decoders()));
        uint8_t *longer = calloc(1, s.room + 9);
        fill(&s, (unsigned)(example / 3 % FILLS), &seed);
        encode(&s);
        memcpy(longer, s.code, s.bytes);
        for (size_t bytes = 0; bytes < s.bytes + 9; bytes++) {
            ck_assert_int_eq(decode_bytes(&s, longer, bytes), bytes == s.bytes ? BPS_OK : BPS_ERR_PROTOCOL);
        }
        free(longer);
        free_slice(&s);
    }
}
END_TEST

/* Any other byte anywhere is refused, or something within the bound. */
START_TEST(test_foreign_bytes)
{
    unsigned seed = 5;
    size_t kinds = decoders() > FILLS ? decoders() : FILLS;
    for (size_t example = 0; example < 2 * kinds; example++) {
        const double *method = promised->methods[example / 2 % decoders()];
        struct slice s = make_slice(_i, method, float_types[example % 2], 200);
        fill(&s, (unsigned)(example / 2 % FILLS), &seed);
        encode(&s);
        for (size_t at = 0; at < s.bytes; at++) {
            uint8_t right = s.code[at];
            for (unsigned byte = 0; byte < 256; byte += at < 16 ? 1 : 7 * EVERY(5)) {
                s.code[at] = (uint8_t)byte;
                decode_bytes(&s, s.code, s.bytes);
            }
            s.code[at] = right;
        }
        free_slice(&s);
    }
}
END_TEST

/* ---- options ------------------------------------------------------------------------------------------------- */

START_TEST(test_options)
{
    struct rig rig;
    char text[100];
    for (size_t i = 0; i < promised->n_methods; i++) {
        if (open_variant(&rig, _i, promised->methods[i]) != BPS_OK) {
            ck_assert_int_ge(_i, promised->n_needed);
            ck_assert_ptr_nonnull(strstr(rig.report.text, promised->variants[_i]));
            return;
        }
        rig.ops->describe(rig.instance, text, sizeof text);
        ck_assert(promised->variant == NULL || strstr(text, promised->variants[_i]) != NULL);
        promised->described(promised->methods[i], text);
        rig.ops->close(rig.instance);
    }
    for (size_t i = 0; i < promised->n_refused; i++) {
        ck_assert_int_eq(open_variant(&rig, _i, promised->refused[i].method), BPS_ERR_CONF);
        ck_assert_ptr_nonnull(strstr(rig.report.text, promised->refused[i].text));
    }
}
END_TEST

static bool is_there(int variant)
{
    struct rig rig;
    bool there = open_variant(&rig, variant, promised->methods[0]) == BPS_OK;
    if (there) {
        rig.ops->close(rig.instance);
    }
    return there;
}

static void add_tests(TCase *tests, int variant)
{
    int end = variant + 1;
    tcase_add_loop_test(tests, test_any_elements, variant, end);
    tcase_add_loop_test(tests, test_decode_add_adds, variant, end);
    if (promised->n_needed > 1) {
        tcase_add_loop_test(tests, test_the_same_as_the_baseline, variant, end);
    }
    tcase_add_loop_test(tests, test_nan_and_infinity_are_not_hidden, variant, end);
    tcase_add_loop_test(tests, test_bounds, variant, end);
    tcase_add_loop_test(tests, test_beside_a_guard_page, variant, end);
#ifdef __SSE2__
    tcase_add_loop_test(tests, test_settings_of_the_thread, variant, end);
#endif
    tcase_add_loop_test(tests, test_threads, variant, end);
    if (promised->n_known > 0) {
        tcase_add_loop_test(tests, test_the_format, variant, end);
    }
#ifndef __SANITIZE_THREAD__ /* one thread: minutes, in which it has nothing to see */
    tcase_add_loop_test(tests, test_foreign_lengths, variant, end);
    tcase_add_loop_test(tests, test_foreign_bytes, variant, end);
#endif
    promised->special(tests, variant);
}

int run_compressor_tests(const struct promise *promise)
{
    promised = promise;
    slice_draw = promise->draw;
    Suite *suite = suite_create(promise->name);
    TCase *tests = tcase_create(promise->name);
    tcase_set_timeout(tests, 120);
    for (int variant = 0; variant < promise->n_variants; variant++) {
        if (is_there(variant)) {
            add_tests(tests, variant);
        }
        tcase_add_loop_test(tests, test_options, variant, variant + 1);
    }
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed > 0;
}
