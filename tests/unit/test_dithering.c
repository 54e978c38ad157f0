/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_dithering.c - the compressor "dithering" against its definition, byte by byte, and against bytes that nobody has
 * coded.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compressor_tests.h"

const struct bps_module *bps_module_compressor_dithering(void);

static const size_t counts[] = {0, 1, 2, 3, 7, 31, 63, 64, 65, 127, 500, 4097, 16383, 16384, 16385, 40001};
#define BLOCK 16384u

enum { LEVELS, NATURAL, L2, COMPAT };

static const double methods[][METHOD_OPTIONS] = {
    {127},
    {1},
    {1, false, true},
    {3},
    {32767, false, true},
    {9000},
    {500, false, true},
    {1, true},
    {8, true},
    {30, true, true},
    {4, false, false, true},
    {127, false, true, true},
    {5, true, false, true},
    {30, true, true, true},
};

/* ---- chance, by its definition --------------------------------------------------------------------------- */

/* The number of an element, as a share of 1. */
static double chance(uint32_t dtype, size_t i)
{
    size_t in_unit = i % 64;
    uint32_t number = philox(slice_draw.own, i / 64 * 16 + in_unit % 32 / 2, in_unit / 32 * 2 + in_unit % 2);
    return dtype == BPS_FLOAT32 ? (number >> 8) / 0x1p24 : (number >> 1) / 0x1p31;
}

/* The first numbers of Philox4x32-10 that its authors give. */
START_TEST(test_the_generator)
{
    static const uint32_t zeros[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    for (size_t i = 0; i < 4; i++) {
        ck_assert_uint_eq(philox(0, 0, i), zeros[i]);
    }
}
END_TEST

static uint64_t xorshift(uint64_t state[2])
{
    uint64_t t = state[0], s = state[1];
    state[0] = s;
    t ^= t << 23;
    t ^= t >> 17;
    t ^= s ^ (s >> 26);
    state[1] = t;
    return t + s;
}

/* ---- a slice, as dithering.c says what it becomes --------------------------------------------------------- */

struct picture {
    const struct slice *s;
    double scale, fine; /* the fine one is not rounded to the type */
    int32_t *level;     /* of each element, with its sign; numbers of levels, not their size */
    uint8_t *code;
    size_t bytes, bits;
};

static struct picture make_picture(const struct slice *s)
{
    struct picture p = {.s = s};
    p.level = calloc(s->count + 1, sizeof *p.level);
    p.code = calloc(1, 8 + 10 * s->count + 100);
    return p;
}

static void free_picture(struct picture *p)
{
    free(p->level);
    free(p->code);
}

static double top_of(const struct slice *s)
{
    return s->method[NATURAL] != 0 ? ldexp(1, (int)s->method[LEVELS] - 1) : s->method[LEVELS];
}

static void find_scale(struct picture *p)
{
    const struct slice *s = p->s;
    long double largest = 0, squares = 0;
    for (size_t i = 0; i < s->count; i++) {
        long double x = fabs(rig_get(s->dtype, s->from, i));
        largest = x > largest ? x : largest;
        squares += x * x;
    }
    p->fine = (double)(s->method[L2] != 0 ? sqrtl(squares) : largest);
    p->scale = typed(s->dtype, p->fine);
}

/* What v, from 0 to the size of the highest level, becomes if p of the way to the level above is enough. */
static int round_up(double v, bool natural, double *share)
{
    int below = natural ? (v < 1 ? 0 : 1 + ilogb(v)) : (int)floor(v);
    double low = !natural ? below : below == 0 ? 0 : ldexp(1, below - 1), high = low + (natural && low > 0 ? low : 1);
    *share = (v - low) / (high - low);
    return below;
}

/* The original takes 1 as what is half a level below 2, and so on: the level below, and then surely one up. */
static int round_original(double v, bool natural, double *share)
{
    int below = round_up(v, natural, share);
    if (natural && below > 0 && *share == 0) {
        below--;
        *share = 1;
    }
    return below;
}

static void find_levels(struct picture *p)
{
    const struct slice *s = p->s;
    bool natural = s->method[NATURAL] != 0;
    static uint64_t state[2]; /* with a seed it goes on from round to round */
    if (slice_draw.seed == 0 || slice_draw.round == 0) {
        state[0] = state[1] = slice_draw.seed > 0 ? slice_draw.seed : slice_draw.shared;
    }
    double top = top_of(s), share;
    for (size_t i = 0; i < s->count && p->scale > 0; i++) {
        double x = rig_get(s->dtype, s->from, i), v;
        int level;
        if (s->method[COMPAT] != 0) {
            v = (float)(fabs(x) / p->fine * top);
            level = round_original(v, natural, &share);
            level += (double)xorshift(state) < share * 18446744073709551615.0;
        } else {
            v = s->dtype == BPS_FLOAT32 ? (float)((float)((float)fabs(x) / (float)p->scale) * (float)top)
                                        : fabs(x) / p->scale * top;
            level = round_up(v, natural, &share);
            level += chance(s->dtype, i) < share;
        }
        p->level[i] = x < 0 ? -level : level;
    }
}

static double value(const struct picture *p, int level)
{
    const struct slice *s = p->s;
    bool compat = s->method[COMPAT] != 0;
    double top = top_of(s), size = s->method[NATURAL] == 0 ? abs(level) : level == 0 ? 0 : ldexp(1, abs(level) - 1), x;
    if (s->dtype == BPS_FLOAT32) {
        float scale = (float)p->scale;
        x = compat ? (float)((float)((float)size * scale) / (float)top) : (float)((float)(size / top) * scale);
    } else {
        x = compat ? size * p->scale / top : size / top * p->scale;
    }
    return level < 0 ? -x : x;
}

/* ---- the format, bit by bit ------------------------------------------------------------------------------- */

static void put_bits(struct picture *p, uint64_t bits, int n)
{
    for (int i = 0; i < n; i++, p->bits++) {
        p->code[p->bits / 8] |= (uint8_t)((bits >> i & 1) << p->bits % 8);
    }
}

static int length_of(uint64_t x)
{
    int n = 0;
    for (; x > 0; x >>= 1) {
        n++;
    }
    return n;
}

static void put_delta(struct picture *p, uint64_t x)
{
    int n = length_of(x), m = length_of((uint64_t)n) - 1;
    put_bits(p, 0, m);
    put_bits(p, 1, 1);
    put_bits(p, (uint64_t)n, m);
    put_bits(p, x, n - 1);
}

static void put_elias(struct picture *p, size_t from, size_t to)
{
    size_t last = from - 1;
    for (size_t i = from; i < to; i++) {
        if (p->level[i] != 0) {
            put_delta(p, i - last);
            put_bits(p, p->level[i] < 0, 1);
            put_delta(p, (uint64_t)abs(p->level[i]));
            last = i;
        }
    }
    put_delta(p, to - last);
}

static void put_fixed(struct picture *p, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        put_bits(p, (uint64_t)(2 * abs(p->level[i]) + (p->level[i] < 0)),
                 1 + length_of((uint64_t)p->s->method[LEVELS]));
    }
}

