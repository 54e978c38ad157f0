/* SPDX-License-Identifier: Apache-2.0 */
/* reducer_whole.c - kernels as a whole: each pattern of narrow types, cuts, threads, and the thread's own settings. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "tools/check/reducer.h"

/* ---- conversions ---- */

static unsigned fraction_bits(uint32_t dtype)
{
    static const unsigned bits[BPS_DTYPES] = {
        [BPS_FLOAT16] = 10, [BPS_BFLOAT16] = 7, [BPS_FLOAT8_E4M3FN] = 3, [BPS_FLOAT8_E5M2] = 2};
    return bits[dtype];
}

/* Every pattern to float32 and back; then float32 around the middle of two neighbours, rounded. */
static void convert_patterns(struct bps_summer *summer)
{
    enum { MOST = 1 << 16 };
    static uint32_t wide[MOST], right[MOST];
    static uint8_t narrow[MOST * 2], back[MOST * 2], expected[MOST * 2];
    const size_t size = oracle_size(summer->dtype);
    const uint32_t all = 1u << 8 * size, step = 1u << (22 - fraction_bits(summer->dtype)); /* half a place */
    for (uint32_t i = 0; i < all; i++) {
        bps_summands_bits(summer->dtype, narrow + i * size, i);
    }
    summer->kernels.first(summer->kernels.context, wide, narrow, all, 1);
    oracle_first(summer->dtype, right, narrow, all, 1);
    bps_summer_same(summer, "first", BPS_FLOAT32, wide, right, all);
    for (int delta = -2; delta <= 2; delta++) {
        for (uint32_t i = 0; i < all; i++) {
            wide[i] = right[i] + (delta != 0 ? step + (uint32_t)delta + (delta < 0) - (delta > 0) : 0);
        }
        summer->kernels.finish(summer->kernels.context, back, wide, all, 1, 1);
        oracle_finish(summer->dtype, expected, wide, all, 1, 1);
        bps_summer_same(summer, "finish", summer->dtype, back, expected, all);
    }
}

/* float32 of every exponent and some fractions, so the subnormal ones and what is too large as well. */
static void round_exponents(struct bps_summer *summer)
{
    enum { FRACTIONS = 128, ALL = 512 * FRACTIONS };
    static uint32_t wide[ALL];
    static uint8_t narrow[ALL * 2], expected[ALL * 2];
    for (uint32_t i = 0; i < ALL; i++) {
        uint32_t fraction = (uint32_t)bps_summands_draw() & 0x7fffff;
        unsigned kept = i % 24; /* few bits: so ties are frequent */
        wide[i] = (i / FRACTIONS) << 23 | (fraction >> kept << kept);
    }
    summer->kernels.finish(summer->kernels.context, narrow, wide, ALL, 1, 1);
    oracle_finish(summer->dtype, expected, wide, ALL, 1, 1);
    bps_summer_same(summer, "finish", summer->dtype, narrow, expected, ALL);
}

static void convert(struct bps_summer *summer)
{
    if (summer->op == BPS_SUM && fraction_bits(summer->dtype) > 0) {
        bps_check_at(summer->check, "conversions of %s", bps_dtype_name(summer->dtype));
        convert_patterns(summer);
        round_exponents(summer);
    }
}

void bps_check_conversions(struct bps_check *check)
{
    bps_summer_each(check, convert);
}

/* ---- the same in other circumstances ---- */

enum { COUNT = 1000 };

/* Two sources, and what reduce makes of them on this thread. */
struct pair {
    struct bps_summands a, b, whole, again;
    uint64_t divisor;
};

static void reduce(const struct bps_summer *summer, const struct pair *pair, uint8_t *to, size_t from, size_t count)
{
    size_t bytes = from * oracle_size(summer->dtype);
    const void *sources[] = {pair->a.at + bytes, pair->b.at + bytes};
    summer->kernels.reduce(summer->kernels.context, to + bytes, sources, NULL, 2, count, 1, pair->divisor);
}

