/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reducer.c - what is expected of reducers: for each operation and type that they have, the same bits as the oracle, at
 * any address, for any number of sources and elements; of sums that are compensated, less than reducer.h allows between
 * them and the exact ones.
 */
#include "tools/check/reducer.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_SOURCES = 17 };

/* ---- kernels ---- */

static const struct bps_reducer_ops *ops_of(const struct bps_summer *summer)
{
    return summer->instance->ops;
}

static void check_average(const struct bps_summer *summer)
{
    const struct bps_kernels *k = &summer->kernels;
    BPS_CHECK(summer->check, k->first == NULL && k->fold == NULL && k->finish == NULL,
              "first, fold and finish of an average are NULL");
    BPS_CHECK(summer->check, k->reduce != NULL, "its `reduce` is NULL");
}

static void check_steps(const struct bps_summer *summer)
{
    const struct bps_kernels *k = &summer->kernels;
    uint32_t accumulator = oracle_accumulator(summer->dtype);
    BPS_CHECK(summer->check, k->accumulator == accumulator, "its `accumulator` is %s; expected %s",
              bps_dtype_name(k->accumulator), bps_dtype_name(accumulator));
    BPS_CHECK(summer->check, k->first != NULL && k->fold != NULL && k->finish != NULL && k->reduce != NULL,
              "one of `first`, `fold`, `finish` and `reduce` is NULL");
    bool wide = summer->dtype == BPS_FLOAT32 || summer->dtype == BPS_FLOAT64;
    BPS_CHECK(summer->check, !k->compensated || (summer->op == BPS_SUM && wide),
              "it is `compensated`, which only sums of float32 and float64 are");
}

bool bps_summer_kernels(struct bps_summer *summer, uint32_t op, uint32_t dtype)
{
    summer->op = op;
    summer->dtype = dtype;
    BPS_ROOMY(bps_kernels) kernels = {.it = {0}};
    bps_check_at(summer->check, "kernels, %s of %s", bps_op_name(op), bps_dtype_name(dtype));
    bps_status status = ops_of(summer)->kernels(summer->instance->self, op, dtype, &kernels.it);
    summer->kernels = kernels.it;
    BPS_CHECK(summer->check, status == BPS_OK || status == BPS_ERR_UNSUPPORTED,
              "it returns %d; allowed are BPS_OK and BPS_ERR_UNSUPPORTED", status);
    if (status == BPS_OK) {
        (op == BPS_AVERAGE ? check_average : check_steps)(summer);
    }
    return status == BPS_OK;
}

void bps_summer_each(struct bps_check *check, void (*fn)(struct bps_summer *summer))
{
    struct bps_summer summer = {.check = check, .instance = bps_check_open(check)};
    for (uint32_t op = 0; op < BPS_OPS; op++) {
        for (uint32_t dtype = 0; dtype < BPS_DTYPES; dtype++) {
            if (op != BPS_AVERAGE && bps_summer_kernels(&summer, op, dtype)) {
                fn(&summer);
            }
        }
    }
    bps_check_close(check, summer.instance);
}

void bps_summer_each_average(struct bps_check *check, void (*fn)(struct bps_summer *summer))
{
    struct bps_summer summer = {.check = check, .instance = bps_check_open(check)};
    for (uint32_t dtype = 0; dtype < BPS_DTYPES; dtype++) {
        if (!oracle_is_float(dtype) && dtype != BPS_BOOL && bps_summer_kernels(&summer, BPS_AVERAGE, dtype)) {
            fn(&summer);
        }
    }
    bps_check_close(check, summer.instance);
}