static void put_block(struct picture *p, size_t from, size_t to)
{
    size_t at = p->bits / 8, fixed = ((to - from) * (size_t)(1 + length_of((uint64_t)p->s->method[LEVELS])) + 7) / 8;
    put_bits(p, 0, 8);
    put_elias(p, from, to);
    p->bits = (p->bits + 7) / 8 * 8;
    if (p->bits / 8 - at - 1 + 8 > fixed) {
        memset(p->code + at, 0, p->bits / 8 - at);
        p->bits = 8 * at;
        put_bits(p, 1, 8);
        put_fixed(p, from, to);
        p->bits = (p->bits + 7) / 8 * 8;
    }
}

static void find_bytes(struct picture *p)
{
    uint64_t wide;
    uint32_t narrow;
    float scale = (float)p->scale;
    memcpy(&wide, &p->scale, sizeof wide);
    memcpy(&narrow, &scale, sizeof narrow);
    put_bits(p, p->s->dtype == BPS_FLOAT32 ? narrow : wide, 8 * (int)rig_size(p->s->dtype));
    for (size_t i = 0; i < p->s->count && p->scale > 0; i += BLOCK) {
        put_block(p, i, i + BLOCK < p->s->count ? i + BLOCK : p->s->count);
    }
    p->bytes = p->bits / 8;
}

/* ---- tests ------------------------------------------------------------------------------------------------- */

