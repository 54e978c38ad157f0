/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cast.c - the compressor "cast" against the definitions of its formats, bit by bit, and against bytes that nobody
 * has coded.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compressor_tests.h"

const struct bps_module *bps_module_compressor_cast(void);

static const size_t counts[] = {0, 1, 7, 8, 9, 31, 32, 33, 255, 256, 257, 5000};

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

enum { TO, BLOCK }; /* options; to: an index of formats */

static const double methods[][METHOD_OPTIONS] = {
    {0, 256}, {1, 256}, {2, 256}, {3, 256}, {0, 32}, {1, 32}, {2, 32}, {3, 32}, {2, 64}, {3, 64}, {2, 2048}, {3, 2048},
};

static const struct format *format_of(const double *method)
{
    return &formats[(int)method[TO]];
}

static size_t block_of(const double *method)
{
    return (size_t)method[BLOCK];
}

static size_t bytes_of(const double *method, uint32_t dtype, size_t count)
{
    (void)dtype;
    return format_of(method)->bytes == 2 ? 2 * count : count + (count + block_of(method) - 1) / block_of(method) * 4;
}

static float scale_of(const struct slice *s, size_t begin)
{
    double most = 0;
    for (size_t i = begin; i < begin + block_of(s->method) && i < s->count; i++) {
        double x = fabs(rig_get(s->dtype, s->from, i));
        most = isfinite(x) && x > most ? x : most;
    }
    double scale = most / format_of(s->method)->largest;
    return most == 0 ? 1 : scale > FLT_MAX ? FLT_MAX : scale < FLT_MIN ? FLT_MIN : (float)scale;
}

/* The number that is rounded. */
static double scaled(const struct slice *s, double x, float scale)
{
    if (format_of(s->method)->bytes == 2) {
        return x;
    }
    return s->dtype == BPS_FLOAT32 ? (double)((float)x * (1.0f / scale)) : x * (1.0 / scale);
}

static double unscaled(const struct slice *s, double x, float scale)
{
    double y = format_of(s->method)->bytes == 2 ? x : x * scale;
    return s->dtype == BPS_FLOAT32 ? (double)(float)y : y;
}

/* Where element i is coded, and with which scale. */
static size_t place_of(const struct slice *s, size_t i, float *scale)
{
    size_t block = i / block_of(s->method);
    if (format_of(s->method)->bytes == 2) {
        *scale = 1;
        return 2 * i;
    }
    memcpy(scale, s->code + block * (block_of(s->method) + 4), 4); /* tests run where numbers are little endian */
    return i + 4 * (block + 1);
}

static void element_is_right(const struct slice *s, size_t i, float want)
{
    float scale = 0;
    size_t place = place_of(s, i, &scale);
    double x = rig_get(s->dtype, s->from, i);
    unsigned code = s->code[place], right = nearest(format_of(s->method), scaled(s, x, want));
    code |= format_of(s->method)->bytes == 2 ? (unsigned)s->code[place + 1] << 8 : 0;
    ck_assert(scale == want);
    ck_assert_msg(code == right, "%s: %a with scale %a is %#x, expected %#x", format_of(s->method)->name, x,
                  (double)scale, code, right);
    double y = rig_get(s->dtype, s->to, i);
    ck_assert_msg(same(y, unscaled(s, meaning(format_of(s->method), code), scale)), "%s: %#x became %a",
                  format_of(s->method)->name, code, y);
    ck_assert(isfinite(x) || !isfinite(y));
}

/* Codes what is in s->from. */
static void slice_is_right(struct slice *s)
{
    encode(s);
    ck_assert_int_eq(decode(s), BPS_OK);
    for (size_t i = 0; i < s->count; i += block_of(s->method)) {
        float scale = format_of(s->method)->bytes == 2 ? 1 : scale_of(s, i);
        for (size_t j = i; j < i + block_of(s->method) && j < s->count; j++) {
            element_is_right(s, j, scale);
        }
    }
}

/* ---- tests ---------------------------------------------------------------------------------------------------- */

