/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_reducer_cpu.c - the kernels of the reducer "cpu" against the oracle, bit by bit.
 *
 * Each test runs once for every instruction set (the loop index is the value of the option isa); what this
 * CPU or this build lacks must be refused with a message, and its other tests have nothing to do.
 */
#include <stdlib.h>
#include <string.h>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "checks.h"
#include "reducer_oracle.h"
#include "watched.h"

const struct bps_module *bps_module_reducer_cpu(void);

static const char *const isas[] = {"auto", "baseline", "avx2", "avx512", "avx512bf16"};
static const char *const dtypes[BPS_DTYPES] = {"float32", "float64", "float16",       "uint8",
                                               "int32",   "int8",    "int64",         "bfloat16",
                                               "int16",   "bool",    "float8_e4m3fn", "float8_e5m2"};
static const char *const ops[BPS_OPS] = {"sum", "average", "min", "max", "product"};
static const uint32_t real_ops[] = {BPS_SUM, BPS_MIN, BPS_MAX, BPS_PRODUCT};

static const uint32_t integers[] = {BPS_UINT8, BPS_INT8, BPS_INT16, BPS_INT32, BPS_INT64};

#define ISAS     5
#define INTEGERS 5
#define REAL_OPS 4
#define MAX_N    17

/* ---- the plugin ---------------------------------------------------------------------------------------- */

static void host_log(const struct bps_host *host, uint32_t level, const char *format, ...)
{
    (void)host;
    (void)level;
    (void)format;
}

static const struct bps_host host = {.size = sizeof(struct bps_host), .instance = "sum", .log = host_log};
static const struct bps_reducer_ops *plugin;
static void *instance;
static struct bps_report report;

/* Opens the plugin with an instruction set, as the core does: through the option table. */
static bps_status open_isa(int isa)
{
    const struct bps_plugin *p = bps_module_reducer_cpu()->plugins[0];
    uint8_t *options = calloc(1, p->options_size);
    uint32_t choice = (uint32_t)isa;
    bps_status status;

    ck_assert_str_eq(p->options[0].name, "isa");
    memcpy(options + p->options[0].offset, &choice, sizeof choice);
    plugin = p->ops;
    report.text[0] = '\0';
    status = plugin->open(&host, options, &instance, &report);
    free(options);
    return status;
}

static struct bps_kernels kernels_of(uint32_t op, uint32_t dtype)
{
    struct bps_kernels k;

    ck_assert_int_eq(plugin->kernels(instance, op, dtype, &k), BPS_OK);
    ck_assert_uint_eq(k.accumulator, oracle_accumulator(dtype));
    return k;
}

/* ---- data ---------------------------------------------------------------------------------------------- */

static uint64_t seed = 88172645463325252u;

static uint64_t draw(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static void set_bits(uint32_t dtype, void *at, uint64_t bits)
{
    const uint32_t b32 = (uint32_t)bits;
    const uint16_t b16 = (uint16_t)bits;
    const uint8_t b8 = (uint8_t)bits;
    const void *from[9] = {[1] = &b8, [2] = &b16, [4] = &b32, [8] = &bits};

    memcpy(at, from[oracle_size(dtype)], oracle_size(dtype));
}

/* Zeros, infinities, NaN, limits of normal and subnormal numbers and neighbours; the same for integers. */
#define SPECIALS 24
static void set_special(uint32_t dtype, void *at, unsigned which)
{
    static const struct {
        uint32_t dtype;
        uint64_t one, infinity;
    } forms[] = {{BPS_FLOAT64, 0x3ff0000000000000, 0x7ff0000000000000},
                 {BPS_FLOAT32, 0x3f800000, 0x7f800000},
                 {BPS_FLOAT16, 0x3c00, 0x7c00},
                 {BPS_BFLOAT16, 0x3f80, 0x7f80},
                 {BPS_FLOAT8_E4M3FN, 0x38, 0x78}, /* no infinity, but the largest exponent */
                 {BPS_FLOAT8_E5M2, 0x3c, 0x7c}};
    uint64_t top = (uint64_t)1 << (8 * oracle_size(dtype) - 1), one = 1, infinity = top / 3, quiet, bits;

    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        if (forms[i].dtype == dtype) {
            one = forms[i].one;
            infinity = forms[i].infinity;
        }
    }
    quiet = infinity | (infinity & -infinity) >> 1; /* with the highest fraction bit */
    const uint64_t magnitudes[SPECIALS / 2] = {
        0,         1,           2,        infinity & -infinity, (infinity & -infinity) - 1,
        one,       one + 1,     infinity, infinity - 1,         quiet,
        quiet | 7, infinity | 1};

    bits = magnitudes[which % (SPECIALS / 2)] | (which >= SPECIALS / 2 ? top : 0);
    set_bits(dtype, at, bits);
}

