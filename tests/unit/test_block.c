/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_block.c - the compressor "block" against its definition, byte by byte, and against bytes that nobody has coded.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compressor_tests.h"
#include "watched.h"

const struct bps_module *bps_module_compressor_block(void);

static const size_t counts[] = {0, 1, 2, 3, 7, 8, 9, 31, 32, 33, 63, 65, 255, 256, 257, 5000, 70001};

enum { BITS, BLOCK, STOCHASTIC }; /* options; of bits 0 means 8, 1 means 4, 2 means 2 */

static const double methods[][METHOD_OPTIONS] = {
    {0, 256, 0}, {1, 256, 0}, {2, 256, 0},  {0, 32, 0},  {1, 64, 0},   {2, 32, 0},
    {0, 256, 1}, {1, 256, 1}, {2, 2048, 0}, {2, 256, 1}, {1, 2048, 1}, {0, 32, 1},
};

static size_t bits_of(const double *method)
{
    return (size_t)8 >> (int)method[BITS];
}

static size_t block_of(const double *method)
{
    return (size_t)method[BLOCK];
}

/* ---- a slice, as block.c says what it becomes ---------------------------------------------------------------- */

static size_t codes_bytes(size_t bits, size_t count)
{
    return (count * bits + 7) / 8;
}

static size_t bytes_of(const double *method, uint32_t dtype, size_t count)
{
    size_t block = block_of(method), last = count % block;
    (void)dtype;
    return count / block * (4 + codes_bytes(bits_of(method), block)) +
           (last > 0 ? 4 + codes_bytes(bits_of(method), last) : 0);
}

static int levels_of(const struct slice *s)
{
    return (1 << (bits_of(s->method) - 1)) - 1;
}

/* Of the elements from `begin` to `end`. */
static float scale_of(const struct slice *s, size_t begin, size_t end)
{
    double most = 0;
    for (size_t i = begin; i < end; i++) {
        double x = fabs(rig_get(s->dtype, s->from, i));
        if (isnan(x)) {
            return NAN;
        }
        most = x > most ? x : most;
    }
    double fine = most / levels_of(s);
    float scale = most == 0 ? 1 : fine < FLT_MIN ? FLT_MIN : (float)fine;
    bool large = s->dtype == BPS_FLOAT32 && isfinite(scale) && (double)scale * levels_of(s) > FLT_MAX;
    return large ? nextafterf(scale, 0) : scale;
}

/* Where the code of an element is: its byte in its block, its lowest bit in that, and its place in a whole unit. */
struct place {
    size_t byte, bit, in_unit;
};

static struct place place_of(const struct slice *s, size_t i)
{
    size_t block = i / block_of(s->method), bits = bits_of(s->method), in_unit = i % 32, unit = i - in_unit;
    size_t width = codes_bytes(bits, s->count - unit < 32 ? s->count - unit : 32);
    size_t begin = 4 * (block + 1) + unit * bits / 8;
    return (struct place){begin + in_unit % width, in_unit / width * bits,
                          in_unit % width + in_unit / width * (32 * bits / 8)};
}

/* The number of an element, as a share of 1. */
static double chance(const struct slice *s, size_t i)
{
    size_t p = place_of(s, i).in_unit;
    uint32_t number = philox(slice_draw.own, i / 32 * 8 + p % 16 / 2, p / 16 * 2 + p % 2);
    return s->dtype == BPS_FLOAT32 ? (number >> 8) / 0x1p24 : (number >> 1) / 0x1p31;
}

static int code_for(const struct slice *s, size_t i, float scale)
{
    double x = rig_get(s->dtype, s->from, i), inverse = 1.0 / scale;
    int levels = levels_of(s);
    x = s->dtype == BPS_FLOAT32 ? (double)((float)x * (float)inverse) : x * inverse;
    int near = (int)nearbyint(x);
    if (s->method[STOCHASTIC] != 0 && chance(s, i) < fabs(x - near)) {
        near += x > near ? 1 : -1;
    }
    return near > levels ? levels : near < -levels ? -levels : near;
}

/* What encode must make of the elements; freed by the caller. */
static uint8_t *want_of(const struct slice *s)
{
    uint8_t *want = calloc(1, s->bytes + 1);
    size_t block = block_of(s->method);
    for (size_t i = 0; i < s->count; i += block) {
        size_t end = s->count - i < block ? s->count : i + block;
        float scale = scale_of(s, i, end);
        const uint32_t nan = 0x7fc00000;
        memcpy(want + place_of(s, i).byte - 4, isnan(scale) ? (const void *)&nan : &scale, 4);
        for (size_t j = i; j < end && isfinite(scale); j++) {
            struct place at = place_of(s, j);
            unsigned code = (unsigned)code_for(s, j, scale) & ((1u << bits_of(s->method)) - 1);
            want[at.byte] = (uint8_t)(want[at.byte] | code << at.bit);
        }
    }
    return want;
}

