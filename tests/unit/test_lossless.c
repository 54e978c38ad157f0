/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_lossless.c - the compressor "lossless": that the same bits come out, that its bytes are as it says, and what it
 * does with bytes that nobody has coded.
 */
#include <stdlib.h>
#include <string.h>

#include "compressor_tests.h"

const struct bps_module *bps_module_compressor_lossless(void);

#define CHUNK 16384u

static const size_t counts[] = {0, 1, 2, 7, 64, 1000, 16383, 16384, 16385, 50001};

enum { ZSTD, LZ4 };

static const double methods[][METHOD_OPTIONS] = {{1}, {2}, {3}, {12}}; /* level */

/* What elements are like: gradients; any bits, those of NaN among them; one value; zeros, some negative. */
enum like { GRADIENTS, NOISE, ONE_VALUE, ZEROS, LIKES };

/* splitmix64 */
static uint64_t next(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static void fill(struct slice *s, unsigned like, unsigned *seed)
{
    uint64_t state = 7;
    (void)seed;
    for (size_t i = 0; i < s->count; i++) {
        uint64_t bits = next(&state);
        double x = ((double)(next(&state) % 2000) - 999.5) * (double)(next(&state) % 1000) * 1e-7;
        if (like == NOISE) {
            memcpy(s->from + i * rig_size(s->dtype), &bits, rig_size(s->dtype));
        } else {
            rig_put(s->dtype, s->from, i, like == GRADIENTS ? x : like == ONE_VALUE ? -0.3 : i % 5 == 0 ? -0.0 : 0.0);
        }
    }
}

static struct slice slice_like(int variant, size_t example, enum like like, size_t count)
{
    struct slice s = make_slice(variant, methods[0], float_types[example % 2], count);
    fill(&s, like, NULL);
    return s;
}

static void slice_is_right(struct slice *s)
{
    encode(s);
    ck_assert_int_eq(decode(s), BPS_OK);
    ck_assert_mem_eq(s->to, s->from, s->count * rig_size(s->dtype));
}

/* Levels that one of the libraries has. */
START_TEST(test_the_highest_level)
{
    static const double highest[METHOD_OPTIONS] = {19};
    for (size_t example = 0; _i == ZSTD && example < SIZE_OF(counts) * 2 * LIKES; example++) {
        struct slice s = make_slice(_i, highest, float_types[example % 2], counts[example / 2 / LIKES]);
        fill(&s, example / 2 % LIKES, NULL);
        slice_is_right(&s);
        free_slice(&s);
    }
    if (_i == LZ4) {
        struct rig rig;
        ck_assert_int_eq(open_variant(&rig, _i, (const double[]){13}), BPS_ERR_CONF);
        ck_assert_ptr_nonnull(strstr(rig.report.text, "expected 1..12"));
    }
}
END_TEST

/* The byte p, from the highest one, of an element with its sign at the lower end. */
static uint8_t byte_of(const struct slice *s, size_t i, size_t p)
{
    uint64_t wide = 0;
    uint32_t narrow = 0;
    memcpy(s->dtype == BPS_FLOAT32 ? (void *)&narrow : &wide, s->from + i * rig_size(s->dtype), rig_size(s->dtype));
    wide = s->dtype == BPS_FLOAT32 ? (narrow & 0x7fffffffu) * 2ull + (narrow >> 31)
                                   : (wide & 0x7fffffffffffffffu) * 2 + (wide >> 63);
    return (uint8_t)(wide >> 8 * (rig_size(s->dtype) - 1 - p));
}

/* Reads the chunk at `at`; how many of its planes are shorter than they were. */
static size_t read_chunk(const struct slice *s, size_t *at, size_t first, size_t n)
{
    size_t head = *at, shorter = 0;
    *at += 2 * rig_size(s->dtype);
    for (size_t p = 0; p < rig_size(s->dtype); p++) {
        size_t length = s->code[head + 2 * p] + 256u * s->code[head + 2 * p + 1];
        ck_assert(length > 0 && length <= n);
        for (size_t i = 0; i < n && length == n; i++) {
            ck_assert(s->code[*at + i] == byte_of(s, first + i, p));
        }
        shorter += length < n;
        *at += length;
    }
    return shorter;
}

/* Chunks, lengths, and planes that did not shrink; of noise all are so, and of gradients the exponents are not. */
START_TEST(test_the_planes)
{
    for (size_t example = 0; example < SIZE_OF(counts) * 2 * LIKES; example++) {
        enum like like = example / 2 % LIKES;
        struct slice s = slice_like(_i, example, like, counts[example / 2 / LIKES]);
        size_t at = 0;
        encode(&s);
        for (size_t i = 0; i < s.count; i += CHUNK) {
            size_t n = s.count - i < CHUNK ? s.count - i : CHUNK, shorter = read_chunk(&s, &at, i, n);
            if (n >= 1000) {
                ck_assert(like == NOISE ? shorter == 0 : like != GRADIENTS || _i == 1 || shorter >= 1);
                ck_assert(like != ONE_VALUE || shorter == rig_size(s.dtype));
            }
        }
        ck_assert_uint_eq(at, s.bytes);
        ck_assert(like != NOISE || s.count < 1000 || s.bytes == s.room);
        free_slice(&s);
    }
}
END_TEST

/* ---- foreign bytes ------------------------------------------------------------------------------------------ */

/* A length of a plane that is none is refused. */
START_TEST(test_foreign_planes)
{
    for (size_t example = 0; example < 2 * LIKES; example++) {
        struct slice s = slice_like(_i, example, example / 2, 300);
        encode(&s);
        for (size_t at = 0; at < 2 * rig_size(s.dtype); at++) {
            uint8_t right = s.code[at];
            for (unsigned byte = 0; byte < 256; byte++) {
                s.code[at] = (uint8_t)byte;
                ck_assert_int_eq(decode_bytes(&s, s.code, s.bytes), byte == right ? BPS_OK : BPS_ERR_PROTOCOL);
            }
            s.code[at] = right;
        }
        free_slice(&s);
    }
}
END_TEST

/* A frame that means nothing, or one of an old format, is not coded here; nor are two. */
START_TEST(test_other_frames)
{
    static const uint32_t magic[] = {0x184d2a50, 0xfd2fb527, 0xfd2fb526, 0xfd2fb525, 0xfd2fb522};
    struct slice s = slice_like(_i, 0, ONE_VALUE, 300);
    encode(&s);
    for (size_t i = 0; i < SIZE_OF(magic); i++) {
        uint8_t other[2000], skip[8] = {0x50, 0x2a, 0x4d, 0x18};
        memcpy(other, s.code, s.bytes);
        memcpy(other + 8, &magic[i], sizeof magic[i]);
        ck_assert_int_eq(decode_bytes(&s, other, s.bytes), BPS_ERR_PROTOCOL);
        memcpy(other, s.code, s.bytes);
        memmove(other + 16, s.code + 8, s.bytes - 8);
        memcpy(other + 8, skip, sizeof skip);
        other[0] = (uint8_t)(other[0] + 8);
        ck_assert_int_eq(decode_bytes(&s, other, s.bytes + 8), BPS_ERR_PROTOCOL);
    }
    free_slice(&s);
}
END_TEST

/* ---- what it promises ---------------------------------------------------------------------------------------- */

static size_t bound(const double *method, uint32_t dtype, size_t count)
{
    (void)method;
    return rig_size(dtype) * (count + (count + CHUNK - 1) / CHUNK * 2);
}

static void described(const double *method, const char *text)
{
    ck_assert(method[0] != 3 || strstr(text, "level 3") != NULL);
}

static void special(TCase *tests, int variant)
{
    tcase_add_loop_test(tests, test_the_highest_level, variant, variant + 1);
    tcase_add_loop_test(tests, test_the_planes, variant, variant + 1);
    tcase_add_loop_test(tests, test_foreign_planes, variant, variant + 1);
    tcase_add_loop_test(tests, test_other_frames, variant, variant + 1);
}

int main(void)
{
    return run_compressor_tests(&(const struct promise){
        .name = "lossless",
        .module = bps_module_compressor_lossless,
        ALL(methods),
        ALL(counts),
        .options = {"level"},
        .decoders = 1,
        .variant = "method",
        .variants = {"zstd", "lz4"},
        .n_variants = 2,
        .bound = bound,
        .described = described,
        .is_right = slice_is_right,
        .fill = fill,
        .n_fills = LIKES,
        .spoils = itself_alone,
        .spoiled = unchanged,
        .length_step = 100,
        .n_lengths = 4,
        .special = special,
    });
}
