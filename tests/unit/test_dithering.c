/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_dithering.c - the compressor "dithering" against its definition, byte by byte, and against bytes that nobody has
 * coded.
 *
 * Each test runs once for every instruction set (the loop index is the value of the option isa); what this CPU or this
 * build lacks must be refused with a message, and its other tests have nothing to do.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "checks.h"
#include "compressor_rig.h"
#include "watched.h"

const struct bps_module *bps_module_compressor_dithering(void);

static const size_t counts[] = {0, 1, 2, 3, 7, 31, 63, 64, 65, 127, 500, 4097, 16383, 16384, 16385, 40001};
#define COUNTS (sizeof counts / sizeof *counts)
#define BLOCK  16384u

static const uint32_t dtypes[] = {BPS_FLOAT32, BPS_FLOAT64};
static struct bps_random draw = {.shared = 0x123456789abcdef1, .own = 0xfedcba9876543217};

struct method {
    int levels;
    bool natural, l2, compat;
};

static const struct method methods[] = {
    {127, false, false, false},  {1, false, false, false},    {1, false, true, false},   {3, false, false, false},
    {32767, false, true, false}, {9000, false, false, false}, {500, false, true, false}, {1, true, false, false},
    {8, true, false, false},     {30, true, true, false},     {4, false, false, true},   {127, false, true, true},
    {5, true, false, true},      {30, true, true, true},
};
#define METHODS (sizeof methods / sizeof *methods)

static bps_status open_dithering(struct rig *rig, int isa, struct method m)
{
    const struct rig_setting settings[] = {
        {"levels", m.levels}, {"partition", m.natural}, {"normalize", m.l2}, {"compat", m.compat}, {"isa", isa}};
    return rig_open(rig, bps_module_compressor_dithering(), settings, 5);
}

