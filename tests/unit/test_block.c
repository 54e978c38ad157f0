/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_block.c - the compressor "block" against its definition, byte by byte, and against bytes that nobody has coded.
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

const struct bps_module *bps_module_compressor_block(void);

static const size_t counts[] = {0, 1, 2, 3, 7, 8, 9, 31, 32, 33, 63, 65, 255, 256, 257, 5000, 70001};
#define COUNTS (sizeof counts / sizeof *counts)

static const uint32_t dtypes[] = {BPS_FLOAT32, BPS_FLOAT64};
static struct bps_random draw = {.shared = 0x123456789abcdef1, .own = 0xfedcba9876543217};

struct method {
    int bits;
    size_t block;
    bool stochastic;
};

static const struct method methods[] = {
    {8, 256, false}, {4, 256, false}, {2, 256, false},  {8, 32, false}, {4, 64, false},  {2, 32, false},
    {8, 256, true},  {4, 256, true},  {2, 2048, false}, {2, 256, true}, {4, 2048, true}, {8, 32, true},
};
#define METHODS (sizeof methods / sizeof *methods)

static bps_status open_block(struct rig *rig, int isa, struct method m)
{
    const struct rig_setting settings[] = {
        {"bits", m.bits == 8   ? 0
                 : m.bits == 4 ? 1
                               : 2},
        {"block", (double)m.block},
        {"stochastic", m.stochastic},
        {"isa", isa},
    };
    return rig_open(rig, bps_module_compressor_block(), settings, 4);
}

#define OPEN_OR_RETURN(rig, isa, method)                                                                               \
    do {                                                                                                               \
        if (open_block(rig, isa, method) != BPS_OK) {                                                                  \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

/* ---- chance, by its definition ------------------------------------------------------------------------------ */

static uint32_t philox(uint64_t key, uint64_t counter, size_t word)
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

/* ---- a slice, as block.c says what it becomes ---------------------------------------------------------------- */

struct slice {
    struct method method;
    uint32_t dtype;
    size_t count, bytes;
    uint8_t *from, *code, *to;
    void *base[3];
};

static size_t codes_bytes(int bits, size_t count)
{
    return (count * (size_t)bits + 7) / 8;
}

static size_t bytes_of(struct method m, size_t count)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i += m.block) {
        bytes += 4 + codes_bytes(m.bits, count - i < m.block ? count - i : m.block);
    }
    return bytes;
}

