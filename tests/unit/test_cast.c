/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cast.c - the compressor "cast" against the definitions of its formats, bit by bit, and against bytes that nobody
 * has coded.
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

const struct bps_module *bps_module_compressor_cast(void);

static const size_t counts[] = {0, 1, 7, 8, 9, 31, 32, 33, 255, 256, 257, 5000};
#define COUNTS (sizeof counts / sizeof *counts)

static const uint32_t dtypes[] = {BPS_FLOAT32, BPS_FLOAT64};
static const struct bps_random draw = {.shared = 1, .own = 2};

/* ---- the formats, by their definition ---------------------------------------------------------------------- */

struct format {
    const char *name;
    int bytes, fraction, least; /* bits of the fraction; exponent of the smallest normal number */
    unsigned infinity, nan;     /* codes; 0: there is no infinity */
    double largest;
};

/* In the order of the option to. */
static const struct format formats[] = {
    {"float16", 2, 10, -14, 0x7c00, 0x7e00, 65504},
    {"bfloat16", 2, 7, -126, 0x7f80, 0x7fc0, 0x1.fep127},
    {"float8_e4m3", 1, 3, -6, 0, 0x7f, 448},
    {"float8_e5m2", 1, 2, -14, 0x7c, 0x7e, 57344},
};
#define FORMATS 4

/* The first code that is no number. */
static unsigned end_of(const struct format *f)
{
    return f->infinity != 0 ? f->infinity : f->nan;
}

/* What a code without sign stands for; end_of() for the number that would follow. */
static double number(const struct format *f, unsigned code)
{
    int exponent = (int)(code >> f->fraction);
    unsigned fraction = code & ((1u << f->fraction) - 1);
    int place = f->least - f->fraction + (exponent > 0 ? exponent - 1 : 0);
    return ldexp(fraction + (exponent > 0 ? 1u << f->fraction : 0), place);
}

static double meaning(const struct format *f, unsigned code)
{
    unsigned sign = 1u << (8 * f->bytes - 1), magnitude = code & (sign - 1);
    double x = magnitude < end_of(f) ? number(f, magnitude) : magnitude == f->infinity ? INFINITY : NAN;
    return code & sign ? -x : x;
}

/* The nearest code; of two the even one. */
static unsigned nearest(const struct format *f, double x)
{
    unsigned sign = signbit(x) ? 1u << (8 * f->bytes - 1) : 0, low = 0, high = end_of(f);
    double magnitude = fabs(x);
    if (isnan(x)) {
        return f->nan;
    }
    if (magnitude >= number(f, high)) {
        return f->infinity != 0 ? sign | f->infinity : f->nan;
    }
    while (high - low > 1) {
        unsigned middle = low + (high - low) / 2;
        if (number(f, middle) <= magnitude) {
            low = middle;
        } else {
            high = middle;
        }
    }
    double below = magnitude - number(f, low), above = number(f, high) - magnitude;
    unsigned code = below < above || (below == above && low % 2 == 0) ? low : high;
    return code == f->nan ? code : sign | code;
}

/* ---- slices, as cast.c says what they become ---------------------------------------------------------------- */

struct slice {
    uint32_t dtype;
    size_t count, block, bytes;
    const struct format *format;
    uint8_t *from, *code, *to;
    void *base[3];
};

static bps_status open_cast(struct rig *rig, int isa, int to, size_t block)
{
    const struct rig_setting settings[] = {{"to", to}, {"block", (double)block}, {"isa", isa}};
    return rig_open(rig, bps_module_compressor_cast(), settings, 3);
}