/* What it has, as a line for each operation that is not there for all types. */
static void check_kernels(struct bps_check *check)
{
    struct bps_summer summer = {.check = check, .instance = bps_check_open(check)};
    unsigned found = 0;
    for (uint32_t op = 0; op < BPS_OPS; op++) {
        for (uint32_t dtype = 0; dtype < BPS_DTYPES; dtype++) {
            bool none = op == BPS_AVERAGE && (oracle_is_float(dtype) || dtype == BPS_BOOL);
            bool has = bps_summer_kernels(&summer, op, dtype);
            BPS_CHECK(check, !has || !none,
                      "it has kernels; this average is a sum with a divisor, or is not supported");
            found += has;
            if (!has && !none) {
                bps_check_note(check, "no %s of %s", bps_op_name(op), bps_dtype_name(dtype));
            }
        }
    }
    bps_check_at(check, "kernels");
    BPS_CHECK(check, found > 0 || ops_of(&summer)->device != NULL, "it has none at all, and no devices");
    BPS_CHECK(check,
              !bps_summer_kernels(&summer, BPS_OPS, BPS_FLOAT32) && !bps_summer_kernels(&summer, BPS_SUM, BPS_DTYPES),
              "it returns BPS_OK for an operation or a type that does not exist");
    bps_check_close(check, summer.instance);
}

/* ---- elements ---- */

uint64_t bps_summands_draw(void)
{
    static uint64_t seed = 88172645463325252u;
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

void bps_summands_bits(uint32_t dtype, void *at, uint64_t bits)
{
    const uint32_t b32 = (uint32_t)bits;
    const uint16_t b16 = (uint16_t)bits;
    const uint8_t b8 = (uint8_t)bits;
    const void *from[9] = {[1] = &b8, [2] = &b16, [4] = &b32, [8] = &bits};
    memcpy(at, from[oracle_size(dtype)], oracle_size(dtype));
}

void bps_summands_special(uint32_t dtype, void *at, unsigned which)
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
    uint64_t top = (uint64_t)1 << (8 * oracle_size(dtype) - 1), one = 1, infinity = top / 3;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        if (forms[i].dtype == dtype) {
            one = forms[i].one;
            infinity = forms[i].infinity;
        }
    }
    uint64_t least = infinity & -infinity, quiet = infinity | least >> 1; /* with the highest fraction bit */
    const uint64_t magnitudes[BPS_SPECIALS / 2] = {
        0, 1, 2, least, least - 1, one, one + 1, infinity, infinity - 1, quiet, quiet | 7, infinity | 1};
    uint64_t sign = which >= BPS_SPECIALS / 2 ? top : 0;
    bps_summands_bits(dtype, at, magnitudes[which % (BPS_SPECIALS / 2)] | sign);
}

static void set_random(uint32_t dtype, void *at)
{
    uint64_t bits = bps_summands_draw();
    float f = (float)(int64_t)(bits % 4096) / 64 - 32;
    double d = (double)f / 3;
    if (bits >> 60 == 0) {
        bps_summands_special(dtype, at, (unsigned)(bps_summands_draw() % BPS_SPECIALS));
    } else if (bits >> 60 < 4 || !oracle_is_float(dtype)) {
        bps_summands_bits(dtype, at, bps_summands_draw());
    } else if (dtype == BPS_FLOAT64) {
        memcpy(at, &d, sizeof d);
    } else {
        oracle_finish(dtype, at, &f, 1, 1, 3);
    }
}

enum { SLACK_BYTE = 0xa5 };

struct bps_summands bps_summands_new(const struct bps_summer *summer, const char *name, uint32_t dtype, size_t count,
                                     size_t slack)
{
    size_t bytes = count * oracle_size(dtype);
    struct bps_summands out = {.check = summer->check, .bytes = bytes};
    out.memory = bps_guarded_new(summer->check, name, bytes + slack, BPS_GUARDED_BACK);
    out.at = out.memory.at;
    memset(out.at + bytes, SLACK_BYTE, slack);
    for (size_t i = 0; i < count; i++) {
        set_random(dtype, out.at + i * oracle_size(dtype));
    }
    return out;
}

void bps_summands_free(struct bps_summands *summands)
{
    for (size_t i = summands->bytes; i < summands->memory.bytes; i++) {
        BPS_CHECK(summands->check, summands->memory.at[i] == SLACK_BYTE, "it has written byte %zu of %s, which has %zu",
                  i, summands->memory.name, summands->bytes);
    }
    bps_guarded_free(&summands->memory);
}