/* Returns what must become of the elements. */
static struct picture picture_of(const struct slice *s)
{
    struct picture p = make_picture(s);
    find_scale(&p);
    if (s->method[L2] != 0) { /* sums are rounded another way here */
        double scale = rig_get(s->dtype, s->code, 0);
        ck_assert(fabs(scale - p.scale) <= p.scale * (s->dtype == BPS_FLOAT32 ? 1e-7 : 1e-14));
        p.scale = scale;
    }
    find_levels(&p);
    find_bytes(&p);
    return p;
}

static void slice_is_right(struct slice *s)
{
    encode(s);
    struct picture p = picture_of(s);
    ck_assert_uint_eq(s->bytes, p.bytes);
    ck_assert_mem_eq(s->code, p.code, s->bytes);
    ck_assert_int_eq(decode(s), BPS_OK);
    for (size_t i = 0; i < s->count; i++) {
        ck_assert(rig_get(s->dtype, s->to, i) == value(&p, p.level[i]));
    }
    free_picture(&p);
}

START_TEST(test_the_seed_of_the_original)
{
    for (size_t example = 0; example < 2 * SIZE_OF(methods); example++) {
        const double *m = methods[example / 2];
        if (m[COMPAT] != 0) {
            slice_draw.seed = 1 + example;
            for (slice_draw.round = 0; slice_draw.round < 40; slice_draw.round++) {
                struct slice s = make_slice(_i, m, float_types[example % 2], 333);
                slice_is_right(&s);
                free_slice(&s);
            }
            slice_draw.seed = slice_draw.round = 0;
        }
    }
}
END_TEST

/* Few of many elements, and all alike; also magnitudes at the ends of the types. */
START_TEST(test_sparse_and_extreme_elements)
{
    static const double sizes[2][3] = {{1e-45, 1, 3e38}, {5e-324, 1e-200, 1e308}};
    for (size_t example = 0; example < SIZE_OF(methods) * 2 * 3 * 2; example++) {
        const double *m = methods[example / 12];
        size_t type = example % 2, step = example / 6 % 2 ? 1 : 777;
        if (m[COMPAT] != 0 || m[L2] != 0) {
            continue;
        }
        struct slice s = make_slice(_i, m, float_types[type], 20000);
        for (size_t i = 0; i < s.count; i++) {
            rig_put(s.dtype, s.from, i, i % step == 0 ? sizes[type][example / 2 % 3] * (i % 2 == 0 ? 1 : -1) : 0);
        }
        slice_is_right(&s);
        ck_assert_mem_eq(s.to, s.from, s.count * rig_size(s.dtype));
        free_slice(&s);
    }
}
END_TEST

/* A length may be more than any number of the type, or than its squares. */
START_TEST(test_extreme_lengths)
{
    static const double sizes[2][4] = {{1e-45, 1e-30, 1e25, 3e38}, {5e-324, 1e-200, 1e200, 1e308}};
    static const double method[METHOD_OPTIONS] = {127, false, true};
    for (size_t example = 0; example < 8; example++) {
        struct slice s = make_slice(_i, method, float_types[example % 2], 100);
        double size = sizes[example % 2][example / 2], want, most = example % 2 ? DBL_MAX : FLT_MAX;
        for (size_t i = 0; i < s.count; i++) {
            rig_put(s.dtype, s.from, i, size);
        }
        encode(&s);
        double scale = rig_get(s.dtype, s.code, 0);
        want = fmin(10 * rig_get(s.dtype, s.from, 0), most);
        ck_assert(fabs(scale - want) <= 1e-6 * want);
        ck_assert_int_eq(decode(&s), BPS_OK);
        for (size_t i = 0; i < s.count; i++) {
            ck_assert(isfinite(rig_get(s.dtype, s.to, i)));
        }
        free_slice(&s);
    }
}
END_TEST

/* The mean of many roundings with other numbers is the element. */
START_TEST(test_the_mean)
{
    enum { ROUNDS = 4000, COUNT = 70 };
    for (size_t example = 0; example < 2 * SIZE_OF(methods); example++) {
        const double *m = methods[example / 2];
        double sum[COUNT] = {0};
        struct slice s = make_slice(_i, m, float_types[example % 2], COUNT);
        for (uint64_t round = 1; round <= ROUNDS; round++) {
            const struct bps_random other = {.shared = round * 0x9e3779b97f4a7c15u, .own = round};
            slice_draw = other;
            encode(&s);
            ck_assert_int_eq(decode(&s), BPS_OK);
            for (size_t i = 0; i < COUNT; i++) {
                sum[i] += rig_get(s.dtype, s.to, i);
            }
        }
        struct picture p = make_picture(&s);
        find_scale(&p);
        double distance = p.scale * (m[NATURAL] != 0 && m[LEVELS] > 1 ? 0.5 : 1.0 / m[LEVELS]),
               tolerance = distance * 5 * 0.5 / sqrt(ROUNDS);
        for (size_t i = 0; i < COUNT; i++) {
            ck_assert(fabs(sum[i] / ROUNDS - rig_get(s.dtype, s.from, i)) <= tolerance + 1e-6 * p.scale);
        }
        free_picture(&p);
        free_slice(&s);
    }
}
END_TEST