/* Every code there is; those of 8 bits with a scale. */
START_TEST(test_all_codes)
{
    for (int example = 0; example < 2 * FORMATS; example++) {
        int to = example / 2, codes = 1 << 8 * formats[to].bytes;
        const float scale = 0.75f;
        struct slice s = make_slice(_i, methods[to], float_types[example % 2], (size_t)codes);
        if (formats[to].bytes == 1) {
            memcpy(s.code, &scale, sizeof scale);
        }
        for (int i = 0; i < codes; i++) {
            float unused;
            memcpy(s.code + place_of(&s, (size_t)i, &unused), &i, (size_t)formats[to].bytes);
        }
        ck_assert_int_eq(decode(&s), BPS_OK);
        for (int i = 0; i < codes; i++) {
            double y = rig_get(s.dtype, s.to, (size_t)i),
                   want = unscaled(&s, meaning(format_of(s.method), (unsigned)i), scale);
            ck_assert_msg(same(y, want), "%s: %#x became %a, expected %a", format_of(s.method)->name, (unsigned)i, y,
                          want);
        }
        free_slice(&s);
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
    for (int example = 0; example < 2 * FORMATS; example++) {
        int to = example / 2;
        unsigned end = end_of(&formats[to]), all = end * 8;
        bool blocks = formats[to].bytes == 1;
        /* The middle behind the largest number would change the scale. */
        size_t count = blocks ? (all - 8) / 31 * 32 : all;
        struct slice s = make_slice(_i, methods[FORMATS + to], float_types[example % 2], count);
        for (size_t i = 0, next = 0; i < count; i++) {
            bool first = blocks && i % 32 == 0;
            double x = first ? formats[to].largest : around(&formats[to], s.dtype, (unsigned)next / 8, next % 8);
            rig_put(s.dtype, s.from, i, x);
            next += !first;
        }
        slice_is_right(&s);
        free_slice(&s);
    }
}
END_TEST

/* Scales at the ends of what float32 has; elements that no scale makes small enough. */
START_TEST(test_scales_at_the_ends)
{
    static const double most[] = {0, 1e-45, 5e-324, 448 * 0x1p-126, 447 * 0x1p-126, FLT_MAX, 448.0 * FLT_MAX, 1e300};
    for (size_t example = 0; example < 2 * 2 * 8; example++) {
        int to = 2 + (int)(example / 2 % 2);
        struct slice s = make_slice(_i, methods[6 + to], float_types[example % 2], 100);
        for (size_t i = 0; i < s.count; i++) {
            double x = most[example / 4] / (1 + (double)(i % 13));
            rig_put(s.dtype, s.from, i, s.dtype == BPS_FLOAT32 && x > FLT_MAX ? FLT_MAX : x);
        }
        slice_is_right(&s);
        free_slice(&s);
    }
}
END_TEST

/* In the last of two blocks. */
START_TEST(test_foreign_scales)
{
    static const float refused[] = {0, -0.0f, -1, NAN, INFINITY, 0x1p-127f}, accepted[] = {FLT_MIN, 1, FLT_MAX};
    for (int to = 2; to < FORMATS; to++) {
        struct slice s = make_slice(_i, methods[FORMATS + to], BPS_FLOAT32, 40);
        memset(s.from, 0, 40 * sizeof(float));
        encode(&s);
        for (size_t i = 0; i < 9; i++) {
            memcpy(s.code + 36, i < 6 ? &refused[i] : &accepted[i - 6], 4);
            ck_assert_int_eq(decode(&s), i < 6 ? BPS_ERR_PROTOCOL : BPS_OK);
            ck_assert_int_eq(decode_add(&s), i < 6 ? BPS_ERR_PROTOCOL : BPS_OK);
        }
        free_slice(&s);
    }
}
END_TEST

/* ---- what it promises ---------------------------------------------------------------------------------------- */

static void described(const double *method, const char *text)
{
    char block[20];
    snprintf(block, sizeof block, "%zu", block_of(method));
    ck_assert(strncmp(text, format_of(method)->name, strlen(format_of(method)->name)) == 0);
    ck_assert_int_eq(strstr(text, block) != NULL, format_of(method)->bytes == 1);
}

static const double elements[] = {-896, 1, 0, 448};
static const struct known_code known[FORMATS] = {
    {methods[0], BPS_FLOAT32, 4, 8, elements, {0x00, 0xe3, 0x00, 0x3c, 0x00, 0x00, 0x00, 0x5f}},
    {methods[1], BPS_FLOAT32, 4, 8, elements, {0x60, 0xc4, 0x80, 0x3f, 0x00, 0x00, 0xe0, 0x43}},
    /* 2.0; -448, 0.5, 0, 224 */
    {methods[2], BPS_FLOAT32, 4, 8, elements, {0x00, 0x00, 0x00, 0x40, 0xfe, 0x30, 0x00, 0x76}},
    /* 2^-6; -57344, 64, 0, 28672 */
    {methods[3], BPS_FLOAT32, 4, 8, elements, {0x00, 0x00, 0x80, 0x3c, 0xfb, 0x54, 0x00, 0x77}},
};
static const struct refused_options refused[] = {{{0, 48}, "48"}};

static void special(TCase *tests, int variant)
{
    tcase_add_loop_test(tests, test_all_codes, variant, variant + 1);
    tcase_add_loop_test(tests, test_rounding, variant, variant + 1);
    tcase_add_loop_test(tests, test_scales_at_the_ends, variant, variant + 1);
    tcase_add_loop_test(tests, test_foreign_scales, variant, variant + 1);
}

int main(void)
{
    return run_compressor_tests(&(const struct promise){
        .name = "cast",
        .module = bps_module_compressor_cast,
        ALL(methods),
        ALL(counts),
        .options = {"to", "block"},
        ISA_VARIANTS,
        .exact = true,
        .bound = bytes_of,
        .described = described,
        .is_right = slice_is_right,
        .spoils = itself_alone,
        ALL(refused),
        ALL(known),
        .special = special,
    });
}