static uint64_t bits_of(uint32_t dtype, const uint8_t *at)
{
    uint64_t bits = 0;
    memcpy((uint8_t *)&bits, at, oracle_size(dtype)); /* little endian, as all machines that it runs on */
    return bits;
}

void bps_summer_same(const struct bps_summer *summer, const char *what, uint32_t of, const void *got,
                     const void *expected, size_t count)
{
    size_t size = oracle_size(of);
    const uint8_t *a = got, *b = expected;
    if (count == 0 || memcmp(a, b, count * size) == 0) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        BPS_CHECK(summer->check, memcmp(a + i * size, b + i * size, size) == 0,
                  "%s: element %zu of %zu is %#llx; expected %#llx", what, i, count,
                  (unsigned long long)bits_of(of, a + i * size), (unsigned long long)bits_of(of, b + i * size));
    }
}

/* ---- one reduction, step by step and in one pass ---- */

struct example {
    size_t count;
    unsigned n;    /* sources */
    size_t slack;  /* of the buffers: each has another one */
    bool in_place; /* first where acc may be src, finish from acc to acc, reduce to a source */
    bool scaled;
    double scale;
    uint64_t divisor;
};

static void at(const struct bps_summer *summer, const char *kernel, const struct example *e)
{
    bps_check_at(summer->check, "%s, %s of %s, %zu elements, %u sources, %s", kernel, bps_op_name(summer->op),
                 bps_dtype_name(summer->dtype), e->count, e->n, e->in_place ? "in place" : "not in place");
}

/* The end of the steps, in `expected`. */
static void steps_are_right(const struct bps_summer *summer, const struct example *e, const struct bps_summands *src,
                            const double *scales, uint8_t *expected)
{
    const struct bps_kernels *k = &summer->kernels;
    uint32_t acc = k->accumulator;
    struct bps_summands total = bps_summands_new(summer, "acc", acc, e->count, e->slack % 63 + 1);
    struct bps_summands dst = bps_summands_new(summer, "dst", summer->dtype, e->count, e->slack);
    uint8_t *right = calloc(e->count + 1, oracle_size(acc));
    BPS_CHECK(summer->check, right != NULL, "out of memory");
    oracle_first(summer->dtype, right, src[0].at, e->count, scales[0]);
    bool over = e->in_place && acc == summer->dtype;
    if (over) {
        memcpy(total.at, src[0].at, total.bytes);
    }
    at(summer, "first", e);
    k->first(k->context, total.at, over ? total.at : src[0].at, e->count, scales[0]);
    bps_summer_same(summer, "acc", acc, total.at, right, e->count);
    at(summer, "fold", e);
    for (unsigned i = 1; i < e->n; i++) {
        oracle_fold(summer->op, summer->dtype, right, src[i].at, e->count, scales[i]);
        k->fold(k->context, total.at, src[i].at, e->count, scales[i]);
        bps_summer_same(summer, "acc", acc, total.at, right, e->count);
    }
    oracle_finish(summer->dtype, expected, right, e->count, e->scale, e->divisor);
    at(summer, "finish", e);
    k->finish(k->context, dst.at, total.at, e->count, e->scale, e->divisor);
    bps_summer_same(summer, "dst", summer->dtype, dst.at, expected, e->count);
    k->finish(k->context, total.at, total.at, e->count, e->scale, e->divisor);
    bps_summer_same(summer, "dst, which is acc", summer->dtype, total.at, expected, e->count);
    free(right);
    bps_summands_free(&dst);
    bps_summands_free(&total);
}