static struct pair new_pair(const struct bps_summer *summer)
{
    struct pair pair = {
        .a = bps_summands_new(summer, "src", summer->dtype, COUNT, 0),
        .b = bps_summands_new(summer, "src", summer->dtype, COUNT, 0),
        .whole = bps_summands_new(summer, "dst", summer->dtype, COUNT, 0),
        .again = bps_summands_new(summer, "dst", summer->dtype, COUNT, 0),
        .divisor = oracle_is_float(summer->dtype) ? 3 : 1,
    };
    bps_check_at(summer->check, "reduce, %s of %s", bps_op_name(summer->op), bps_dtype_name(summer->dtype));
    reduce(summer, &pair, pair.whole.at, 0, COUNT);
    return pair;
}

static void free_pair(struct pair *pair)
{
    bps_summands_free(&pair->a);
    bps_summands_free(&pair->b);
    bps_summands_free(&pair->whole);
    bps_summands_free(&pair->again);
}

static void cut(struct bps_summer *summer)
{
    struct pair pair = new_pair(summer);
    for (size_t at = 0, piece; at < COUNT; at += piece) {
        piece = 1 + bps_summands_draw() % 200;
        piece = piece < COUNT - at ? piece : COUNT - at;
        reduce(summer, &pair, pair.again.at, at, piece);
    }
    bps_summer_same(summer, "dst, reduced in pieces", summer->dtype, pair.again.at, pair.whole.at, COUNT);
    free_pair(&pair);
}

void bps_check_cuts(struct bps_check *check)
{
    bps_summer_each(check, cut);
}

/* ---- threads ---- */

enum { THREADS = 4, REPEATS = 30 };

struct worker {
    const struct bps_summer *summer;
    pthread_t thread;
    struct pair pair;
    unsigned wrong;
};

static void *reduce_many(void *arg)
{
    struct worker *worker = arg;
    struct pair *pair = &worker->pair;
    for (unsigned i = 0; i < REPEATS; i++) {
        reduce(worker->summer, pair, pair->again.at, 0, COUNT);
        worker->wrong += memcmp(pair->again.at, pair->whole.at, pair->whole.bytes) != 0;
    }
    return NULL;
}

static void reduce_in_threads(struct bps_summer *summer)
{
    struct worker workers[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.summer = summer, .pair = new_pair(summer)};
    }
    for (unsigned i = 0; i < THREADS; i++) {
        BPS_CHECK(summer->check, pthread_create(&workers[i].thread, NULL, reduce_many, &workers[i]) == 0,
                  "cannot start a thread");
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        BPS_CHECK(summer->check, workers[i].wrong == 0, "%u of %d results differ from those of one thread",
                  workers[i].wrong, REPEATS);
        free_pair(&workers[i].pair);
    }
}

void bps_check_reducing_threads(struct bps_check *check)
{
    bps_summer_each(check, reduce_in_threads);
}

/* ---- settings of the thread ---- */

#ifdef __SSE2__
/* A thread that flushes subnormals, rounds upwards and traps gets the same, and keeps its settings. */
static void reduce_with_settings(struct bps_summer *summer)
{
    enum { STATE = 0x8040 | 0x4000 | 0x1d00 }; /* flush both ways, round up, trap the invalid */
    struct pair pair = new_pair(summer);
    uint32_t clean = _mm_getcsr();
    _mm_setcsr(STATE);
    reduce(summer, &pair, pair.again.at, 0, COUNT);
    uint32_t dirty = _mm_getcsr();
    _mm_setcsr(clean);
    BPS_CHECK(summer->check, (dirty & 0xffc0) == (STATE & 0xffc0), "it changes the thread's floating-point settings");
    bps_summer_same(summer, "dst, by a thread that flushes subnormals and rounds upwards", summer->dtype, pair.again.at,
                    pair.whole.at, COUNT);
    free_pair(&pair);
}
#endif

void bps_check_environment(struct bps_check *check)
{
#ifdef __SSE2__
    bps_summer_each(check, reduce_with_settings);
#else
    bps_check_skip(check, "this machine is tested without");
#endif
}