START_TEST(test_zeros_stay_zeros)
{
    for (size_t example = 0; example < SIZE_OF(methods) * 2; example++) {
        struct slice s = make_slice(_i, methods[example / 2], float_types[example % 2], 100);
        for (size_t i = 0; i < s.count; i++) {
            rig_put(s.dtype, s.from, i, i % 2 == 0 ? 0.0 : -0.0);
        }
        encode(&s);
        ck_assert_uint_eq(s.bytes, rig_size(s.dtype));
        ck_assert_int_eq(decode_add(&s), BPS_OK);
        ck_assert(rig_get(s.dtype, s.to, 99) == -1);
        ck_assert_int_eq(decode(&s), BPS_OK);
        for (size_t i = 0; i < s.count; i++) {
            ck_assert(rig_get(s.dtype, s.to, i) == 0);
        }
        free_slice(&s);
    }
}
END_TEST

/* ---- foreign bytes ------------------------------------------------------------------------------------------ */

/* A slice of float32 with the scale 1, and these bits in its only block of this form. */
static bps_status refused_bits(const struct slice *s, int form, const uint64_t *delta, size_t n, int more)
{
    struct picture p = make_picture(s);
    put_bits(&p, 0x3f800000, 32);
    put_bits(&p, (uint64_t)form, 8);
    for (size_t i = 0; i < n; i++) {
        if (form == 0 && i % 3 != 1) {
            put_delta(&p, delta[i]);
        } else {
            put_bits(&p, delta[i], form == 0 ? 1 : 3);
        }
    }
    put_bits(&p, 1, more);
    bps_status status = decode_bytes(s, p.code, (p.bits + 7) / 8);
    free_picture(&p);
    return status;
}

static bps_status try_bits(int variant, const double *method, size_t count, int form, int more, const uint64_t *delta,
                           size_t n)
{
    struct slice s = make_slice(variant, method, BPS_FLOAT32, count);
    bps_status status = refused_bits(&s, form, delta, n, more);
    free_slice(&s);
    return status;
}

#define TRY(method, count, form, more, ...)                                                                            \
    try_bits(_i, method, count, form, more, (const uint64_t[]){__VA_ARGS__}, SIZE_OF(((const uint64_t[]){__VA_ARGS__})))