/* An element: mostly an ordinary number, sometimes any bits, sometimes a special one. */
static void set_random(uint32_t dtype, void *at)
{
    uint64_t bits = draw();
    float f = (float)(int64_t)(bits % 4096) / 64 - 32;
    double d = f / 3;

    if (bits >> 60 == 0) {
        set_special(dtype, at, (unsigned)(draw() % SPECIALS));
    } else if (bits >> 60 < 4 || !oracle_is_float(dtype)) {
        set_bits(dtype, at, draw());
    } else if (dtype == BPS_FLOAT64) {
        memcpy(at, &d, sizeof d);
    } else {
        oracle_finish(dtype, at, &f, 1, 1, 3);
    }
}

/* A buffer of elements, `offset` bytes after an aligned address, between bytes that must not change. */
struct buffer {
    uint8_t *memory, *at;
    size_t bytes;
};

#define GUARD      64
#define GUARD_BYTE 0xa5

static struct buffer buffer_new(uint32_t dtype, size_t count, size_t offset)
{
    struct buffer b = {.bytes = count * oracle_size(dtype)};
    size_t total = b.bytes + offset + 2 * GUARD;

    b.memory = aligned_alloc(64, (total + 63) / 64 * 64);
    ck_assert_ptr_nonnull(b.memory);
    memset(b.memory, GUARD_BYTE, total);
    b.at = b.memory + GUARD + offset;
    for (size_t i = 0; i < count; i++) {
        set_random(dtype, b.at + i * oracle_size(dtype));
    }
    return b;
}

/* Checks the guards too. Assertions that hold cost a system call each, so here are only those that fail. */
static void buffer_free(struct buffer *b)
{
    for (const uint8_t *p = b->memory; p < b->at + b->bytes + GUARD; p++) {
        if (*p != GUARD_BYTE && (p < b->at || p >= b->at + b->bytes)) {
            ck_abort_msg("byte %td of a buffer of %zu bytes was changed", p - b->at, b->bytes);
        }
    }
    free(b->memory);
}

static uint64_t bits_of(uint32_t dtype, const uint8_t *at)
{
    uint64_t bits = 0;

    memcpy((uint8_t *)&bits, at, oracle_size(dtype));
    return bits;
}

/* Compares `count` elements bit by bit; `what` and the loop index tell which kernel it was. */
static void same(int isa, const char *what, uint32_t op, uint32_t dtype, uint32_t of, const uint8_t *got,
                 const uint8_t *expected, size_t count)
{
    size_t size = oracle_size(of);

    for (size_t i = 0; i < count; i++) {
        if (memcmp(got + i * size, expected + i * size, size)) {
            ck_abort_msg("%s: %s of %s, %s: element %zu of %zu is %#llx, expected %#llx", isas[isa], what,
                         dtypes[dtype], ops[op], i, count, (unsigned long long)bits_of(of, got + i * size),
                         (unsigned long long)bits_of(of, expected + i * size));
        }
    }
}

/* ---- all kernels once ---------------------------------------------------------------------------------- */

struct example {
    int isa;
    uint32_t op, dtype;
    size_t count;
    unsigned n;    /* sources */
    size_t offset; /* of the buffers from an aligned address: each has another one */
    bool in_place; /* first where acc may be src, finish from acc to acc, reduce to a source */
    bool scaled;
    double scale;
    uint64_t divisor;
};

