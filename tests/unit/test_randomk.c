/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_randomk.c - the compressor "randomk" against the definition of what it draws, and of what the original does.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compressor_tests.h"

const struct bps_module *bps_module_compressor_randomk(void);

static const size_t counts[] = {0, 1, 2, 7, 63, 65, 150, 256, 5000, 140000};

enum { INDEPENDENT = 1, UNBIASED = 2, COMPAT = 4 };

#define WITH(k)                                                                                                        \
    {k}, {k, true}, {k, false, true}, {k, true, true}, {k, false, false, true},                                        \
    {                                                                                                                  \
        k, true, false, true                                                                                           \
    }

/* k, independent, unbiased, compat; those with other k decode as the first ones */
static const double methods[][METHOD_OPTIONS] = {WITH(0.3), WITH(10), WITH(0.01), WITH(0.999),
                                                 WITH(1),   WITH(64), WITH(1e9)};
#define DECODERS 12

static int flags_of(const double *method)
{
    return (method[1] != 0 ? INDEPENDENT : 0) | (method[2] != 0 ? UNBIASED : 0) | (method[3] != 0 ? COMPAT : 0);
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

static void slice_is_right(struct slice *s)
{
    int flags = flags_of(s->method);
    size_t kept = kept_of(s->method[0], s->count, flags & COMPAT ? rig_size(s->dtype) : 0);
    slice_draw.shared = slice_draw.shared * 0x9e3779b97f4a7c15u + s->count + 1;
    double *factor = factors(s, kept, flags & INDEPENDENT ? slice_draw.own : slice_draw.shared, flags);
    encode(s);
    ck_assert_int_eq(decode(s), BPS_OK);
    for (size_t i = 0; i < s->count; i++) {
        double want = typed(s->dtype, rig_get(s->dtype, s->from, i) * factor[i]);
        ck_assert_msg(rig_get(s->dtype, s->to, i) == want, "%zu of %zu: %a became %a", i, s->count, want,
                      rig_get(s->dtype, s->to, i));
    }
    free(factor);
}

/* ---- tests --------------------------------------------------------------------------------------------------- */

/* With a seed it is one generator, which goes on from round to round. */
START_TEST(test_the_seed_of_the_original)
{
    enum { COUNT = 50, KEPT = 3, ROUNDS = 3000 };
    uint64_t state[2] = {77, 77};
    static const double method[METHOD_OPTIONS] = {KEPT, false, false, true};
    struct slice s = make_slice(_i, method, BPS_FLOAT32, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        rig_put(s.dtype, s.from, i, 1);
    }
    for (uint64_t round = 0; round < ROUNDS; round++) {
        size_t index[KEPT], found = 0, want = 0;
        bool drawn[COUNT] = {false};
        draw_as_the_original(state, COUNT, KEPT, index);
        slice_draw = (struct bps_random){.shared = round * round, .own = round, .seed = 77, .round = round};
        encode(&s);
        ck_assert_int_eq(decode(&s), BPS_OK);
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
}
END_TEST

/* Each element is kept as often as any other, and so many at a time. */
START_TEST(test_all_alike)
{
    static const size_t shapes[][2] = {{103, 10}, {100, 10}, {64, 63}, {9, 2}, {1000, 1}};
    const uint64_t rounds = 10000;
    for (size_t i = 0; i < 5; i++) {
        size_t count = shapes[i][0], kept = shapes[i][1], *times = calloc(count, sizeof *times);
        const double method[METHOD_OPTIONS] = {(double)kept};
        struct slice s = make_slice(_i, method, BPS_FLOAT32, count);
        for (size_t j = 0; j < count; j++) {
            rig_put(s.dtype, s.from, j, 1);
        }
        for (slice_draw.shared = 0; slice_draw.shared < rounds; slice_draw.shared++) {
            size_t found = 0;
            encode(&s);
            ck_assert_int_eq(decode(&s), BPS_OK);
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
    }
}
END_TEST

/* Two codings of the same elements, as a round has them. */
START_TEST(test_unbiased)
{
    for (int independent = 0; independent < 2; independent++) {
        const double method[METHOD_OPTIONS] = {0.25, independent, true};
        double total = 0;
        const int rounds = 10000;
        struct slice s = make_slice(_i, method, BPS_FLOAT32, 20);
        for (int round = 0; round < rounds; round++) {
            for (size_t i = 0; i < s.count; i++) {
                rig_put(s.dtype, s.from, i, 1);
            }
            for (unsigned coding = 0; coding < 2; coding++) {
                slice_draw.shared = (uint64_t)round;
                slice_draw.own = (uint64_t)round * 2 + coding;
                encode(&s);
                ck_assert_int_eq(decode(&s), BPS_OK);
                memcpy(s.from, s.to, s.count * sizeof(float));
            }
            for (size_t i = 0; i < s.count; i++) {
                total += rig_get(s.dtype, s.to, i);
            }
        }
        ck_assert_double_eq_tol(total / rounds / (double)s.count, 1, 0.05);
        free_slice(&s);
    }
}
END_TEST

/* Any number is taken that says which elements are drawn. */
START_TEST(test_any_number)
{
    unsigned seed = 5;
    for (size_t example = 0; example < 2 * 100 * DECODERS; example++) {
        struct slice s = make_slice(_i, methods[example / 200], float_types[example % 2], example / 2 % 100);
        encode(&s);
        for (int again = 0; again < 20; again++) {
            for (size_t i = 0; i < (flags_of(s.method) & COMPAT ? 16 : 8); i++) {
                s.code[i] = (uint8_t)(rand_r(&seed) % 3 ? rand_r(&seed) : 0xff);
            }
            ck_assert_int_eq(decode_bytes(&s, s.code, s.bytes), BPS_OK);
        }
        free_slice(&s);
    }
}
END_TEST

START_TEST(test_a_single_nan_is_foreign)
{
    static const double method[METHOD_OPTIONS] = {3};
    struct slice s = make_slice(_i, method, BPS_FLOAT32, 14);
    encode(&s);
    rig_put(s.dtype, s.code + 8, 1, NAN);
    ck_assert_int_eq(decode(&s), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(decode_add(&s), BPS_ERR_PROTOCOL);
    free_slice(&s);
}
END_TEST

/* ---- what it promises ---------------------------------------------------------------------------------------- */

static void described(const double *method, const char *text)
{
    if (method[0] == 0.01 && flags_of(method) == (INDEPENDENT | UNBIASED)) {
        ck_assert_str_eq(text, "1 % of the elements, drawn by each, unbiased");
    }
}

static void fill(struct slice *s, unsigned which, unsigned *seed)
{
    (void)which;
    for (size_t i = 0; i < s->count; i++) {
        rig_put(s->dtype, s->from, i, rand_r(seed) / (double)RAND_MAX - 0.5);
    }
}

/* The number, and the elements it stands for. */
static const double three[METHOD_OPTIONS] = {3}, elements[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
static const struct known_code known[] = {
    {three, BPS_FLOAT32, 10, 20, elements, {8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0x40, 0, 0, 0x80, 0x40, 0, 0, 0xe0, 0x40}},
};
static const struct refused_options refused[] = {{{-1}, "k = -1"}, {{1, false, true, true}, "unbiased"}};

static void special(TCase *tests, int variant)
{
    tcase_add_loop_test(tests, test_the_seed_of_the_original, variant, variant + 1);
    tcase_add_loop_test(tests, test_all_alike, variant, variant + 1);
    tcase_add_loop_test(tests, test_unbiased, variant, variant + 1);
    tcase_add_loop_test(tests, test_any_number, variant, variant + 1);
    tcase_add_loop_test(tests, test_a_single_nan_is_foreign, variant, variant + 1);
}

int main(void)
{
    return run_compressor_tests(&(const struct promise){
        .name = "randomk",
        .module = bps_module_compressor_randomk,
        ALL(methods),
        ALL(counts),
        .draw = {.shared = 0x0102030405060708, .own = 2},
        .options = {"k", "independent", "unbiased", "compat"},
        .n_variants = 1,
        .n_needed = 1,
        .decoders = DECODERS,
        .exact = true,
        .described = described,
        .is_right = slice_is_right,
        .fill = fill,
        .n_fills = 1,
        .spoiled = nan_of,
        ALL(refused),
        ALL(known),
        .special = special,
    });
}