START_TEST(test_what_is_refused)
{
    static const double two[METHOD_OPTIONS] = {2}, three[METHOD_OPTIONS] = {3};
    ck_assert_int_eq(TRY(three, 100, 0, 0, 5, 1, 3, 96), BPS_OK);
    ck_assert_int_eq(TRY(three, 100, 0, 0, 5, 1, 3, 95), BPS_ERR_PROTOCOL);        /* ends too early */
    ck_assert_int_eq(TRY(three, 100, 0, 0, 5, 1, 3, 97), BPS_ERR_PROTOCOL);        /* leads beyond the end */
    ck_assert_int_eq(TRY(three, 100, 0, 0, 102, 1, 3, 1), BPS_ERR_PROTOCOL);       /* an element there */
    ck_assert_int_eq(TRY(three, 100, 0, 0, 5, 1, 4, 96), BPS_ERR_PROTOCOL);        /* there are 3 levels */
    ck_assert_int_eq(TRY(three, 100, 0, 0, 5, 1, 1u << 20, 96), BPS_ERR_PROTOCOL); /* so large a number is none */
    ck_assert_int_eq(TRY(three, 100, 0, 1, 5, 1, 3, 96), BPS_ERR_PROTOCOL);        /* a bit behind the end */
    ck_assert_int_eq(TRY(three, 100, 0, 9, 5, 1, 3, 96), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(TRY(three, 100, 2, 0, 5, 1, 3, 96), BPS_ERR_PROTOCOL); /* there is no such form */
    ck_assert_int_eq(TRY(three, 20, 0, 0, 5, 1, 3, 16), BPS_ERR_PROTOCOL);  /* the fixed form takes hardly more */
    ck_assert_int_eq(TRY(three, 5, 1, 0, 2, 3, 0, 7, 6), BPS_OK);
    ck_assert_int_eq(TRY(three, 5, 1, 0, 2, 3, 1, 7, 6), BPS_ERR_PROTOCOL); /* zero has no sign */
    ck_assert_int_eq(TRY(three, 5, 1, 1, 2, 3, 0, 7, 6), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(TRY(two, 5, 1, 0, 2, 3, 0, 5, 4), BPS_OK);
    ck_assert_int_eq(TRY(two, 5, 1, 0, 2, 3, 0, 6, 4), BPS_ERR_PROTOCOL); /* there are 2 levels */
}
END_TEST

START_TEST(test_foreign_scales)
{
    static const uint32_t narrow[] = {0x80000000, 0xbf800000, 0x7f800001, 0x7fc00001, 0xffc00000, 0xff800000};
    static const uint64_t wide[] = {1ull << 63, 0xbff0ull << 48, 0x7ff0ull << 48 | 1, 0xfff8ull << 48, 0xfff0ull << 48};
    struct slice s = make_slice(_i, methods[0], BPS_FLOAT32, 3), t = make_slice(_i, methods[0], BPS_FLOAT64, 3);
    struct slice none = make_slice(_i, methods[0], BPS_FLOAT32, 0);
    for (size_t i = 0; i < SIZE_OF(narrow); i++) {
        ck_assert_int_eq(decode_bytes(&s, (const uint8_t *)&narrow[i], 4), BPS_ERR_PROTOCOL);
    }
    for (size_t i = 0; i < SIZE_OF(wide); i++) {
        ck_assert_int_eq(decode_bytes(&t, (const uint8_t *)&wide[i], 8), BPS_ERR_PROTOCOL);
    }
    uint32_t one = 0x3f800000, infinity = 0x7f800000;
    ck_assert_int_eq(decode_bytes(&none, (const uint8_t *)&one, 4), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(decode_bytes(&none, (const uint8_t *)&infinity, 4), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(decode_bytes(&s, (const uint8_t *)&infinity, 4), BPS_OK);
    free_slice(&s);
    free_slice(&t);
    free_slice(&none);
}
END_TEST

/* ---- what it promises ---------------------------------------------------------------------------------------- */

static void described(const double *method, const char *text)
{
    ck_assert(method != methods[0] || strstr(text, "127 linear levels of the largest magnitude") != NULL);
}

static void fill(struct slice *s, unsigned which, unsigned *seed)
{
    (void)which;
    (void)seed;
    calm(s);
}

static double magnitude(double broken)
{
    return fabs(broken);
}

static const struct refused_options refused[] = {{{31, true}, "expected 1..30"}};

static void special(TCase *tests, int variant)
{
    if (variant == 0) {
        tcase_add_test(tests, test_the_generator);
    }
    tcase_add_loop_test(tests, test_the_seed_of_the_original, variant, variant + 1);
    tcase_add_loop_test(tests, test_sparse_and_extreme_elements, variant, variant + 1);
    tcase_add_loop_test(tests, test_extreme_lengths, variant, variant + 1);
    tcase_add_loop_test(tests, test_the_mean, variant, variant + 1);
    tcase_add_loop_test(tests, test_zeros_stay_zeros, variant, variant + 1);
    tcase_add_loop_test(tests, test_what_is_refused, variant, variant + 1);
    tcase_add_loop_test(tests, test_foreign_scales, variant, variant + 1);
}

int main(void)
{
    return run_compressor_tests(&(const struct promise){
        .name = "dithering",
        .module = bps_module_compressor_dithering,
        ALL(methods),
        ALL(counts),
        .draw = {.shared = 0x123456789abcdef1, .own = 0xfedcba9876543217},
        .options = {"levels", "partition", "normalize", "compat"},
        ISA_VARIANTS,
        .described = described,
        .is_right = slice_is_right,
        .fill = fill,
        .n_fills = 1,
        .spoiled = magnitude,
        .length_step = 4,
        .n_lengths = 40,
        ALL(refused),
        .special = special,
    });
}