static void steps_are_right(const struct example *e, const struct buffer *src, const double *scales,
                            const struct bps_kernels *k, uint8_t *expected)
{
    uint32_t acc = oracle_accumulator(e->dtype);
    struct buffer total = buffer_new(acc, e->count, e->offset % 63 + 1);
    struct buffer dst = buffer_new(e->dtype, e->count, e->offset);
    uint8_t *right = malloc(e->count * oracle_size(acc) + 1);

    oracle_first(e->dtype, right, src[0].at, e->count, scales[0]);
    if (e->in_place && acc == e->dtype) {
        memcpy(total.at, src[0].at, total.bytes);
        k->first(total.at, total.at, e->count, scales[0]);
    } else {
        k->first(total.at, src[0].at, e->count, scales[0]);
    }
    same(e->isa, "first", e->op, e->dtype, acc, total.at, right, e->count);
    for (unsigned i = 1; i < e->n; i++) {
        oracle_fold(e->op, e->dtype, right, src[i].at, e->count, scales[i]);
        k->fold(total.at, src[i].at, e->count, scales[i]);
        same(e->isa, "fold", e->op, e->dtype, acc, total.at, right, e->count);
    }
    oracle_finish(e->dtype, expected, right, e->count, e->scale, e->divisor);
    k->finish(dst.at, total.at, e->count, e->scale, e->divisor);
    same(e->isa, "finish", e->op, e->dtype, e->dtype, dst.at, expected, e->count);
    k->finish(total.at, total.at, e->count, e->scale, e->divisor);
    same(e->isa, "finish in place", e->op, e->dtype, e->dtype, total.at, expected, e->count);
    free(right);
    buffer_free(&dst);
    buffer_free(&total);
}

static void all_are_right(const struct example *e)
{
    static const double some_scales[MAX_N] = {0.5, -3, 1, 1.0 / 3, 0, 1e-30, 1e30, -0.0, 7, 2};
    static const double no_scales[MAX_N] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const double *scales = e->scaled && e->dtype != BPS_BOOL ? some_scales : no_scales;
    struct bps_kernels k = kernels_of(e->op, e->dtype);
    struct buffer src[MAX_N], dst = buffer_new(e->dtype, e->count, (3 * e->offset + 2) % 64);
    const void *sources[MAX_N];
    uint8_t *expected = malloc(e->count * oracle_size(e->dtype) + 1);

    for (unsigned i = 0; i < e->n; i++) {
        src[i] = buffer_new(e->dtype, e->count, ((i + 1) * e->offset) % 64);
        sources[i] = src[i].at;
    }
    steps_are_right(e, src, scales, &k, expected);
    uint8_t *to = e->in_place ? src[(e->count + e->offset) % e->n].at : dst.at;
    k.reduce(to, sources, e->scaled ? scales : NULL, e->n, e->count, e->scale, e->divisor);
    same(e->isa, "reduce", e->op, e->dtype, e->dtype, to, expected, e->count);
    for (unsigned i = 0; i < e->n; i++) {
        buffer_free(&src[i]);
    }
    buffer_free(&dst);
    free(expected);
}

/* Calls all_are_right for every operation and type. */
static void each_kernel(struct example e)
{
    for (e.dtype = 0; e.dtype < BPS_DTYPES; e.dtype++) {
        if (!oracle_is_float(e.dtype)) {
            e.divisor = 1;
        }
        if (e.dtype == BPS_BOOL) {
            e.scale = 1;
        }
        for (int i = 0; i < REAL_OPS; i++) {
            e.op = real_ops[i];
            all_are_right(&e);
        }
    }
}