#define OPEN_OR_RETURN(rig, isa, method)                                                                               \
    do {                                                                                                               \
        if (open_dithering(rig, isa, method) != BPS_OK) {                                                              \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

/* ---- chance, by its definition --------------------------------------------------------------------------- */

static uint32_t philox(uint64_t key, uint64_t counter, int word)
{
    uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0}, k[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    for (int i = 0; i < 10; i++) {
        uint64_t a = (uint64_t)c[0] * 0xd2511f53, b = (uint64_t)c[2] * 0xcd9e8d57;
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k[1],
                            (uint32_t)a};
        memcpy(c, next, sizeof c);
        k[0] += 0x9e3779b9;
        k[1] += 0xbb67ae85;
    }
    return c[word];
}

/* The number of an element, as a share of 1. */
static double chance(uint32_t dtype, size_t i)
{
    size_t in_unit = i % 64;
    uint32_t number = philox(draw.own, i / 64 * 16 + in_unit % 32 / 2, (int)(in_unit / 32 * 2 + in_unit % 2));
    return dtype == BPS_FLOAT32 ? (number >> 8) / 0x1p24 : (number >> 1) / 0x1p31;
}

/* The first numbers of Philox4x32-10 that its authors give. */
START_TEST(test_the_generator)
{
    static const uint32_t zeros[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    for (int i = 0; i < 4; i++) {
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

struct slice {
    const struct method *method;
    uint32_t dtype;
    size_t count, room, bytes;
    uint8_t *from, *code, *to;
    void *base[3];
    double scale, fine; /* the fine one is not rounded to the type */
    int32_t *level;     /* of each element, with its sign; numbers of levels, not their size */
    uint8_t *want;
    size_t want_bytes, bits;
};

static struct slice make_slice(const struct rig *rig, const struct method *m, uint32_t dtype, size_t count)
{
    struct slice s = {
        .method = m, .dtype = dtype, .count = count, .room = rig->ops->bound(rig->instance, dtype, count)};
    s.from = rig_odd(count * rig_size(dtype), &s.base[0]);
    s.code = rig_odd(s.room, &s.base[1]);
    s.to = rig_odd(count * rig_size(dtype), &s.base[2]);
    s.level = calloc(count + 1, sizeof *s.level);
    s.want = calloc(1, 8 + 10 * count + 100);
    for (size_t i = 0; i < count; i++) {
        double x = (double)((int)(i * 7919 % 2003) - 1000) * 1e-3;
        rig_put(dtype, s.from, i, i % 11 == 0 ? 0 : x * x * x);
        rig_put(dtype, s.to, i, (double)i);
    }
    return s;
}

static void free_slice(struct slice *s)
{
    for (int i = 0; i < 3; i++) {
        free(s->base[i]);
    }
    free(s->level);
    free(s->want);
}

static void find_scale(struct slice *s)
{
    long double largest = 0, squares = 0;
    for (size_t i = 0; i < s->count; i++) {
        long double x = fabs(rig_get(s->dtype, s->from, i));
        largest = x > largest ? x : largest;
        squares += x * x;
    }
    s->fine = (double)(s->method->l2 ? sqrtl(squares) : largest);
    s->scale = s->dtype == BPS_FLOAT32 ? (float)s->fine : s->fine;
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

static void find_levels(struct slice *s)
{
    const struct method *m = s->method;
    static uint64_t state[2]; /* with a seed it goes on from round to round */
    if (draw.seed == 0 || draw.round == 0) {
        state[0] = state[1] = draw.seed > 0 ? draw.seed : draw.shared;
    }
    double top = m->natural ? ldexp(1, m->levels - 1) : m->levels, share;
    for (size_t i = 0; i < s->count && s->scale > 0; i++) {
        double x = rig_get(s->dtype, s->from, i), v;
        int level;
        if (m->compat) {
            v = (float)(fabs(x) / s->fine * top);
            level = round_original(v, m->natural, &share);
            level += (double)xorshift(state) < share * 18446744073709551615.0;
        } else {
            v = s->dtype == BPS_FLOAT32 ? (float)((float)((float)fabs(x) / (float)s->scale) * (float)top)
                                        : fabs(x) / s->scale * top;
            level = round_up(v, m->natural, &share);
            level += chance(s->dtype, i) < share;
        }
        s->level[i] = x < 0 ? -level : level;
    }
}

static double value(const struct slice *s, int level)
{
    const struct method *m = s->method;
    double top = m->natural ? ldexp(1, m->levels - 1) : m->levels;
    double size = !m->natural ? abs(level) : level == 0 ? 0 : ldexp(1, abs(level) - 1), x;
    if (s->dtype == BPS_FLOAT32) {
        float scale = (float)s->scale;
        x = m->compat ? (float)((float)((float)size * scale) / (float)top) : (float)((float)(size / top) * scale);
    } else {
        x = m->compat ? size * s->scale / top : size / top * s->scale;
    }
    return level < 0 ? -x : x;
}

/* ---- the format, bit by bit ------------------------------------------------------------------------------- */

static void put_bits(struct slice *s, uint64_t bits, int n)
{
    for (int i = 0; i < n; i++, s->bits++) {
        s->want[s->bits / 8] |= (uint8_t)((bits >> i & 1) << s->bits % 8);
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

static void put_delta(struct slice *s, uint64_t x)
{
    int n = length_of(x), m = length_of((uint64_t)n) - 1;
    put_bits(s, 0, m);
    put_bits(s, 1, 1);
    put_bits(s, (uint64_t)n, m);
    put_bits(s, x, n - 1);
}

static void put_elias(struct slice *s, size_t from, size_t to)
{
    size_t last = from - 1;
    for (size_t i = from; i < to; i++) {
        if (s->level[i] != 0) {
            put_delta(s, i - last);
            put_bits(s, s->level[i] < 0, 1);
            put_delta(s, (uint64_t)abs(s->level[i]));
            last = i;
        }
    }
    put_delta(s, to - last);
}

static void put_fixed(struct slice *s, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        put_bits(s, (uint64_t)(2 * abs(s->level[i]) + (s->level[i] < 0)), 1 + length_of((uint64_t)s->method->levels));
    }
}

static void put_block(struct slice *s, size_t from, size_t to)
{
    size_t at = s->bits / 8, fixed = ((to - from) * (size_t)(1 + length_of((uint64_t)s->method->levels)) + 7) / 8;
    put_bits(s, 0, 8);
    put_elias(s, from, to);
    s->bits = (s->bits + 7) / 8 * 8;
    if (s->bits / 8 - at - 1 + 8 > fixed) {
        memset(s->want + at, 0, s->bits / 8 - at);
        s->bits = 8 * at;
        put_bits(s, 1, 8);
        put_fixed(s, from, to);
        s->bits = (s->bits + 7) / 8 * 8;
    }
}

static void find_bytes(struct slice *s)
{
    uint64_t wide;
    uint32_t narrow;
    float scale = (float)s->scale;
    memcpy(&wide, &s->scale, sizeof wide);
    memcpy(&narrow, &scale, sizeof narrow);
    put_bits(s, s->dtype == BPS_FLOAT32 ? narrow : wide, 8 * (int)rig_size(s->dtype));
    for (size_t i = 0; i < s->count && s->scale > 0; i += BLOCK) {
        put_block(s, i, i + BLOCK < s->count ? i + BLOCK : s->count);
    }
    s->want_bytes = s->bits / 8;
}

/* ---- tests ------------------------------------------------------------------------------------------------- */

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

static void codes_as_defined(const struct rig *rig, struct slice *s)
{
    encode(rig, s);
    find_scale(s);
    if (s->method->l2) { /* sums are rounded another way here */
        double scale = rig_get(s->dtype, s->code, 0);
        ck_assert(fabs(scale - s->scale) <= s->scale * (s->dtype == BPS_FLOAT32 ? 1e-7 : 1e-14));
        s->scale = scale;
    }
    find_levels(s);
    find_bytes(s);
    ck_assert_uint_eq(s->bytes, s->want_bytes);
    ck_assert_mem_eq(s->code, s->want, s->bytes);
    ck_assert_int_eq(decode_add(rig, s), BPS_OK);
    for (size_t i = 0; i < s->count; i++) {
        double sum = (double)i + value(s, s->level[i]);
        ck_assert(rig_get(s->dtype, s->to, i) == (s->dtype == BPS_FLOAT32 ? (double)(float)sum : sum));
    }
    ck_assert_int_eq(decode(rig, s), BPS_OK);
    for (size_t i = 0; i < s->count; i++) {
        ck_assert(rig_get(s->dtype, s->to, i) == value(s, s->level[i]));
    }
}

START_TEST(test_the_definition)
{
    struct rig rig;
    for (size_t m = 0; m < METHODS; m++) {
        OPEN_OR_RETURN(&rig, _i, methods[m]);
        for (size_t c = 0; c < 2 * COUNTS; c++) {
            struct slice s = make_slice(&rig, &methods[m], dtypes[c % 2], counts[c / 2]);
            codes_as_defined(&rig, &s);
            free_slice(&s);
        }
        rig.ops->close(rig.instance);
    }
}
END_TEST

START_TEST(test_the_seed_of_the_original)
{
    struct rig rig;
    for (size_t example = 0; example < 2 * METHODS; example++) {
        const struct method *m = &methods[example / 2];
        if (m->compat) {
            OPEN_OR_RETURN(&rig, _i, *m);
            draw.seed = 1 + example;
            for (draw.round = 0; draw.round < 40; draw.round++) {
                struct slice s = make_slice(&rig, m, dtypes[example % 2], 333);
                codes_as_defined(&rig, &s);
                free_slice(&s);
            }
            draw.seed = draw.round = 0;
            rig.ops->close(rig.instance);
        }
    }
}
END_TEST

/* Few of many elements, and all alike; also magnitudes at the ends of the types. */
START_TEST(test_sparse_and_extreme_elements)
{
    static const double sizes[2][3] = {{1e-45, 1, 3e38}, {5e-324, 1e-200, 1e308}};
    struct rig rig;
    for (size_t example = 0; example < METHODS * 2 * 3 * 2; example++) {
        const struct method *m = &methods[example / 12];
        size_t type = example % 2, step = example / 6 % 2 ? 1 : 777;
        if (m->compat || m->l2) {
            continue;
        }
        OPEN_OR_RETURN(&rig, _i, *m);
        struct slice s = make_slice(&rig, m, dtypes[type], 20000);
        for (size_t i = 0; i < s.count; i++) {
            rig_put(s.dtype, s.from, i, i % step == 0 ? sizes[type][example / 2 % 3] * (i % 2 == 0 ? 1 : -1) : 0);
        }
        codes_as_defined(&rig, &s);
        ck_assert_mem_eq(s.to, s.from, s.count * rig_size(s.dtype));
        free_slice(&s);
        rig.ops->close(rig.instance);
    }
}
END_TEST

/* A length may be more than any number of the type, or than its squares. */
START_TEST(test_extreme_lengths)
{
    static const double sizes[2][4] = {{1e-45, 1e-30, 1e25, 3e38}, {5e-324, 1e-200, 1e200, 1e308}};
    const struct method m = {127, false, true, false};
    struct rig rig;
    OPEN_OR_RETURN(&rig, _i, m);
    for (size_t example = 0; example < 8; example++) {
        struct slice s = make_slice(&rig, &m, dtypes[example % 2], 100);
        double size = sizes[example % 2][example / 2], want, most = example % 2 ? DBL_MAX : FLT_MAX;
        for (size_t i = 0; i < s.count; i++) {
            rig_put(s.dtype, s.from, i, size);
        }
        encode(&rig, &s);
        double scale = rig_get(s.dtype, s.code, 0);
        want = fmin(10 * rig_get(s.dtype, s.from, 0), most);
        ck_assert(fabs(scale - want) <= 1e-6 * want);
        ck_assert_int_eq(decode(&rig, &s), BPS_OK);
        for (size_t i = 0; i < s.count; i++) {
            ck_assert(isfinite(rig_get(s.dtype, s.to, i)));
        }
        free_slice(&s);
    }
    rig.ops->close(rig.instance);
}
END_TEST

/* The mean of many roundings with other numbers is the element. */
START_TEST(test_the_mean)
{
    enum { ROUNDS = 4000, COUNT = 70 };
    struct rig rig;
    for (size_t example = 0; example < 2 * METHODS; example++) {
        const struct method *m = &methods[example / 2];
        double sum[COUNT] = {0};
        OPEN_OR_RETURN(&rig, _i, *m);
        struct slice s = make_slice(&rig, m, dtypes[example % 2], COUNT);
        for (uint64_t round = 1; round <= ROUNDS; round++) {
            const struct bps_random other = {.shared = round * 0x9e3779b97f4a7c15u, .own = round};
            s.bytes = rig.ops->encode(rig.instance, s.dtype, s.from, s.count, &other, s.code);
            ck_assert_int_eq(decode(&rig, &s), BPS_OK);
            for (size_t i = 0; i < COUNT; i++) {
                sum[i] += rig_get(s.dtype, s.to, i);
            }
        }
        find_scale(&s);
        double distance = s.scale * (m->natural && m->levels > 1 ? 0.5 : 1.0 / m->levels),
               tolerance = distance * 5 * 0.5 / sqrt(ROUNDS);
        for (size_t i = 0; i < COUNT; i++) {
            ck_assert(fabs(sum[i] / ROUNDS - rig_get(s.dtype, s.from, i)) <= tolerance + 1e-6 * s.scale);
        }
        free_slice(&s);
        rig.ops->close(rig.instance);
    }
}
END_TEST

START_TEST(test_zeros_stay_zeros)
{
    struct rig rig;
    for (size_t example = 0; example < METHODS * 2; example++) {
        OPEN_OR_RETURN(&rig, _i, methods[example / 2]);
        struct slice s = make_slice(&rig, &methods[example / 2], dtypes[example % 2], 100);
        for (size_t i = 0; i < s.count; i++) {
            rig_put(s.dtype, s.from, i, i % 2 == 0 ? 0.0 : -0.0);
        }
        encode(&rig, &s);
        ck_assert_uint_eq(s.bytes, rig_size(s.dtype));
        ck_assert_int_eq(decode_add(&rig, &s), BPS_OK);
        ck_assert(rig_get(s.dtype, s.to, 99) == 99);
        ck_assert_int_eq(decode(&rig, &s), BPS_OK);
        for (size_t i = 0; i < s.count; i++) {
            ck_assert(rig_get(s.dtype, s.to, i) == 0);
        }
        free_slice(&s);
        rig.ops->close(rig.instance);
    }
}
END_TEST

/* A gradient that is broken stays so. */
START_TEST(test_nan_and_infinity_are_not_hidden)
{
    static const double broken[] = {NAN, INFINITY, -INFINITY, -NAN};
    struct rig rig;
    for (size_t example = 0; example < METHODS * 2 * 4 * 45; example += 3) {
        const struct method *m = &methods[example % METHODS];
        size_t rest = example / METHODS;
        OPEN_OR_RETURN(&rig, _i, *m);
        struct slice s = make_slice(&rig, m, dtypes[rest % 2], 45);
        rig_put(s.dtype, s.from, rest / 8, broken[rest / 2 % 4]);
        rig_put(s.dtype, s.to, 7, -INFINITY);
        encode(&rig, &s);
        ck_assert_int_eq(decode_add(&rig, &s), BPS_OK);
        for (size_t i = 0; i < s.count; i++) {
            ck_assert(!isfinite(rig_get(s.dtype, s.to, i)));
        }
        ck_assert_int_eq(decode(&rig, &s), BPS_OK);
        for (size_t i = 0; i < s.count; i++) {
            double x = rig_get(s.dtype, s.to, i);
            ck_assert(isnan(broken[rest / 2 % 4]) ? isnan(x) : x == INFINITY);
        }
        free_slice(&s);
        rig.ops->close(rig.instance);
    }
}
END_TEST

START_TEST(test_bounds_grow)
{
    struct rig rig;
    for (size_t m = 0; m < METHODS; m++) {
        OPEN_OR_RETURN(&rig, _i, methods[m]);
        for (size_t count = 0; count < 40000; count += EVERY(7)) {
            size_t now = rig.ops->bound(rig.instance, BPS_FLOAT32, count);
            ck_assert_uint_ge(rig.ops->bound(rig.instance, BPS_FLOAT32, count + 1), now);
        }
        for (uint32_t dtype = 0; dtype < BPS_DTYPES; dtype++) {
            bool coded = dtype == BPS_FLOAT32 || dtype == BPS_FLOAT64;
            ck_assert_uint_eq(rig.ops->bound(rig.instance, dtype, 100) > 0, coded);
        }
        rig.ops->close(rig.instance);
    }
}
END_TEST

/* The floating point settings of the calling thread make no difference, and stay. */
START_TEST(test_flushed_subnormals)
{
#ifdef __SSE2__
    struct rig rig;
    for (size_t m = 0; m < METHODS; m++) {
        OPEN_OR_RETURN(&rig, _i, methods[m]);
        struct slice s = make_slice(&rig, &methods[m], BPS_FLOAT32, 5);
        for (size_t i = 0; i < s.count; i++) {
            rig_put(s.dtype, s.from, i, 1e-40);
        }
        unsigned before = _mm_getcsr(), other = before | 0xe040;
        _mm_setcsr(other);
        encode(&rig, &s);
        decode(&rig, &s);
        unsigned after = _mm_getcsr();
        _mm_setcsr(before);
        ck_assert_uint_eq(after & 0xffc0, other & 0xffc0);
        ck_assert(rig_get(s.dtype, s.code, 0) > 0);
        free_slice(&s);
        rig.ops->close(rig.instance);
    }
#endif
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
    for (size_t example = 0; example < METHODS * 2 * 40; example++) {
        const struct method *m = &methods[example / 2 % METHODS];
        OPEN_OR_RETURN(&rig, _i, *m);
        struct slice s = make_slice(&rig, m, dtypes[example % 2], 4 * (example / 2 / METHODS));
        encode(&rig, &s);
        uint8_t longer[5000] = {0};
        memcpy(longer, s.code, s.bytes);
        for (size_t bytes = 0; bytes < s.bytes + 9; bytes++) {
            ck_assert_int_eq(decode_bytes(&rig, &s, longer, bytes), bytes == s.bytes ? BPS_OK : BPS_ERR_PROTOCOL);
        }
        free_slice(&s);
        rig.ops->close(rig.instance);
    }
}
END_TEST

/* Any other byte anywhere is refused, or something within the bound. */
START_TEST(test_foreign_bytes)
{
    struct rig rig;
    for (size_t example = 0; example < METHODS * 2; example++) {
        const struct method *m = &methods[example / 2];
        OPEN_OR_RETURN(&rig, _i, *m);
        struct slice s = make_slice(&rig, m, dtypes[example % 2], 200);
        encode(&rig, &s);
        for (size_t at = 0; at < s.bytes; at++) {
            uint8_t right = s.code[at];
            for (unsigned byte = 0; byte < 256; byte += at < 16 ? 1 : 7 * EVERY(5)) {
                s.code[at] = (uint8_t)byte;
                decode_bytes(&rig, &s, s.code, s.bytes);
            }
            s.code[at] = right;
        }
        free_slice(&s);
        rig.ops->close(rig.instance);
    }
}
END_TEST

/* A slice of float32 with the scale 1, and these bits in its only block of this form. */
static bps_status refused(struct rig *rig, const struct method *m, size_t count, int form, const uint64_t *delta,
                          size_t n, int more)
{
    struct slice s = make_slice(rig, m, BPS_FLOAT32, count);
    put_bits(&s, 0x3f800000, 32);
    put_bits(&s, (uint64_t)form, 8);
    for (size_t i = 0; i < n; i++) {
        if (form == 0 && i % 3 != 1) {
            put_delta(&s, delta[i]);
        } else {
            put_bits(&s, delta[i], form == 0 ? 1 : 3);
        }
    }
    put_bits(&s, 1, more);
    bps_status status = decode_bytes(rig, &s, s.want, (s.bits + 7) / 8);
    free_slice(&s);
    return status;
}

#define TRY(count, form, more, ...)                                                                                    \
    refused(&rig, &m, count, form, (const uint64_t[]){__VA_ARGS__},                                                    \
            sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), more)

START_TEST(test_what_is_refused)
{
    const struct method m = {3, false, false, false};
    struct rig rig;
    OPEN_OR_RETURN(&rig, _i, m);
    ck_assert_int_eq(TRY(100, 0, 0, 5, 1, 3, 96), BPS_OK);
    ck_assert_int_eq(TRY(100, 0, 0, 5, 1, 3, 95), BPS_ERR_PROTOCOL);        /* ends too early */
    ck_assert_int_eq(TRY(100, 0, 0, 5, 1, 3, 97), BPS_ERR_PROTOCOL);        /* leads beyond the end */
    ck_assert_int_eq(TRY(100, 0, 0, 102, 1, 3, 1), BPS_ERR_PROTOCOL);       /* an element there */
    ck_assert_int_eq(TRY(100, 0, 0, 5, 1, 4, 96), BPS_ERR_PROTOCOL);        /* there are 3 levels */
    ck_assert_int_eq(TRY(100, 0, 0, 5, 1, 1u << 20, 96), BPS_ERR_PROTOCOL); /* so large a number is none */
    ck_assert_int_eq(TRY(100, 0, 1, 5, 1, 3, 96), BPS_ERR_PROTOCOL);        /* a bit behind the end */
    ck_assert_int_eq(TRY(100, 0, 9, 5, 1, 3, 96), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(TRY(100, 2, 0, 5, 1, 3, 96), BPS_ERR_PROTOCOL); /* there is no such form */
    ck_assert_int_eq(TRY(20, 0, 0, 5, 1, 3, 16), BPS_ERR_PROTOCOL);  /* the fixed form takes hardly more */
    ck_assert_int_eq(TRY(5, 1, 0, 2, 3, 0, 7, 6), BPS_OK);
    ck_assert_int_eq(TRY(5, 1, 0, 2, 3, 1, 7, 6), BPS_ERR_PROTOCOL); /* zero has no sign */
    ck_assert_int_eq(TRY(5, 1, 1, 2, 3, 0, 7, 6), BPS_ERR_PROTOCOL);
    rig.ops->close(rig.instance);
    ck_assert_int_eq(open_dithering(&rig, _i, (struct method){2, false, false, false}), BPS_OK);
    ck_assert_int_eq(TRY(5, 1, 0, 2, 3, 0, 5, 4), BPS_OK);
    ck_assert_int_eq(TRY(5, 1, 0, 2, 3, 0, 6, 4), BPS_ERR_PROTOCOL); /* there are 2 levels */
    rig.ops->close(rig.instance);
}
END_TEST

START_TEST(test_foreign_scales)
{
    static const uint32_t narrow[] = {0x80000000, 0xbf800000, 0x7f800001, 0x7fc00001, 0xffc00000, 0xff800000};
    static const uint64_t wide[] = {1ull << 63, 0xbff0ull << 48, 0x7ff0ull << 48 | 1, 0xfff8ull << 48, 0xfff0ull << 48};
    struct rig rig;
    OPEN_OR_RETURN(&rig, _i, methods[0]);
    struct slice s = make_slice(&rig, &methods[0], BPS_FLOAT32, 3), t = make_slice(&rig, &methods[0], BPS_FLOAT64, 3);
    struct slice none = make_slice(&rig, &methods[0], BPS_FLOAT32, 0);
    for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++) {
        ck_assert_int_eq(decode_bytes(&rig, &s, (const uint8_t *)&narrow[i], 4), BPS_ERR_PROTOCOL);
    }
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        ck_assert_int_eq(decode_bytes(&rig, &t, (const uint8_t *)&wide[i], 8), BPS_ERR_PROTOCOL);
    }
    uint32_t one = 0x3f800000, infinity = 0x7f800000;
    ck_assert_int_eq(decode_bytes(&rig, &none, (const uint8_t *)&one, 4), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(decode_bytes(&rig, &none, (const uint8_t *)&infinity, 4), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(decode_bytes(&rig, &s, (const uint8_t *)&infinity, 4), BPS_OK);
    free_slice(&s);
    free_slice(&t);
    free_slice(&none);
    rig.ops->close(rig.instance);
}
END_TEST

START_TEST(test_isa)
{
    static const char *const names[RIG_ISAS] = {"", "baseline", "avx2", "avx512"};
    struct rig rig;
    char text[100];
    if (open_dithering(&rig, _i, methods[0]) != BPS_OK) {
        ck_assert_int_gt(_i, 1);
        ck_assert_ptr_nonnull(strstr(rig.report.text, names[_i]));
        return;
    }
    rig.ops->describe(rig.instance, text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, names[_i]));
    ck_assert_ptr_nonnull(strstr(text, "127 linear levels of the largest magnitude"));
    rig.ops->close(rig.instance);
    ck_assert_int_eq(open_dithering(&rig, _i, (struct method){31, true, false, false}), BPS_ERR_CONF);
    ck_assert_ptr_nonnull(strstr(rig.report.text, "expected 1..30"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dithering");
    TCase *tests = tcase_create("dithering");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, test_the_generator);
    tcase_add_loop_test(tests, test_the_definition, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_the_seed_of_the_original, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_sparse_and_extreme_elements, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_extreme_lengths, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_the_mean, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_zeros_stay_zeros, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_nan_and_infinity_are_not_hidden, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_bounds_grow, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_flushed_subnormals, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_foreign_lengths, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_foreign_bytes, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_what_is_refused, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_foreign_scales, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_isa, 0, RIG_ISAS);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed > 0;
}