static void reduce_is_right(const struct bps_summer *summer, const struct example *e, const struct bps_summands *src,
                            const double *scales, const uint8_t *expected)
{
    const void *sources[MOST_SOURCES];
    struct bps_summands dst = bps_summands_new(summer, "dst", summer->dtype, e->count, (3 * e->slack + 2) % 64);
    for (unsigned i = 0; i < e->n; i++) {
        sources[i] = src[i].at;
        bps_guarded_read_only(&src[i].memory, !e->in_place);
    }
    uint8_t *to = e->in_place ? src[(e->count + e->slack) % e->n].at : dst.at;
    struct bps_exact *exact =
        summer->kernels.compensated ? bps_summer_exact(summer, sources, scales, e->n, e->count) : NULL;
    at(summer, "reduce", e);
    summer->kernels.reduce(summer->kernels.context, to, sources, scales, e->n, e->count, e->scale, e->divisor);
    if (exact != NULL) {
        bps_summer_near(summer, to, expected, exact, e->n, e->count, e->scale / (double)e->divisor);
    } else {
        bps_summer_same(summer, "dst", summer->dtype, to, expected, e->count);
    }
    free(exact);
    bps_summands_free(&dst);
}

static void is_right(const struct bps_summer *summer, const struct example *e)
{
    static const double some_scales[MOST_SOURCES] = {0.5, -3, 1, 1.0 / 3, 0, 1e-30, 1e30, -0.0, 7, 2};
    static const double no_scales[MOST_SOURCES] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const double *scales = e->scaled && summer->dtype != BPS_BOOL ? some_scales : no_scales;
    struct bps_summands src[MOST_SOURCES];
    uint8_t *expected = calloc(e->count + 1, oracle_size(summer->dtype));
    BPS_CHECK(summer->check, expected != NULL, "out of memory");
    for (unsigned i = 0; i < e->n; i++) {
        src[i] = bps_summands_new(summer, "src", summer->dtype, e->count, ((i + 1) * e->slack) % 64);
    }
    steps_are_right(summer, e, src, scales, expected);
    reduce_is_right(summer, e, src, e->scaled ? scales : NULL, expected);
    for (unsigned i = 0; i < e->n; i++) {
        bps_summands_free(&src[i]);
    }
    free(expected);
}

/* With the divisors and scales that the type has. */
static void example_is_right(const struct bps_summer *summer, struct example e)
{
    e.divisor = oracle_is_float(summer->dtype) ? e.divisor : 1;
    e.scale = summer->dtype == BPS_BOOL ? 1 : e.scale;
    is_right(summer, &e);
}

/* ---- the examples ---- */

static void count_elements(struct bps_summer *summer)
{
    for (size_t count = 0; count <= 257; count += count < 130 ? 1 : 7) {
        example_is_right(summer, (struct example){.count = count, .n = 3, .scale = 1, .divisor = 1});
    }
    example_is_right(summer, (struct example){.count = 4099, .n = 2, .scale = 1, .divisor = 2});
    example_is_right(summer, (struct example){.count = 65537, .n = 2, .scale = 3, .divisor = 2, .scaled = true});
}

static void check_counts(struct bps_check *check)
{
    bps_summer_each(check, count_elements);
}

static void shift_elements(struct bps_summer *summer)
{
    for (size_t slack = 0; slack < 64; slack++) {
        struct example e = {.count = 333, .n = 2, .scale = 1, .divisor = 4, .slack = slack, .in_place = slack % 2};
        example_is_right(summer, e);
    }
}

static void check_alignments(struct bps_check *check)
{
    bps_summer_each(check, shift_elements);
}

static void count_sources(struct bps_summer *summer)
{
    for (unsigned n = 1; n <= MOST_SOURCES; n++) {
        for (unsigned variant = 0; variant < 4; variant++) {
            struct example e = {.count = 301, .n = n, .scale = 1, .divisor = n, .slack = n};
            e.scaled = variant & 1;
            e.in_place = variant & 2;
            example_is_right(summer, e);
        }
    }
}

static void check_sources(struct bps_check *check)
{
    bps_summer_each(check, count_sources);
}

static void scale_and_divide(struct bps_summer *summer)
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
    for (size_t s = 0; s < sizeof scales / sizeof scales[0]; s++) {
        for (size_t d = 0; d < sizeof divisors / sizeof divisors[0]; d++) {
            struct example e = {.count = 150, .n = 2, .scale = scales[s], .divisor = divisors[d], .scaled = true};
            example_is_right(summer, e);
        }
    }
}

static void check_scales(struct bps_check *check)
{
    bps_summer_each(check, scale_and_divide);
}