/* What the bytes of element i stand for. */
static double meaning(const struct slice *s, size_t i)
{
    struct place at = place_of(s, i);
    size_t in_block = i % block_of(s->method), first = place_of(s, i - in_block).byte;
    int code = s->code[at.byte] >> at.bit & ((1 << bits_of(s->method)) - 1);
    float scale;
    memcpy(&scale, s->code + first - 4, 4); /* tests run where numbers are little endian */
    code -= code > levels_of(s) ? 1 << bits_of(s->method) : 0;
    return s->dtype == BPS_FLOAT32 ? (double)((float)code * scale) : (double)code * scale;
}

/* Codes what is in s->from. */
static void slice_is_right(struct slice *s)
{
    uint8_t *want = want_of(s);
    encode(s);
    ck_assert_mem_eq(s->code, want, s->bytes);
    ck_assert_int_eq(decode(s), BPS_OK);
    for (size_t i = 0; i < s->count; i++) {
        double x = rig_get(s->dtype, s->from, i), y = rig_get(s->dtype, s->to, i), right = meaning(s, i);
        ck_assert_msg(same(y, right), "%a became %a, expected %a", x, y, right);
        ck_assert(isfinite(x) || !isfinite(y));
    }
    free(want);
}

/* ---- tests ---------------------------------------------------------------------------------------------------- */

/* All levels, all ties, and what is beside these, at the scale 1: each block has the largest number. */
START_TEST(test_rounding)
{
    for (size_t example = 0; example < 2 * SIZE_OF(methods); example++) {
        const double *m = methods[example / 2];
        struct slice s = make_slice(_i, m, float_types[example % 2], 254 * 32);
        int levels = levels_of(&s);
        for (size_t i = 0, next = 0; i < s.count; i++) {
            double x = (double)((int)(next / 3 % (unsigned)(4 * levels + 1)) - 2 * levels) / 2;
            double to = next % 3 == 0 ? x : next % 3 == 1 ? -INFINITY : INFINITY;
            x = s.dtype == BPS_FLOAT32 ? (double)nextafterf((float)x, (float)to) : nextafter(x, to);
            bool first = i % 32 == 0 || fabs(x) > levels;
            rig_put(s.dtype, s.from, i, first ? levels : x);
            next += i % 32 != 0;
        }
        slice_is_right(&s);
        free_slice(&s);
    }
}
END_TEST

/* Scales at the ends of what float32 has, also those that would make the largest element infinite. */
START_TEST(test_scales_at_the_ends)
{
    static const double most[] = {0,       1e-45,           5e-324,          127 * 0x1p-126,  126 * 0x1p-126,
                                  FLT_MAX, 0x1.fffffcp+127, 127.0 * FLT_MAX, 128.0 * FLT_MAX, 1e300};
    for (size_t example = 0; example < 2 * 10 * SIZE_OF(methods); example++) {
        const double *m = methods[example / 2 % SIZE_OF(methods)];
        struct slice s = make_slice(_i, m, float_types[example % 2], 100);
        double largest = most[example / 2 / SIZE_OF(methods)];
        largest = s.dtype == BPS_FLOAT32 && largest > FLT_MAX ? FLT_MAX : largest;
        for (size_t i = 0; i < s.count; i++) {
            rig_put(s.dtype, s.from, i, largest / (1 + (double)(i % 13)));
        }
        slice_is_right(&s);
        bool fits = largest / levels_of(&s) <= FLT_MAX;
        for (size_t i = 0; i < 32; i++) { /* of the first block */
            ck_assert((isfinite(rig_get(s.dtype, s.to, i)) != 0) == fits);
        }
        free_slice(&s);
    }
}
END_TEST

/* The mean of many rounds is the element, with as many deviations as a mean of so many has; each round draws anew. */
START_TEST(test_the_mean)
{
    enum { COUNT = 300, ROUNDS = 4000 };
    for (size_t example = 0; example < 2 * SIZE_OF(methods); example++) {
        const double *m = methods[example / 2];
        struct slice s = make_slice(_i, m, float_types[example % 2], COUNT);
        double total[COUNT] = {0}, bias = 0;
        for (size_t i = 0; i < COUNT; i++) {
            /* All levels are about 1 apart. */
            double x = i % 32 == 0 ? levels_of(&s) : (double)(i * 7919 % 1009) / 1009 * levels_of(&s);
            rig_put(s.dtype, s.from, i, i % 2 ? -x : x);
        }
        for (unsigned round = 0; m[STOCHASTIC] != 0 && round < ROUNDS; round++) {
            slice_draw.own = round * 0x9e3779b97f4a7c15;
            encode(&s);
            ck_assert_int_eq(decode(&s), BPS_OK);
            for (size_t i = 0; i < COUNT; i++) {
                total[i] += rig_get(s.dtype, s.to, i) / ROUNDS;
            }
        }
        for (size_t i = 0; m[STOCHASTIC] != 0 && i < COUNT; i++) {
            double error = total[i] - rig_get(s.dtype, s.from, i);
            ck_assert(fabs(error) < 5 * 0.5 / sqrt(ROUNDS));
            bias += error / COUNT;
        }
        ck_assert(fabs(bias) < 5 * 0.5 / sqrt((double)ROUNDS * COUNT));
        free_slice(&s);
    }
}
END_TEST