#define OPEN_OR_RETURN(rig, isa, to, block)                                                                            \
    do {                                                                                                               \
        if (open_cast(rig, isa, to, block) != BPS_OK) {                                                                \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

static struct slice make_slice(const struct rig *rig, uint32_t dtype, int to, size_t block, size_t count)
{
    struct slice s = {.dtype = dtype, .count = count, .block = block, .format = &formats[to]};
    s.bytes = rig->ops->bound(rig->instance, dtype, count);
    s.from = rig_odd(count * rig_size(dtype), &s.base[0]);
    s.code = rig_odd(s.bytes, &s.base[1]);
    s.to = rig_odd(count * rig_size(dtype), &s.base[2]);
    for (size_t i = 0; i < count; i++) {
        rig_put(dtype, s.to, i, (double)i - 100);
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

static float scale_of(const struct slice *s, size_t begin)
{
    double most = 0;
    for (size_t i = begin; i < begin + s->block && i < s->count; i++) {
        double x = fabs(rig_get(s->dtype, s->from, i));
        most = isfinite(x) && x > most ? x : most;
    }
    double scale = most / s->format->largest;
    return most == 0 ? 1 : scale > FLT_MAX ? FLT_MAX : scale < FLT_MIN ? FLT_MIN : (float)scale;
}

/* The number that is rounded. */
static double scaled(const struct slice *s, double x, float scale)
{
    if (s->format->bytes == 2) {
        return x;
    }
    return s->dtype == BPS_FLOAT32 ? (double)((float)x * (1.0f / scale)) : x * (1.0 / scale);
}

static double unscaled(const struct slice *s, double x, float scale)
{
    double y = s->format->bytes == 2 ? x : x * scale;
    return s->dtype == BPS_FLOAT32 ? (double)(float)y : y;
}

static bool same(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b);
}

/* Where element i is coded, and with which scale. */
static size_t place_of(const struct slice *s, size_t i, float *scale)
{
    size_t block = i / s->block;
    if (s->format->bytes == 2) {
        *scale = 1;
        return 2 * i;
    }
    memcpy(scale, s->code + block * (s->block + 4), 4); /* tests run where numbers are little endian */
    return i + 4 * (block + 1);
}

static void element_is_right(const struct slice *s, size_t i, float want)
{
    float scale = 0;
    size_t place = place_of(s, i, &scale);
    double x = rig_get(s->dtype, s->from, i);
    unsigned code = s->code[place], right = nearest(s->format, scaled(s, x, want));
    code |= s->format->bytes == 2 ? (unsigned)s->code[place + 1] << 8 : 0;
    ck_assert(scale == want);
    ck_assert_msg(code == right, "%s: %a with scale %a is %#x, expected %#x", s->format->name, x, (double)scale, code,
                  right);
    double y = rig_get(s->dtype, s->to, i);
    ck_assert_msg(same(y, unscaled(s, meaning(s->format, code), scale)), "%s: %#x became %a", s->format->name, code, y);
    ck_assert(isfinite(x) || !isfinite(y));
}

/* Codes what is in s->from. */
static void slice_is_right(const struct rig *rig, struct slice *s)
{
    encode(rig, s);
    ck_assert_int_eq(decode(rig, s), BPS_OK);
    for (size_t i = 0; i < s->count; i += s->block) {
        float scale = s->format->bytes == 2 ? 1 : scale_of(s, i);
        for (size_t j = i; j < i + s->block && j < s->count; j++) {
            element_is_right(s, j, scale);
        }
    }
}

/* ---- tests ---------------------------------------------------------------------------------------------------- */

/* Every code there is; those of 8 bits with a scale. */
START_TEST(test_all_codes)
{
    struct rig rig;
    for (int example = 0; example < 2 * FORMATS; example++) {
        int to = example / 2, codes = 1 << 8 * formats[to].bytes;
        const float scale = 0.75f;
        OPEN_OR_RETURN(&rig, _i, to, 256);
        struct slice s = make_slice(&rig, dtypes[example % 2], to, 256, (size_t)codes);
        if (formats[to].bytes == 1) {
            memcpy(s.code, &scale, sizeof scale);
        }
        for (int i = 0; i < codes; i++) {
            float unused;
            memcpy(s.code + place_of(&s, (size_t)i, &unused), &i, (size_t)formats[to].bytes);
        }
        ck_assert_int_eq(decode(&rig, &s), BPS_OK);
        for (int i = 0; i < codes; i++) {
            double y = rig_get(s.dtype, s.to, (size_t)i), want = unscaled(&s, meaning(s.format, (unsigned)i), scale);
            ck_assert_msg(same(y, want), "%s: %#x became %a, expected %a", s.format->name, (unsigned)i, y, want);
        }
        free_slice(&s);
        rig.ops->close(rig.instance);
    }
}
END_TEST

/* Around code `code` of a format: the number, the middle before the next one, and what is beside that. */
static double around(const struct format *f, uint32_t dtype, unsigned code, unsigned which)
{
    double low = number(f, code), middle = low + (number(f, code + 1) - low) / 2;
    float narrow = (float)middle;
    double sign = which % 2 ? -1 : 1;
    switch (which / 2) {
    case 0:
        return sign * low;
    case 1:
        return sign * middle;
    case 2:
        return sign * (dtype == BPS_FLOAT32 ? (double)nextafterf(narrow, 0) : nextafter(middle, 0));
    default:
        return sign * (dtype == BPS_FLOAT32 ? (double)nextafterf(narrow, INFINITY) : nextafter(middle, INFINITY));
    }
}

/* All numbers and all ties; with 8 bits at the scale 1, since each block has the largest number. */
START_TEST(test_rounding)
{
    struct rig rig;
    for (int example = 0; example < 2 * FORMATS; example++) {
        int to = example / 2;
        OPEN_OR_RETURN(&rig, _i, to, 32);
        unsigned end = end_of(&formats[to]), all = end * 8;
        bool blocks = formats[to].bytes == 1;
        /* The middle behind the largest number would change the scale. */
        size_t count = blocks ? (all - 8) / 31 * 32 : all;
        struct slice s = make_slice(&rig, dtypes[example % 2], to, 32, count);
        for (size_t i = 0, next = 0; i < count; i++) {
            bool first = blocks && i % 32 == 0;
            double x = first ? formats[to].largest : around(&formats[to], s.dtype, (unsigned)next / 8, next % 8);
            rig_put(s.dtype, s.from, i, x);
            next += !first;
        }
        slice_is_right(&rig, &s);
        free_slice(&s);
        rig.ops->close(rig.instance);
    }
}
END_TEST

/* Any bits; one in nine is special. */
static void fill(struct slice *s, unsigned *seed)
{
    static const double special[] = {0.0,      -0.0,      1e-45,   -1e-38,   NAN,  -NAN,
                                     INFINITY, -INFINITY, FLT_MAX, 65519.99, 65520};
    int spread = rand_r(seed) % 4 * (s->dtype == BPS_FLOAT32 ? 40 : 300);
    bool broken = rand_r(seed) % 2;
    for (size_t i = 0; i < s->count; i++) {
        double x = (rand_r(seed) / (double)RAND_MAX - 0.5) * ldexp(1, rand_r(seed) % (spread + 5) - spread / 2);
        double other = special[rand_r(seed) % 11];
        rig_put(s->dtype, s->from, i, rand_r(seed) % 9 > 0 || (!broken && !isfinite(other)) ? x : other);
    }
}

START_TEST(test_any_elements)
{
    static const size_t blocks[] = {32, 256, 2048};
    unsigned seed = 1;
    struct rig rig;
    for (size_t example = 0; example < 2 * 3 * FORMATS * COUNTS * 4; example++) {
        int to = (int)(example / 6 % FORMATS);
        size_t block = blocks[example / 2 % 3], count = counts[example / 6 / FORMATS % COUNTS];
        OPEN_OR_RETURN(&rig, _i, to, block);
        struct slice s = make_slice(&rig, dtypes[example % 2], to, block, count);
        fill(&s, &seed);
        slice_is_right(&rig, &s);
        free_slice(&s);
        rig.ops->close(rig.instance);
    }
}
END_TEST

/* Scales at the ends of what float32 has; elements that no scale makes small enough. */
START_TEST(test_scales_at_the_ends)
{
    static const double most[] = {0, 1e-45, 5e-324, 448 * 0x1p-126, 447 * 0x1p-126, FLT_MAX, 448.0 * FLT_MAX, 1e300};
    struct rig rig;
    for (size_t example = 0; example < 2 * 2 * 8; example++) {
        int to = 2 + (int)(example / 2 % 2);
        OPEN_OR_RETURN(&rig, _i, to, 64);
        struct slice s = make_slice(&rig, dtypes[example % 2], to, 64, 100);
        for (size_t i = 0; i < s.count; i++) {
            double x = most[example / 4] / (1 + (double)(i % 13));
            rig_put(s.dtype, s.from, i, s.dtype == BPS_FLOAT32 && x > FLT_MAX ? FLT_MAX : x);
        }
        slice_is_right(&rig, &s);
        free_slice(&s);
        rig.ops->close(rig.instance);
    }
}
END_TEST

START_TEST(test_decode_add_adds)
{
    unsigned seed = 2;
    struct rig rig;
    for (size_t example = 0; example < 2 * FORMATS * COUNTS; example++) {
        int to = (int)(example / 2 % FORMATS);
        OPEN_OR_RETURN(&rig, _i, to, 64);
        struct slice s = make_slice(&rig, dtypes[example % 2], to, 64, counts[example / 2 / FORMATS]);
        struct slice sum = make_slice(&rig, s.dtype, to, 64, s.count);
        fill(&s, &seed);
        encode(&rig, &s);
        memcpy(sum.code, s.code, s.bytes);
        ck_assert_int_eq(decode(&rig, &s), BPS_OK);
        ck_assert_int_eq(decode_add(&rig, &sum), BPS_OK);
        for (size_t i = 0; i < s.count; i++) {
            double want = ((double)i - 100) + rig_get(s.dtype, s.to, i);
            ck_assert(same(rig_get(s.dtype, sum.to, i), s.dtype == BPS_FLOAT32 ? (double)(float)want : want));
        }
        free_slice(&s);
        free_slice(&sum);
        rig.ops->close(rig.instance);
    }
}
END_TEST

/* The bytes on the wire, which other builds and machines have to understand. */
START_TEST(test_the_format)
{
    static const double x[4] = {-896, 1, 0, 448};
    static const uint8_t want[FORMATS][8] = {
        {0x00, 0xe3, 0x00, 0x3c, 0x00, 0x00, 0x00, 0x5f},
        {0x60, 0xc4, 0x80, 0x3f, 0x00, 0x00, 0xe0, 0x43},
        {0x00, 0x00, 0x00, 0x40, 0xfe, 0x30, 0x00, 0x76}, /* 2.0; -448, 0.5, 0, 224 */
        {0x00, 0x00, 0x80, 0x3c, 0xfb, 0x54, 0x00, 0x77}, /* 2^-6; -57344, 64, 0, 28672 */
    };
    struct rig rig;
    for (int to = 0; to < FORMATS; to++) {
        OPEN_OR_RETURN(&rig, _i, to, 256);
        struct slice s = make_slice(&rig, BPS_FLOAT32, to, 256, 4);
        for (size_t i = 0; i < 4; i++) {
            rig_put(s.dtype, s.from, i, x[i]);
        }
        encode(&rig, &s);
        ck_assert_uint_eq(s.bytes, 8);
        ck_assert_mem_eq(s.code, want[to], 8);
        free_slice(&s);
        rig.ops->close(rig.instance);
    }
}
END_TEST

/* The floating point settings of the calling thread make no difference, and stay. */
START_TEST(test_flushed_subnormals)
{
#ifdef __SSE2__
    struct rig rig;
    OPEN_OR_RETURN(&rig, _i, 1, 256);
    struct slice s = make_slice(&rig, BPS_FLOAT32, 1, 256, 40);
    for (size_t i = 0; i < s.count; i++) {
        rig_put(s.dtype, s.from, i, 0x1p-130);
        rig_put(s.dtype, s.to, i, 0x1p-130);
    }
    unsigned before = _mm_getcsr(), flush = before | 0x8040;
    _mm_setcsr(flush);
    encode(&rig, &s);
    decode_add(&rig, &s);
    unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    ck_assert_uint_eq(after & 0xffc0, flush & 0xffc0);
    ck_assert(rig_get(s.dtype, s.to, 0) == 0x1p-129 && rig_get(s.dtype, s.to, 39) == 0x1p-129);
    free_slice(&s);
    rig.ops->close(rig.instance);
#endif
}
END_TEST

/* Any length but the right one is refused, before anything is read. */
START_TEST(test_foreign_lengths)
{
    struct rig rig;
    for (int to = 0; to < FORMATS; to++) {
        OPEN_OR_RETURN(&rig, _i, to, 32);
        for (size_t count = 0; count < 100; count++) {
            struct slice s = make_slice(&rig, dtypes[count % 2], to, 32, count);
            size_t right = s.bytes;
            uint8_t *code = s.code;
            memset(s.from, 0, count * rig_size(s.dtype));
            encode(&rig, &s);
            for (size_t bytes = 0; bytes < right + 9; bytes++) {
                void *base;
                s.bytes = bytes;
                s.code = rig_odd(bytes, &base);
                memcpy(s.code, code, bytes < right ? bytes : right);
                bps_status want = bytes == right ? BPS_OK : BPS_ERR_PROTOCOL;
                ck_assert_int_eq(decode(&rig, &s), want);
                ck_assert_int_eq(decode_add(&rig, &s), want);
                free(base);
            }
            free_slice(&s);
        }
        rig.ops->close(rig.instance);
    }
}
END_TEST

/* In the last of two blocks. */
START_TEST(test_foreign_scales)
{
    static const float refused[] = {0, -0.0f, -1, NAN, INFINITY, 0x1p-127f}, accepted[] = {FLT_MIN, 1, FLT_MAX};
    struct rig rig;
    for (int to = 2; to < FORMATS; to++) {
        OPEN_OR_RETURN(&rig, _i, to, 32);
        struct slice s = make_slice(&rig, BPS_FLOAT32, to, 32, 40);
        memset(s.from, 0, 40 * sizeof(float));
        encode(&rig, &s);
        for (size_t i = 0; i < 9; i++) {
            memcpy(s.code + 36, i < 6 ? &refused[i] : &accepted[i - 6], 4);
            ck_assert_int_eq(decode(&rig, &s), i < 6 ? BPS_ERR_PROTOCOL : BPS_OK);
            ck_assert_int_eq(decode_add(&rig, &s), i < 6 ? BPS_ERR_PROTOCOL : BPS_OK);
        }
        free_slice(&s);
        rig.ops->close(rig.instance);
    }
}
END_TEST

START_TEST(test_options)
{
    static const char *const names[RIG_ISAS] = {"", "baseline", "avx2", "avx512"};
    struct rig rig;
    char text[100];
    for (int to = 0; to < FORMATS; to++) {
        if (open_cast(&rig, _i, to, 128) != BPS_OK) {
            ck_assert_int_gt(_i, 1);
            ck_assert_ptr_nonnull(strstr(rig.report.text, names[_i]));
            return;
        }
        rig.ops->describe(rig.instance, text, sizeof text);
        ck_assert(strstr(text, names[_i]) != NULL && strncmp(text, formats[to].name, strlen(formats[to].name)) == 0);
        ck_assert_int_eq(strstr(text, "128") != NULL, formats[to].bytes == 1);
        for (uint32_t dtype = 0; dtype < BPS_DTYPES; dtype++) {
            bool coded = dtype == BPS_FLOAT32 || dtype == BPS_FLOAT64;
            ck_assert_uint_eq(rig.ops->bound(rig.instance, dtype, 100) > 0, coded);
        }
        rig.ops->close(rig.instance);
    }
    ck_assert_int_eq(open_cast(&rig, _i, 0, 48), BPS_ERR_CONF);
    ck_assert_ptr_nonnull(strstr(rig.report.text, "48"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cast");
    TCase *tests = tcase_create("cast");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, test_all_codes, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_rounding, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_any_elements, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_scales_at_the_ends, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_decode_add_adds, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_the_format, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_flushed_subnormals, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_foreign_lengths, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_foreign_scales, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_options, 0, RIG_ISAS);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed > 0;
}