/* Each special value with each. */
static void pair_specials(struct bps_summer *summer)
{
    enum { COUNT = BPS_SPECIALS * BPS_SPECIALS };
    uint32_t dtype = summer->dtype;
    size_t size = oracle_size(dtype);
    uint8_t a[COUNT * 8], b[COUNT * 8], dst[COUNT * 8], expected[COUNT * 8], total[COUNT * 8];
    const void *sources[] = {a, b};
    for (unsigned i = 0; i < COUNT; i++) {
        bps_summands_special(dtype, a + i * size, i % BPS_SPECIALS);
        bps_summands_special(dtype, b + i * size, i / BPS_SPECIALS);
    }
    oracle_first(dtype, total, a, COUNT, 1);
    oracle_fold(summer->op, dtype, total, b, COUNT, 1);
    oracle_finish(dtype, expected, total, COUNT, 1, 1);
    bps_check_at(summer->check, "reduce, %s of %s, pairs of special values", bps_op_name(summer->op),
                 bps_dtype_name(dtype));
    summer->kernels.reduce(summer->kernels.context, dst, sources, NULL, 2, COUNT, 1, 1);
    bps_summer_same(summer, "dst", dtype, dst, expected, COUNT);
}

static void check_specials(struct bps_check *check)
{
    bps_summer_each(check, pair_specials);
}

/* ---- averages of integers ---- */

static void average_is_right(struct bps_summer *summer, unsigned n, bool in_place)
{
    enum { COUNT = 601 };
    struct example e = {.count = COUNT, .n = n, .in_place = in_place};
    struct bps_summands src[MOST_SOURCES], dst = bps_summands_new(summer, "dst", summer->dtype, COUNT, n);
    const void *sources[MOST_SOURCES];
    uint8_t expected[COUNT * 8], *to = dst.at;
    for (unsigned i = 0; i < n; i++) {
        src[i] = bps_summands_new(summer, "src", summer->dtype, COUNT, (i + 1) * n % 64);
        sources[i] = src[i].at;
        to = in_place && i == n / 2 ? src[i].at : to;
    }
    oracle_average(summer->dtype, expected, sources, n, COUNT);
    at(summer, "reduce", &e);
    summer->kernels.reduce(summer->kernels.context, to, sources, NULL, n, COUNT, 1, n);
    bps_summer_same(summer, "dst", summer->dtype, to, expected, COUNT);
    for (unsigned i = 0; i < n; i++) {
        bps_summands_free(&src[i]);
    }
    bps_summands_free(&dst);
}

static void average_sources(struct bps_summer *summer)
{
    for (unsigned n = 1; n <= MOST_SOURCES; n++) {
        average_is_right(summer, n, false);
        average_is_right(summer, n, true);
    }
}

static void check_averages(struct bps_check *check)
{
    bps_summer_each_average(check, average_sources);
}

const struct bps_check_test bps_check_reducer[] = {
    {"kernels: which there are", check_kernels, 0},
    {"counts of elements", check_counts, 6},
    {"alignments", check_alignments, 6},
    {"counts of sources, in place, with scales", check_sources, 6},
    {"scales and divisors", check_scales, 6},
    {"pairs of special values", check_specials, 0},
    {"averages of integers", check_averages, 3},
    {"minimum and maximum: NaN and zeros", bps_check_known_extremes, 0},
    {"averages of integers: sums beyond the type, below 0, with scales", bps_check_known_averages, 0},
    {"numbers near the largest of 8 bits", bps_check_known_8_bits, 0},
    {"conversions of 8 and 16 bits", bps_check_conversions, 3},
    {"buffers cut anywhere", bps_check_cuts, 0},
    {"several threads", bps_check_reducing_threads, 0},
    {"a thread with other floating-point settings", bps_check_environment, 0},
    {"devices: marks", bps_check_device_marks, 0},
    {"devices: copies", bps_check_device_copies, 0},
    {"devices: reductions", bps_check_device_reductions, 3},
    {"devices: close", bps_check_device_close, 0},
    {NULL, NULL, 0},
};