static struct slice make_slice(const struct rig *rig, struct method m, uint32_t dtype, size_t count)
{
    struct slice s = {.method = m, .dtype = dtype, .count = count, .bytes = bytes_of(m, count)};
    ck_assert_uint_eq(rig->ops->bound(rig->instance, dtype, count), s.bytes);
    s.from = rig_odd(count * rig_size(dtype), &s.base[0]);
    s.code = rig_odd(s.bytes, &s.base[1]);
    s.to = rig_odd(count * rig_size(dtype), &s.base[2]);
    for (size_t i = 0; i < count; i++) {
        rig_put(dtype, s.from, i, 0);
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
    memset(s->code, 0xa5, s->bytes);
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

static int levels_of(const struct slice *s)
{
    return s->method.bits == 8 ? 127 : s->method.bits == 4 ? 7 : 1;
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
    size_t block = i / s->method.block, bits = (size_t)s->method.bits, in_unit = i % 32, unit = i - in_unit;
    size_t width = codes_bytes(s->method.bits, s->count - unit < 32 ? s->count - unit : 32);
    size_t begin = 4 * (block + 1) + unit * bits / 8;
    return (struct place){begin + in_unit % width, in_unit / width * bits,
                          in_unit % width + in_unit / width * (32 * bits / 8)};
}

/* The number of an element, as a share of 1. */
static double chance(const struct slice *s, size_t i)
{
    size_t p = place_of(s, i).in_unit;
    uint32_t number = philox(draw.own, i / 32 * 8 + p % 16 / 2, p / 16 * 2 + p % 2);
    return s->dtype == BPS_FLOAT32 ? (number >> 8) / 0x1p24 : (number >> 1) / 0x1p31;
}

static int code_for(const struct slice *s, size_t i, float scale)
{
    double x = rig_get(s->dtype, s->from, i), inverse = 1.0 / scale;
    int levels = levels_of(s);
    x = s->dtype == BPS_FLOAT32 ? (double)((float)x * (float)inverse) : x * inverse;
    int near = (int)nearbyint(x);
    if (s->method.stochastic && chance(s, i) < fabs(x - near)) {
        near += x > near ? 1 : -1;
    }
    return near > levels ? levels : near < -levels ? -levels : near;
}

/* What encode must make of the elements; freed by the caller. */
static uint8_t *want_of(const struct slice *s)
{
    uint8_t *want = calloc(1, s->bytes + 1);
    size_t block = s->method.block;
    for (size_t i = 0; i < s->count; i += block) {
        size_t end = s->count - i < block ? s->count : i + block;
        float scale = scale_of(s, i, end);
        const uint32_t nan = 0x7fc00000;
        memcpy(want + place_of(s, i).byte - 4, isnan(scale) ? (const void *)&nan : &scale, 4);
        for (size_t j = i; j < end && isfinite(scale); j++) {
            struct place at = place_of(s, j);
            unsigned code = (unsigned)code_for(s, j, scale) & ((1u << s->method.bits) - 1);
            want[at.byte] = (uint8_t)(want[at.byte] | code << at.bit);
        }
    }
    return want;
}

static bool same(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b);
}

/* What the bytes of element i stand for. */
static double meaning(const struct slice *s, size_t i)
{
    struct place at = place_of(s, i);
    size_t in_block = i % s->method.block, first = place_of(s, i - in_block).byte;
    int code = s->code[at.byte] >> at.bit & ((1 << s->method.bits) - 1);
    float scale;
    memcpy(&scale, s->code + first - 4, 4); /* tests run where numbers are little endian */
    code -= code > levels_of(s) ? 1 << s->method.bits : 0;
    return s->dtype == BPS_FLOAT32 ? (double)((float)code * scale) : (double)code * scale;
}

/* Codes what is in s->from. */
static void slice_is_right(const struct rig *rig, struct slice *s)
{
    uint8_t *want = want_of(s);
    encode(rig, s);
    ck_assert_mem_eq(s->code, want, s->bytes);
    ck_assert_int_eq(decode(rig, s), BPS_OK);
    for (size_t i = 0; i < s->count; i++) {
        double x = rig_get(s->dtype, s->from, i), y = rig_get(s->dtype, s->to, i), right = meaning(s, i);
        ck_assert_msg(same(y, right), "%a became %a, expected %a", x, y, right);
        ck_assert(isfinite(x) || !isfinite(y));
    }
    free(want);
}

/* ---- tests ---------------------------------------------------------------------------------------------------- */

/* Any bits; half of the slices have some that are not finite. */
static void fill(struct slice *s, unsigned *seed)
{
    static const double special[] = {0.0, -0.0, 1e-45, -1e-38, NAN, -NAN, INFINITY, -INFINITY, 1, -1, 0.5};
    int spread = rand_r(seed) % 4 * (s->dtype == BPS_FLOAT32 ? 40 : 300);
    bool broken = rand_r(seed) % 2;
    for (size_t i = 0; i < s->count; i++) {
        double x = (rand_r(seed) / (double)RAND_MAX - 0.5) * ldexp(1, rand_r(seed) % (spread + 5) - spread / 2);
        double other = special[rand_r(seed) % 11];
        bool take = rand_r(seed) % (isfinite(other) ? 9 : 400) == 0 && (broken || isfinite(other));
        rig_put(s->dtype, s->from, i, take ? other : x);
    }
}

START_TEST(test_any_elements)
{
    unsigned seed = 1;
    struct rig rig;
    for (size_t example = 0; example < 2 * METHODS * COUNTS; example++) {
        struct method m = methods[example / 2 % METHODS];
        OPEN_OR_RETURN(&rig, _i, m);
        struct slice s = make_slice(&rig, m, dtypes[example % 2], counts[example / 2 / METHODS]);
        for (int again = 0; again < (s.count < 1000 ? 4 : 1); again++) {
            fill(&s, &seed);
            slice_is_right(&rig, &s);
        }
        free_slice(&s);
        rig.ops->close(rig.instance);
    }
}
END_TEST

/* All levels, all ties, and what is beside these, at the scale 1: each block has the largest number. */
START_TEST(test_rounding)
{
    struct rig rig;
    for (size_t example = 0; example < 2 * METHODS; example++) {
        struct method m = methods[example / 2];
        OPEN_OR_RETURN(&rig, _i, m);
        struct slice s = make_slice(&rig, m, dtypes[example % 2], 254 * 32);
        int levels = levels_of(&s);
        for (size_t i = 0, next = 0; i < s.count; i++) {
            double x = (double)((int)(next / 3 % (unsigned)(4 * levels + 1)) - 2 * levels) / 2;
            double to = next % 3 == 0 ? x : next % 3 == 1 ? -INFINITY : INFINITY;
            x = s.dtype == BPS_FLOAT32 ? (double)nextafterf((float)x, (float)to) : nextafter(x, to);
            bool first = i % 32 == 0 || fabs(x) > levels;
            rig_put(s.dtype, s.from, i, first ? levels : x);
            next += i % 32 != 0;
        }
        slice_is_right(&rig, &s);
        free_slice(&s);
        rig.ops->close(rig.instance);
    }
}
END_TEST

/* Scales at the ends of what float32 has, also those that would make the largest element infinite. */
START_TEST(test_scales_at_the_ends)
{
    static const double most[] = {0,       1e-45,           5e-324,          127 * 0x1p-126,  126 * 0x1p-126,
                                  FLT_MAX, 0x1.fffffcp+127, 127.0 * FLT_MAX, 128.0 * FLT_MAX, 1e300};
    struct rig rig;
    for (size_t example = 0; example < 2 * 10 * METHODS; example++) {
        struct method m = methods[example / 2 % METHODS];
        OPEN_OR_RETURN(&rig, _i, m);
        struct slice s = make_slice(&rig, m, dtypes[example % 2], 100);
        double largest = most[example / 2 / METHODS];
        largest = s.dtype == BPS_FLOAT32 && largest > FLT_MAX ? FLT_MAX : largest;
        for (size_t i = 0; i < s.count; i++) {
            rig_put(s.dtype, s.from, i, largest / (1 + (double)(i % 13)));
        }
        slice_is_right(&rig, &s);
        bool fits = largest / levels_of(&s) <= FLT_MAX;
        for (size_t i = 0; i < 32; i++) { /* of the first block */
            ck_assert((isfinite(rig_get(s.dtype, s.to, i)) != 0) == fits);
        }
        free_slice(&s);
        rig.ops->close(rig.instance);
    }
}
END_TEST

/* What is not finite spoils its block, and only that. */
START_TEST(test_overflow_stays_visible)
{
    static const double broken[] = {NAN, INFINITY, -INFINITY};
    struct rig rig;
    for (size_t example = 0; example < 3 * METHODS; example++) {
        struct method m = methods[example / 3];
        OPEN_OR_RETURN(&rig, _i, m);
        struct slice s = make_slice(&rig, m, dtypes[example % 2], 3 * m.block - 5);
        for (size_t i = 0; i < s.count; i++) {
            rig_put(s.dtype, s.from, i, i == m.block + 9 ? broken[example % 3] : (double)i);
        }
        slice_is_right(&rig, &s);
        for (size_t i = 0; i < s.count; i++) {
            double y = rig_get(s.dtype, s.to, i);
            ck_assert(i / m.block == 1 ? isnan(y) : isfinite(y));
        }
        free_slice(&s);
        rig.ops->close(rig.instance);
    }
}
END_TEST

START_TEST(test_decode_add_adds)
{
    unsigned seed = 2;
    struct rig rig;
    for (size_t example = 0; example < 2 * METHODS * (COUNTS - 1); example++) {
        struct method m = methods[example / 2 % METHODS];
        OPEN_OR_RETURN(&rig, _i, m);
        struct slice s = make_slice(&rig, m, dtypes[example % 2], counts[example / 2 / METHODS]);
        struct slice sum = make_slice(&rig, m, s.dtype, s.count);
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

/* The mean of many rounds is the element, with as many deviations as a mean of so many has; each round draws anew. */
START_TEST(test_the_mean)
{
    enum { COUNT = 300, ROUNDS = 4000 };
    struct rig rig;
    for (size_t example = 0; example < 2 * METHODS; example++) {
        struct method m = methods[example / 2];
        OPEN_OR_RETURN(&rig, _i, m);
        struct slice s = make_slice(&rig, m, dtypes[example % 2], COUNT);
        double total[COUNT] = {0}, bias = 0;
        for (size_t i = 0; i < COUNT; i++) {
            /* All levels are about 1 apart. */
            double x = i % 32 == 0 ? levels_of(&s) : (double)(i * 7919 % 1009) / 1009 * levels_of(&s);
            rig_put(s.dtype, s.from, i, i % 2 ? -x : x);
        }
        for (unsigned round = 0; m.stochastic && round < ROUNDS; round++) {
            draw.own = round * 0x9e3779b97f4a7c15;
            encode(&rig, &s);
            ck_assert_int_eq(decode(&rig, &s), BPS_OK);
            for (size_t i = 0; i < COUNT; i++) {
                total[i] += rig_get(s.dtype, s.to, i) / ROUNDS;
            }
        }
        for (size_t i = 0; m.stochastic && i < COUNT; i++) {
            double error = total[i] - rig_get(s.dtype, s.from, i);
            ck_assert(fabs(error) < 5 * 0.5 / sqrt(ROUNDS));
            bias += error / COUNT;
        }
        ck_assert(fabs(bias) < 5 * 0.5 / sqrt((double)ROUNDS * COUNT));
        free_slice(&s);
        rig.ops->close(rig.instance);
    }
}
END_TEST

/* The bytes on the wire, which other builds and machines have to understand. */
START_TEST(test_the_format)
{
    static const double x[5] = {-254, 1, 0, 126, 63.5};
    static const uint8_t want[3][9] = {
        {0x00, 0x00, 0x00, 0x40, 0x81, 0x00, 0x00, 0x3f, 0x20}, /* 2.0; -127, 0, 0, 63, 32 */
        {0x92, 0x24, 0x11, 0x42, 0x39, 0x20, 0x00},             /* 254 / 7; -7 3, 0 2, 0 */
        {0x00, 0x00, 0x7e, 0x43, 0x03, 0x00},                   /* 254; -1 0 0, 0 0 */
    };
    struct rig rig;
    for (size_t i = 0; i < 3; i++) {
        OPEN_OR_RETURN(&rig, _i, methods[i]);
        struct slice s = make_slice(&rig, methods[i], BPS_FLOAT32, 5);
        for (size_t j = 0; j < 5; j++) {
            rig_put(s.dtype, s.from, j, x[j]);
        }
        encode(&rig, &s);
        ck_assert_uint_eq(s.bytes, i == 0 ? 9 : i == 1 ? 7 : 6);
        ck_assert_mem_eq(s.code, want[i], s.bytes);
        free_slice(&s);
        rig.ops->close(rig.instance);
    }
}
END_TEST

/* The floating point settings of the calling thread make no difference, and stay. */
START_TEST(test_settings_of_the_thread)
{
#ifdef __SSE2__
    unsigned seed = 3;
    struct rig rig;
    for (size_t example = 0; example < METHODS; example++) {
        OPEN_OR_RETURN(&rig, _i, methods[example]);
        struct slice s = make_slice(&rig, methods[example], BPS_FLOAT32, 400);
        fill(&s, &seed);
        uint8_t *want = want_of(&s);
        unsigned before = _mm_getcsr(), other = before | 0xe040; /* towards zero, subnormals flushed */
        _mm_setcsr(other);
        encode(&rig, &s);
        unsigned after = _mm_getcsr();
        _mm_setcsr(before);
        ck_assert_uint_eq(after & 0xffc0, other & 0xffc0);
        ck_assert_mem_eq(s.code, want, s.bytes);
        free(want);
        free_slice(&s);
        rig.ops->close(rig.instance);
    }
#endif
}
END_TEST

/* Any length but the right one is refused, before anything is read. */
START_TEST(test_foreign_lengths)
{
    struct rig rig;
    for (size_t example = 3; example < 6; example++) {
        OPEN_OR_RETURN(&rig, _i, methods[example]);
        for (size_t count = 0; count < 100; count++) {
            struct slice s = make_slice(&rig, methods[example], dtypes[count % 2], count);
            size_t right = s.bytes;
            uint8_t *code = s.code;
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
    static const uint32_t refused[] = {0,          0x80000000, 0xbf800000, 1,          0x007fffff,
                                       0xff800000, 0x7fc00001, 0x7f800001, 0xffc00000, 0x7fffffff};
    static const uint32_t accepted[] = {0x00800000, 0x3f800000, 0x7f7fffff, 0x7f800000, 0x7fc00000};
    struct rig rig;
    for (size_t example = 3; example < 6; example++) {
        OPEN_OR_RETURN(&rig, _i, methods[example]);
        struct slice s = make_slice(&rig, methods[example], BPS_FLOAT32, methods[example].block + 8);
        encode(&rig, &s);
        for (size_t i = 0; i < 15; i++) {
            size_t at = place_of(&s, methods[example].block).byte - 4;
            memcpy(s.code + at, i < 10 ? &refused[i] : &accepted[i - 10], 4);
            ck_assert_int_eq(decode(&rig, &s), i < 10 ? BPS_ERR_PROTOCOL : BPS_OK);
            ck_assert_int_eq(decode_add(&rig, &s), i < 10 ? BPS_ERR_PROTOCOL : BPS_OK);
        }
        free_slice(&s);
        rig.ops->close(rig.instance);
    }
}
END_TEST

/* Each code but the lowest there is, at every place; and each bit behind the last code. */
START_TEST(test_foreign_codes)
{
    struct rig rig;
    for (size_t example = 0; example < 3; example++) {
        int bits = methods[example].bits;
        OPEN_OR_RETURN(&rig, _i, methods[example]);
        for (size_t count = 1; count < 70; count += EVERY(5)) {
            struct slice s = make_slice(&rig, methods[example], dtypes[count % 2], count);
            encode(&rig, &s);
            uint8_t *used = calloc(1, s.bytes);
            for (size_t i = 0; i < count; i++) {
                struct place at = place_of(&s, i);
                used[at.byte] |= (uint8_t)(((1 << bits) - 1) << at.bit);
                for (int code = 0; code < 1 << bits; code++) {
                    s.code[at.byte] = (uint8_t)(code << at.bit);
                    bool known = code != 1 << (bits - 1);
                    ck_assert_int_eq(decode(&rig, &s), known ? BPS_OK : BPS_ERR_PROTOCOL);
                    ck_assert_int_eq(decode_add(&rig, &s), known ? BPS_OK : BPS_ERR_PROTOCOL);
                }
                s.code[at.byte] = 0;
            }
            for (size_t bit = 32; bit < 8 * s.bytes; bit++) {
                if (!(used[bit / 8] >> bit % 8 & 1)) {
                    s.code[bit / 8] = (uint8_t)(1 << bit % 8);
                    ck_assert_int_eq(decode(&rig, &s), BPS_ERR_PROTOCOL);
                    ck_assert_int_eq(decode_add(&rig, &s), BPS_ERR_PROTOCOL);
                    s.code[bit / 8] = 0;
                }
            }
            free(used);
            free_slice(&s);
        }
        rig.ops->close(rig.instance);
    }
}
END_TEST

START_TEST(test_options)
{
    static const char *const names[RIG_ISAS] = {"", "baseline", "avx2", "avx512"};
    struct rig rig;
    char text[100];
    for (size_t example = 0; example < METHODS; example++) {
        struct method m = methods[example];
        if (open_block(&rig, _i, m) != BPS_OK) {
            ck_assert_int_gt(_i, 1);
            ck_assert_ptr_nonnull(strstr(rig.report.text, names[_i]));
            return;
        }
        rig.ops->describe(rig.instance, text, sizeof text);
        ck_assert(strstr(text, names[_i]) != NULL && text[0] == '0' + m.bits);
        ck_assert_int_eq(strstr(text, "chance") != NULL, m.stochastic);
        size_t before = 0;
        for (size_t count = 0; count < 5000; count++) {
            size_t bound = rig.ops->bound(rig.instance, BPS_FLOAT32, count);
            ck_assert(bound == bytes_of(m, count) && bound >= before);
            before = bound;
        }
        for (uint32_t dtype = 0; dtype < BPS_DTYPES; dtype++) {
            bool coded = dtype == BPS_FLOAT32 || dtype == BPS_FLOAT64;
            ck_assert_uint_eq(rig.ops->bound(rig.instance, dtype, 100) > 0, coded);
        }
        rig.ops->close(rig.instance);
    }
    ck_assert_int_eq(open_block(&rig, _i, (struct method){8, 48, false}), BPS_ERR_CONF);
    ck_assert_ptr_nonnull(strstr(rig.report.text, "48"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("block");
    TCase *tests = tcase_create("block");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, test_any_elements, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_rounding, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_scales_at_the_ends, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_overflow_stays_visible, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_decode_add_adds, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_the_mean, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_the_format, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_settings_of_the_thread, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_foreign_lengths, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_foreign_scales, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_foreign_codes, 0, RIG_ISAS);
    tcase_add_loop_test(tests, test_options, 0, RIG_ISAS);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed > 0;
}