/* In the last of two blocks. */
START_TEST(test_foreign_scales)
{
    static const uint32_t refused[] = {0,          0x80000000, 0xbf800000, 1,          0x007fffff,
                                       0xff800000, 0x7fc00001, 0x7f800001, 0xffc00000, 0x7fffffff};
    static const uint32_t accepted[] = {0x00800000, 0x3f800000, 0x7f7fffff, 0x7f800000, 0x7fc00000};
    for (size_t example = 3; example < 6; example++) {
        struct slice s = make_slice(_i, methods[example], BPS_FLOAT32, block_of(methods[example]) + 8);
        encode(&s);
        for (size_t i = 0; i < 15; i++) {
            size_t at = place_of(&s, block_of(methods[example])).byte - 4;
            memcpy(s.code + at, i < 10 ? &refused[i] : &accepted[i - 10], 4);
            ck_assert_int_eq(decode(&s), i < 10 ? BPS_ERR_PROTOCOL : BPS_OK);
            ck_assert_int_eq(decode_add(&s), i < 10 ? BPS_ERR_PROTOCOL : BPS_OK);
        }
        free_slice(&s);
    }
}
END_TEST

/* Each code but the lowest there is, at every place; and each bit behind the last code. */
START_TEST(test_foreign_codes)
{
    for (size_t example = 0; example < 3; example++) {
        size_t bits = bits_of(methods[example]);
        for (size_t count = 1; count < 70; count += EVERY(5)) {
            struct slice s = make_slice(_i, methods[example], float_types[count % 2], count);
            encode(&s);
            uint8_t *used = calloc(1, s.bytes);
            for (size_t i = 0; i < count; i++) {
                struct place at = place_of(&s, i);
                used[at.byte] |= (uint8_t)(((1 << bits) - 1) << at.bit);
                for (int code = 0; code < 1 << bits; code++) {
                    s.code[at.byte] = (uint8_t)(code << at.bit);
                    bool known = code != 1 << (bits - 1);
                    ck_assert_int_eq(decode(&s), known ? BPS_OK : BPS_ERR_PROTOCOL);
                    ck_assert_int_eq(decode_add(&s), known ? BPS_OK : BPS_ERR_PROTOCOL);
                }
                s.code[at.byte] = 0;
            }
            for (size_t bit = 32; bit < 8 * s.bytes; bit++) {
                if (!(used[bit / 8] >> bit % 8 & 1)) {
                    s.code[bit / 8] = (uint8_t)(1 << bit % 8);
                    ck_assert_int_eq(decode(&s), BPS_ERR_PROTOCOL);
                    ck_assert_int_eq(decode_add(&s), BPS_ERR_PROTOCOL);
                    s.code[bit / 8] = 0;
                }
            }
            free(used);
            free_slice(&s);
        }
    }
}
END_TEST

/* ---- what it promises ---------------------------------------------------------------------------------------- */

static void described(const double *method, const char *text)
{
    ck_assert((size_t)(text[0] - '0') == bits_of(method));
    ck_assert_int_eq(strstr(text, "chance") != NULL, method[STOCHASTIC] != 0);
}

static const double elements[] = {-254, 1, 0, 126, 63.5};
static const struct known_code known[] = {
    /* 2.0; -127, 0, 0, 63, 32 */
    {methods[0], BPS_FLOAT32, 5, 9, elements, {0x00, 0x00, 0x00, 0x40, 0x81, 0x00, 0x00, 0x3f, 0x20}},
    /* 254 / 7; -7 3, 0 2, 0 */
    {methods[1], BPS_FLOAT32, 5, 7, elements, {0x92, 0x24, 0x11, 0x42, 0x39, 0x20, 0x00}},
    /* 254; -1 0 0, 0 0 */
    {methods[2], BPS_FLOAT32, 5, 6, elements, {0x00, 0x00, 0x7e, 0x43, 0x03, 0x00}},
};
static const struct refused_options refused[] = {{{0, 48, 0}, "48"}};

static void special(TCase *tests, int variant)
{
    tcase_add_loop_test(tests, test_rounding, variant, variant + 1);
    tcase_add_loop_test(tests, test_scales_at_the_ends, variant, variant + 1);
    tcase_add_loop_test(tests, test_the_mean, variant, variant + 1);
    tcase_add_loop_test(tests, test_foreign_scales, variant, variant + 1);
    tcase_add_loop_test(tests, test_foreign_codes, variant, variant + 1);
}

int main(void)
{
    return run_compressor_tests(&(const struct promise){
        .name = "block",
        .module = bps_module_compressor_block,
        .draw = {.shared = 0x123456789abcdef1, .own = 0xfedcba9876543217},
        .options = {"bits", "block", "stochastic"},
        ALL(methods),
        ALL(counts),
        ISA_VARIANTS,
        .exact = true,
        .bound = bytes_of,
        .described = described,
        .is_right = slice_is_right,
        .spoils = block_of,
        .spoiled = nan_of,
        ALL(refused),
        ALL(known),
        .special = special,
    });
}