#define OPEN_OR_RETURN(isa)                                                                                            \
    do {                                                                                                               \
        if (open_isa(isa) != BPS_OK) {                                                                                 \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

START_TEST(test_counts)
{
    OPEN_OR_RETURN(_i);
    for (size_t count = 0; count <= 130; count++) {
        each_kernel((struct example){.isa = _i, .count = count, .n = 3, .scale = 1, .divisor = 1});
    }
    each_kernel((struct example){.isa = _i, .count = 4099, .n = 2, .scale = 1, .divisor = 2});
    each_kernel((struct example){.isa = _i, .count = 65537, .n = 2, .scale = 3, .divisor = 2, .scaled = true});
    plugin->close(instance);
}
END_TEST

START_TEST(test_alignments)
{
    OPEN_OR_RETURN(_i);
    for (size_t offset = 0; offset < 64; offset++) {
        each_kernel((struct example){
            .isa = _i, .count = 333, .n = 2, .scale = 1, .divisor = 4, .offset = offset, .in_place = offset % 2});
    }
    plugin->close(instance);
}
END_TEST

START_TEST(test_sources)
{
    OPEN_OR_RETURN(_i);
    for (unsigned n = 1; n <= MAX_N; n += EVERY(3)) {
        for (int variant = 0; variant < 4; variant++) {
            each_kernel((struct example){.isa = _i,
                                         .count = 301,
                                         .n = n,
                                         .scale = 1,
                                         .divisor = n,
                                         .offset = n,
                                         .scaled = variant & 1,
                                         .in_place = variant & 2});
        }
    }
    plugin->close(instance);
}
END_TEST

START_TEST(test_scales_and_divisors)
{
    static const double scales[] = {1, 0.1, -2, 0, 1e-40, 1e300, -1e-310};
    static const uint64_t divisors[] = {1,          2,
                                        3,          4,
                                        5,          7,
                                        8,          10,
                                        100,        127,
                                        128,        129,
                                        255,        256,
                                        32768,      65536,
                                        65537,      0x80000000,
                                        0xffffffff, 0x100000000,
                                        INT64_MAX,  (uint64_t)INT64_MAX + 1,
                                        UINT64_MAX};

    OPEN_OR_RETURN(_i);
    for (size_t s = 0; s < sizeof scales / sizeof scales[0]; s++) {
        for (size_t d = 0; d < sizeof divisors / sizeof divisors[0]; d++) {
            each_kernel((struct example){
                .isa = _i, .count = 150, .n = 2, .scale = scales[s], .divisor = divisors[d], .scaled = true});
        }
    }
    plugin->close(instance);
}
END_TEST

/* ---- special values ------------------------------------------------------------------------------------ */

START_TEST(test_pairs_of_special_values)
{
    const size_t count = SPECIALS * SPECIALS;

    OPEN_OR_RETURN(_i);
    for (uint32_t dtype = 0; dtype < BPS_DTYPES; dtype++) {
        size_t size = oracle_size(dtype);
        struct buffer a = buffer_new(dtype, count, 0), b = buffer_new(dtype, count, 0);
        struct buffer dst = buffer_new(dtype, count, 0), expected = buffer_new(dtype, count, 0);
        double total[SPECIALS * SPECIALS];
        const void *sources[] = {a.at, b.at};

        for (unsigned i = 0; i < count; i++) {
            set_special(dtype, a.at + i * size, i % SPECIALS);
            set_special(dtype, b.at + i * size, i / SPECIALS);
        }
        for (int o = 0; o < REAL_OPS; o++) {
            oracle_first(dtype, total, a.at, count, 1);
            oracle_fold(real_ops[o], dtype, total, b.at, count, 1);
            oracle_finish(dtype, expected.at, total, count, 1, 1);
            kernels_of(real_ops[o], dtype).reduce(dst.at, sources, NULL, 2, count, 1, 1);
            same(_i, "reduce", real_ops[o], dtype, dtype, dst.at, expected.at, count);
        }
        buffer_free(&a);
        buffer_free(&b);
        buffer_free(&dst);
        buffer_free(&expected);
    }
    plugin->close(instance);
}
END_TEST

/* min and max are what types.h says, whatever the oracle thinks. */
START_TEST(test_min_and_max)
{
    const float nan = __builtin_nanf(""), a[] = {-0.0f, 0.0f, nan, 1, 2, -__builtin_inff()};
    const float b[] = {0.0f, -0.0f, 1, nan, 3, 5};
    const uint32_t least[] = {0x80000000, 0x80000000, 0x7fc00000, 0x7fc00000, 0x40000000, 0xff800000};
    const uint32_t most[] = {0, 0, 0x7fc00000, 0x7fc00000, 0x40400000, 0x40a00000};
    const void *sources[] = {a, b};
    float out[6];

    OPEN_OR_RETURN(_i);
    kernels_of(BPS_MIN, BPS_FLOAT32).reduce(out, sources, NULL, 2, 6, 1, 1);
    ck_assert_mem_eq(out, least, sizeof out);
    kernels_of(BPS_MAX, BPS_FLOAT32).reduce(out, sources, NULL, 2, 6, 1, 1);
    ck_assert_mem_eq(out, most, sizeof out);
    plugin->close(instance);
}
END_TEST

/* ---- averages of integers ------------------------------------------------------------------------------ */

static struct bps_kernels average_of(uint32_t dtype)
{
    struct bps_kernels k;

    ck_assert_int_eq(plugin->kernels(instance, BPS_AVERAGE, dtype, &k), BPS_OK);
    ck_assert(!k.first && !k.fold && !k.finish);
    return k;
}

/* Of any bits, at any address, and in place of a source. */
static void average_is_right(int isa, uint32_t dtype, unsigned n, bool in_place)
{
    const size_t count = 601;
    struct buffer src[MAX_N], dst = buffer_new(dtype, count, n);
    const void *sources[MAX_N];
    uint8_t *expected = malloc(count * oracle_size(dtype)), *to = dst.at;

    for (unsigned i = 0; i < n; i++) {
        src[i] = buffer_new(dtype, count, (i + 1) * n % 64);
        sources[i] = src[i].at;
        to = in_place && i == n / 2 ? src[i].at : to;
    }
    oracle_average(dtype, expected, sources, n, count);
    average_of(dtype).reduce(to, sources, NULL, n, count, 1, n);
    same(isa, "reduce", BPS_AVERAGE, dtype, dtype, to, expected, count);
    for (unsigned i = 0; i < n; i++) {
        buffer_free(&src[i]);
    }
    buffer_free(&dst);
    free(expected);
}

START_TEST(test_averages)
{
    OPEN_OR_RETURN(_i);
    for (unsigned n = 1; n <= MAX_N; n++) {
        for (unsigned i = 0; i < INTEGERS; i++) {
            average_is_right(_i, integers[i], n, false);
            average_is_right(_i, integers[i], n, true);
        }
    }
    plugin->close(instance);
}
END_TEST

#define AVERAGE_IS(type, dtype, ...)                                                                                   \
    do {                                                                                                               \
        const type rows[][4] = {__VA_ARGS__}; /* three sources, and their average */                                   \
        for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {                                              \
            const void *sources[] = {&rows[row][0], &rows[row][1], &rows[row][2]};                                     \
            type mean;                                                                                                 \
            average_of(dtype).reduce(&mean, sources, NULL, 3, 1, 1, 3);                                                \
            ck_assert_int_eq(mean, rows[row][3]);                                                                      \
        }                                                                                                              \
    } while (0)

/* Sums that the type does not hold, and quotients below 0, whatever the oracle thinks. */
START_TEST(test_averages_of_extremes)
{
    OPEN_OR_RETURN(_i);
    AVERAGE_IS(int8_t, BPS_INT8, {100, 100, 100, 100}, {-128, -128, -128, -128}, {-1, 0, 0, -1});
    AVERAGE_IS(uint8_t, BPS_UINT8, {255, 255, 255, 255}, {255, 255, 254, 254}, {0, 0, 2, 0});
    AVERAGE_IS(int16_t, BPS_INT16, {INT16_MAX, INT16_MAX, INT16_MAX, INT16_MAX},
               {INT16_MIN, INT16_MIN, INT16_MIN, INT16_MIN}, {-1, -1, 0, -1});
    AVERAGE_IS(int32_t, BPS_INT32, {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX},
               {INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN}, {INT32_MIN, INT32_MAX, 0, -1});
    AVERAGE_IS(int64_t, BPS_INT64, {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX},
               {INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN}, {INT64_MIN, INT64_MAX, 0, -1},
               {INT64_MAX, INT64_MAX, INT64_MAX - 1, INT64_MAX - 1});
    plugin->close(instance);
}
END_TEST

/* Of truncated contributions; with a factor at the end the quotient is truncated, too. */
START_TEST(test_averages_that_are_scaled)
{
    const int8_t a[] = {100, -7, 3, -128}, b[] = {100, 4, -3, -128};
    const void *sources[] = {a, b};
    const double scales[] = {0.5, 2};
    int8_t mean[4];

    OPEN_OR_RETURN(_i);
    average_of(BPS_INT8).reduce(mean, sources, scales, 2, 4, 1, 2);
    ck_assert_mem_eq(mean, ((int8_t[]){88, 2, -3, -96}), 4); /* 50 + 127, -3 + 8, 1 - 6, -64 - 128 */
    average_of(BPS_INT8).reduce(mean, sources, NULL, 2, 4, 1.5, 2);
    ck_assert_mem_eq(mean, ((int8_t[]){127, -2, 0, -128}), 4); /* 150, -2.25, 0, -192 */
    average_of(BPS_INT8).reduce(mean, sources, scales, 2, 4, -0.25, 2);
    ck_assert_mem_eq(mean, ((int8_t[]){-22, 0, 0, 24}), 4); /* -22.125, -0.625, 0.625, 24 */
    plugin->close(instance);
}
END_TEST

/* ---- conversions --------------------------------------------------------------------------------------- */

/* Every pattern to float32 and back; then float32 around the middle of two neighbours, rounded. */
static void conversions_are_right(int isa, uint32_t dtype, unsigned fraction_bits)
{
    const size_t size = oracle_size(dtype);
    const uint32_t all = 1u << 8 * size, step = 1u << (22 - fraction_bits); /* half a place of a normal number */
    struct bps_kernels k = kernels_of(BPS_SUM, dtype);
    uint8_t *narrow = malloc(all * size), *back = malloc(all * size), *expected = malloc(all * size);
    uint32_t *wide = malloc(all * 4), *right = malloc(all * 4);

    for (uint32_t i = 0; i < all; i++) {
        set_bits(dtype, narrow + i * size, i);
    }
    k.first(wide, narrow, all, 1);
    oracle_first(dtype, right, narrow, all, 1);
    same(isa, "first", BPS_SUM, dtype, BPS_FLOAT32, (uint8_t *)wide, (uint8_t *)right, all);
    for (int delta = -2; delta <= 2; delta++) {
        for (uint32_t i = 0; i < all; i++) {
            wide[i] = right[i] + (delta ? step + (uint32_t)delta + (delta < 0) - (delta > 0) : 0);
        }
        k.finish(back, wide, all, 1, 1);
        oracle_finish(dtype, expected, wide, all, 1, 1);
        same(isa, "finish", BPS_SUM, dtype, dtype, back, expected, all);
    }
    free(narrow);
    free(back);
    free(expected);
    free(wide);
    free(right);
}

/* float32 of every exponent and some fractions, so the subnormal ones and what is too large as well. */
static void rounding_is_right(int isa, uint32_t dtype)
{
    enum { FRACTIONS = 128, ALL = 512 * FRACTIONS };
    const size_t size = oracle_size(dtype);
    uint32_t *wide = malloc(ALL * 4);
    uint8_t *narrow = malloc(ALL * size), *expected = malloc(ALL * size);

    for (uint32_t i = 0; i < ALL; i++) {
        uint32_t fraction = (uint32_t)draw() & 0x7fffff;
        unsigned kept = i % 24; /* few bits: so ties are frequent */

        wide[i] = (i / FRACTIONS) << 23 | (fraction >> kept << kept);
    }
    kernels_of(BPS_SUM, dtype).finish(narrow, wide, ALL, 1, 1);
    oracle_finish(dtype, expected, wide, ALL, 1, 1);
    same(isa, "finish", BPS_SUM, dtype, dtype, narrow, expected, ALL);
    free(wide);
    free(narrow);
    free(expected);
}

START_TEST(test_conversions)
{
    static const struct {
        uint32_t dtype;
        unsigned fraction_bits;
    } narrow[] = {{BPS_FLOAT16, 10}, {BPS_BFLOAT16, 7}, {BPS_FLOAT8_E4M3FN, 3}, {BPS_FLOAT8_E5M2, 2}};

    OPEN_OR_RETURN(_i);
    for (size_t i = 0; i < sizeof narrow / sizeof narrow[0]; i++) {
        conversions_are_right(_i, narrow[i].dtype, narrow[i].fraction_bits);
        rounding_is_right(_i, narrow[i].dtype);
    }
    plugin->close(instance);
}
END_TEST

/* What becomes of numbers near the largest, whatever the oracle thinks: 448 of E4M3, 57344 of E5M2. */
START_TEST(test_largest_of_8_bits)
{
    const float near_448[] = {448, 464, 464.01f, 479, 480, -500, 1e30f, -448, __builtin_inff(), 0x1p-9f};
    const uint8_t e4m3[] = {0x7e, 0x7e, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0xfe, 0x7f, 0x01};
    const float near_57344[] = {57344, 61439, 61440, 65536, -1e30f, -57344, __builtin_nanf(""), 0x1p-16f};
    const uint8_t e5m2[] = {0x7b, 0x7b, 0x7c, 0x7c, 0xfc, 0xfb, 0x7e, 0x01};
    uint8_t out[10];

    OPEN_OR_RETURN(_i);
    kernels_of(BPS_SUM, BPS_FLOAT8_E4M3FN).finish(out, near_448, sizeof e4m3, 1, 1);
    ck_assert_mem_eq(out, e4m3, sizeof e4m3);
    kernels_of(BPS_SUM, BPS_FLOAT8_E5M2).finish(out, near_57344, sizeof e5m2, 1, 1);
    ck_assert_mem_eq(out, e5m2, sizeof e5m2);
    plugin->close(instance);
}
END_TEST

/* ---- independence -------------------------------------------------------------------------------------- */

/* A buffer may be cut anywhere. */
START_TEST(test_cuts)
{
    const size_t count = 1000;

    OPEN_OR_RETURN(_i);
    for (uint32_t dtype = 0; dtype < BPS_DTYPES; dtype++) {
        const uint64_t divisor = oracle_is_float(dtype) ? 3 : 1;
        struct bps_kernels k = kernels_of(BPS_SUM, dtype);
        struct buffer a = buffer_new(dtype, count, 0), b = buffer_new(dtype, count, 0);
        struct buffer whole = buffer_new(dtype, count, 0), pieces = buffer_new(dtype, count, 0);
        const void *sources[] = {a.at, b.at};

        k.reduce(whole.at, sources, NULL, 2, count, 1, divisor);
        for (size_t at = 0, piece; at < count; at += piece) {
            size_t bytes = at * oracle_size(dtype);
            const void *cut[] = {a.at + bytes, b.at + bytes};

            piece = 1 + draw() % 200;
            piece = piece < count - at ? piece : count - at;
            k.reduce(pieces.at + bytes, cut, NULL, 2, piece, 1, divisor);
        }
        same(_i, "reduce in pieces", BPS_SUM, dtype, dtype, pieces.at, whole.at, count);
        buffer_free(&a);
        buffer_free(&b);
        buffer_free(&whole);
        buffer_free(&pieces);
    }
    plugin->close(instance);
}
END_TEST

#ifdef __SSE2__
/* A thread that flushes subnormals, rounds upwards and traps gets the same, and keeps its settings. */
START_TEST(test_floating_point_environment)
{
    enum { COUNT = 500, STATE = 0x8040 | 0x4000 | 0x1d00 }; /* flush both ways, round up, trap the invalid */
    uint32_t dirty = STATE, clean = _mm_getcsr();

    OPEN_OR_RETURN(_i);
    for (uint32_t dtype = 0; dtype < BPS_DTYPES; dtype++) {
        const uint64_t divisor = oracle_is_float(dtype) ? 3 : 1;
        struct bps_kernels k = kernels_of(BPS_SUM, dtype);
        struct buffer a = buffer_new(dtype, COUNT, 0), b = buffer_new(dtype, COUNT, 0);
        struct buffer expected = buffer_new(dtype, COUNT, 0), dst = buffer_new(dtype, COUNT, 0);
        const void *sources[] = {a.at, b.at};

        k.reduce(expected.at, sources, NULL, 2, COUNT, 1, divisor);
        _mm_setcsr(dirty);
        k.reduce(dst.at, sources, NULL, 2, COUNT, 1, divisor);
        dirty = _mm_getcsr();
        _mm_setcsr(clean);
        ck_assert_uint_eq(dirty & 0xffc0, STATE & 0xffc0);
        same(_i, "reduce", BPS_SUM, dtype, dtype, dst.at, expected.at, COUNT);
        buffer_free(&a);
        buffer_free(&b);
        buffer_free(&expected);
        buffer_free(&dst);
    }
    plugin->close(instance);
}
END_TEST
#endif

/* ---- the plugin itself --------------------------------------------------------------------------------- */

START_TEST(test_open)
{
    char text[64] = "", name[32];
    struct bps_kernels k;

    snprintf(name, sizeof name, "isa = \"%s\"", isas[_i]);
    if (open_isa(_i) != BPS_OK) {
        ck_assert_msg(_i > 1, "auto and baseline run everywhere: %s", report.text);
        ck_assert_ptr_nonnull(strstr(report.text, name));
        ck_assert_ptr_nonnull(strstr(report.text, ": baseline"));
        return;
    }
    plugin->describe(instance, text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, _i ? isas[_i] : "kernels for "));
    ck_assert_int_eq(plugin->kernels(instance, BPS_AVERAGE, BPS_FLOAT32, &k), BPS_ERR_UNSUPPORTED);
    ck_assert_int_eq(plugin->kernels(instance, BPS_AVERAGE, BPS_BOOL, &k), BPS_ERR_UNSUPPORTED);
    ck_assert_int_eq(plugin->kernels(instance, BPS_OPS, BPS_FLOAT32, &k), BPS_ERR_UNSUPPORTED);
    ck_assert_int_eq(plugin->kernels(instance, UINT32_MAX, BPS_FLOAT32, &k), BPS_ERR_UNSUPPORTED);
    ck_assert_int_eq(plugin->kernels(instance, BPS_SUM, BPS_DTYPES, &k), BPS_ERR_UNSUPPORTED);
    plugin->close(instance);
}
END_TEST

START_TEST(test_option)
{
    const struct bps_plugin *p = bps_module_reducer_cpu()->plugins[0];
    char words[128] = "";

    for (int i = 0; i < ISAS; i++) {
        snprintf(words + strlen(words), sizeof words - strlen(words), "%s%s", i ? "|" : "", isas[i]);
    }
    ck_assert_str_eq(p->options[0].range, words);
    ck_assert_str_eq(p->options[0].fallback, "auto");
    ck_assert_ptr_null(p->options[1].name);
    ck_assert_int_ne(open_isa(ISAS), BPS_OK);
    ck_assert_str_ne(report.text, "");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("reducer cpu");
    TCase *kernels = tcase_create("kernels"), *module = tcase_create("plugin");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(kernels, 300);
    tcase_add_loop_test(kernels, test_counts, 1, ISAS);
    tcase_add_loop_test(kernels, test_alignments, 1, ISAS);
    tcase_add_loop_test(kernels, test_sources, 1, ISAS);
    tcase_add_loop_test(kernels, test_scales_and_divisors, 1, ISAS);
    tcase_add_loop_test(kernels, test_pairs_of_special_values, 1, ISAS);
    tcase_add_loop_test(kernels, test_min_and_max, 1, ISAS);
    tcase_add_loop_test(kernels, test_averages, 1, ISAS);
    tcase_add_loop_test(kernels, test_averages_of_extremes, 1, ISAS);
    tcase_add_loop_test(kernels, test_averages_that_are_scaled, 1, ISAS);
    tcase_add_loop_test(kernels, test_conversions, 1, ISAS);
    tcase_add_loop_test(kernels, test_largest_of_8_bits, 1, ISAS);
    tcase_add_loop_test(kernels, test_cuts, 1, ISAS);
#ifdef __SSE2__
    tcase_add_loop_test(kernels, test_floating_point_environment, 1, ISAS);
#endif
    tcase_add_loop_test(module, test_open, 0, ISAS);
    tcase_add_test(module, test_option);
    suite_add_tcase(suite, kernels);
    suite_add_tcase(suite, module);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
