/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compressor.c - what is expected of compressors: they stay within their bound, decode what they have encoded, and let
 * nothing that is not finite get lost.
 */
#include "tools/check/compressor.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tools/check/values.h"

static const struct bps_random draws = {.shared = 1, .own = 2, .seed = 0, .round = 0};
static const size_t counts[] = {1, 2, 7, 64, 65, 1000, 4099};
enum { COUNTS = sizeof counts / sizeof *counts };

/* ---- its operations ---- */

static const struct bps_compressor_ops *ops_of(const struct bps_coder *coder)
{
    return coder->instance->ops;
}

static void at(const struct bps_coder *coder, const char *callback, size_t count)
{
    bps_check_at(coder->check, "%s, %s, %zu elements", callback, bps_dtype_name(coder->dtype), count);
}

void bps_coder_each(struct bps_check *check, void (*fn)(struct bps_coder *coder))
{
    static const uint32_t dtypes[] = {BPS_FLOAT32, BPS_FLOAT64};
    struct bps_coder coder = {.check = check, .instance = bps_check_open(check)};
    unsigned coded = 0;
    for (size_t i = 0; i < 2; i++) {
        coder.dtype = dtypes[i];
        coder.size = bps_dtype_size(dtypes[i]);
        if (bps_coder_bound(&coder, 1000) > 0) {
            coded++;
            fn(&coder);
        }
    }
    BPS_CHECK(check, coded > 0, "bound returns 0 for 1000 elements of float32 and of float64: it codes neither");
    bps_check_close(check, coder.instance);
}

size_t bps_coder_bound(const struct bps_coder *coder, size_t count)
{
    at(coder, "bound", count);
    return ops_of(coder)->bound(coder->instance->self, coder->dtype, count);
}

size_t bps_coder_encode(const struct bps_coder *coder, const void *src, size_t count, const struct bps_random *random,
                        void *dst)
{
    size_t bound = bps_coder_bound(coder, count);
    at(coder, "encode", count);
    size_t bytes = ops_of(coder)->encode(coder->instance->self, coder->dtype, src, count, random, dst);
    BPS_CHECK(coder->check, bytes <= bound && (bytes > 0 || count == 0),
              "it returns %zu; allowed are %d to %zu, its "
              "bound",
              bytes, count > 0, bound);
    return bytes;
}

void bps_coder_decode(const struct bps_coder *coder, const void *src, size_t bytes, void *dst, size_t count)
{
    at(coder, "decode", count);
    bps_status status = ops_of(coder)->decode(coder->instance->self, coder->dtype, src, bytes, dst, count);
    BPS_CHECK(coder->check, status == BPS_OK, "it returns %d (%s) for data that encode produced from as many elements",
              status, bps_strerror(status));
}

void bps_coder_decode_add(const struct bps_coder *coder, const void *src, size_t bytes, void *dst, size_t count)
{
    at(coder, "decode_add", count);
    bps_status status = ops_of(coder)->decode_add(coder->instance->self, coder->dtype, src, bytes, dst, count);
    BPS_CHECK(coder->check, status == BPS_OK, "it returns %d (%s) for data that encode produced from as many elements",
              status, bps_strerror(status));
}

double bps_coder_element(const struct bps_coder *coder, const void *elements, size_t i)
{
    float narrow;
    double wide;
    if (coder->dtype == BPS_FLOAT64) {
        memcpy(&wide, (const uint8_t *)elements + i * sizeof wide, sizeof wide);
        return wide;
    }
    memcpy(&narrow, (const uint8_t *)elements + i * sizeof narrow, sizeof narrow);
    return (double)narrow;
}

void bps_coder_set(const struct bps_coder *coder, void *elements, size_t i, double value)
{
    float narrow = (float)value;
    if (coder->dtype == BPS_FLOAT64) {
        memcpy((uint8_t *)elements + i * sizeof value, &value, sizeof value);
    } else {
        memcpy((uint8_t *)elements + i * sizeof narrow, &narrow, sizeof narrow);
    }
}

/* ---- memory for one slice on its way ---- */

struct way {
    struct bps_guarded src, coded, wire, dst;
    size_t bytes; /* of `coded` that are used, and of `wire` */
};

/* `slack` bytes behind src, dst and what is coded are not used: so they have another alignment. */
static struct way new_way(const struct bps_coder *coder, size_t count, size_t slack)
{
    struct bps_check *check = coder->check;
    size_t bytes = count * coder->size;
    struct way way = {
        .src = bps_guarded_new(check, "src", bytes + slack, BPS_GUARDED_BACK),
        .coded = bps_guarded_new(check, "dst", bps_coder_bound(coder, count) + slack, BPS_GUARDED_BACK),
        .dst = bps_guarded_new(check, "dst", bytes + slack, BPS_GUARDED_BACK),
    };
    bps_check_fill(coder->dtype, way.src.at, count, count, BPS_CHECK_ORDINARY);
    return way;
}

static void free_way(struct way *way)
{
    bps_guarded_free(&way->src);
    bps_guarded_free(&way->coded);
    if (way->wire.map != NULL) {
        bps_guarded_free(&way->wire);
    }
    bps_guarded_free(&way->dst);
}

/* What is coded goes where it ends at a page's end, as nothing behind it may be read. */
static void encode(const struct bps_coder *coder, struct way *way, size_t count)
{
    bps_guarded_read_only(&way->src, true);
    way->bytes = bps_coder_encode(coder, way->src.at, count, &draws, way->coded.at);
    bps_guarded_read_only(&way->src, false);
    if (way->wire.map != NULL) {
        bps_guarded_free(&way->wire);
    }
    way->wire = bps_guarded_new(coder->check, "src", way->bytes, BPS_GUARDED_BACK);
    memcpy(way->wire.at, way->coded.at, way->bytes);
    bps_guarded_read_only(&way->wire, true);
}

static void decode(const struct bps_coder *coder, const struct way *way, size_t count)
{
    bps_coder_decode(coder, way->wire.at, way->bytes, way->dst.at, count);
}

/* ---- bound ---- */

static void look_at_bound(struct bps_coder *coder)
{
    size_t before = bps_coder_bound(coder, 1);
    for (size_t count = 1; count <= 5000; count++) {
        size_t bound = bps_coder_bound(coder, count);
        BPS_CHECK(coder->check, bound > 0, "it returns 0, and not 0 for 1000 elements");
        BPS_CHECK(coder->check, bound >= before, "it returns %zu, and %zu for one element less", bound, before);
        BPS_CHECK(coder->check, bound == bps_coder_bound(coder, count), "it does not return the same again");
        before = bound;
    }
    size_t large = bps_coder_bound(coder, (size_t)1 << 30);
    BPS_CHECK(coder->check, large >= before && large < (size_t)1 << 40, "it returns %zu", large);
}

static void check_bound(struct bps_check *check)
{
    bps_coder_each(check, look_at_bound);
}

/* ---- encode and decode ---- */

static void look_at_written(const struct bps_coder *coder, struct way *way, size_t count)
{
    size_t bytes = count * coder->size, kept = bytes;
    uint8_t *first = malloc(bytes);
    BPS_CHECK(coder->check, first != NULL, "out of memory");
    memset(way->dst.at, 0x5a, bytes);
    decode(coder, way, count);
    memcpy(first, way->dst.at, bytes);
    memset(way->dst.at, 0xa5, bytes);
    decode(coder, way, count);
    for (size_t i = 0; i < bytes && kept == bytes; i++) {
        kept = first[i] == 0x5a && way->dst.at[i] == 0xa5 ? i : bytes;
    }
    BPS_CHECK(coder->check, kept == bytes, "it has not written byte %zu of dst, which has %zu", kept, bytes);
    BPS_CHECK(coder->check, memcmp(first, way->dst.at, bytes) == 0, "it decodes the same bytes to different elements");
    free(first);
}

static void look_at_finite(const struct bps_coder *coder, const struct way *way, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double value = bps_coder_element(coder, way->dst.at, i);
        BPS_CHECK(coder->check, isfinite(value), "element %zu is %g, of elements that are all finite", i, value);
    }
}

static void there_and_back(struct bps_coder *coder)
{
    static const size_t slacks[] = {0, 1, 3};
    for (size_t i = 0; i < COUNTS * 3; i++) {
        size_t count = counts[i / 3];
        struct way way = new_way(coder, count, slacks[i % 3]);
        encode(coder, &way, count);
        look_at_written(coder, &way, count);
        look_at_finite(coder, &way, count);
        free_way(&way);
    }
}

static void check_there_and_back(struct bps_check *check)
{
    bps_coder_each(check, there_and_back);
}

/* ---- the same again ---- */

static void encode_again(struct bps_coder *coder)
{
    for (size_t i = 0; i < COUNTS; i++) {
        struct way way = new_way(coder, counts[i], 0);
        memset(way.coded.at, 0x5a, way.coded.bytes);
        encode(coder, &way, counts[i]);
        memset(way.coded.at, 0xa5, way.coded.bytes);
        size_t bytes = bps_coder_encode(coder, way.src.at, counts[i], &draws, way.coded.at);
        BPS_CHECK(coder->check, bytes == way.bytes && memcmp(way.wire.at, way.coded.at, bytes) == 0,
                  "it encodes the same elements and random numbers to different bytes, or leaves some unwritten");
        free_way(&way);
    }
}

static void check_again(struct bps_check *check)
{
    bps_coder_each(check, encode_again);
}

/* ---- decode_add ---- */

static void add(struct bps_coder *coder)
{
    for (size_t i = 0; i < COUNTS; i++) {
        size_t count = counts[i];
        struct way way = new_way(coder, count, 0);
        struct bps_guarded sum = bps_guarded_new(coder->check, "dst", count * coder->size, BPS_GUARDED_BACK);
        encode(coder, &way, count);
        decode(coder, &way, count);
        bps_check_fill(coder->dtype, sum.at, count, 77, BPS_CHECK_ORDINARY);
        for (size_t k = 0; k < count; k++) {
            double added = bps_coder_element(coder, sum.at, k) + bps_coder_element(coder, way.dst.at, k);
            bps_coder_set(coder, way.src.at, k, added);
        }
        bps_coder_decode_add(coder, way.wire.at, way.bytes, sum.at, count);
        for (size_t k = 0; k < count; k++) {
            double wanted = bps_coder_element(coder, way.src.at, k), found = bps_coder_element(coder, sum.at, k);
            BPS_CHECK(coder->check, wanted == found,
                      "element %zu is %.9g; expected %.9g, the old element plus that of decode", k, found, wanted);
        }
        bps_guarded_free(&sum);
        free_way(&way);
    }
}

static void check_add(struct bps_check *check)
{
    bps_coder_each(check, add);
}

/* ---- elements that are special ---- */

static void one_is(struct bps_coder *coder, double value, size_t count, size_t place)
{
    struct way way = new_way(coder, count, 0);
    bool visible = false;
    bps_coder_set(coder, way.src.at, place, value);
    encode(coder, &way, count);
    decode(coder, &way, count);
    for (size_t i = 0; i < count; i++) {
        visible |= !isfinite(bps_coder_element(coder, way.dst.at, i));
    }
    BPS_CHECK(coder->check, visible,
              "element %zu was %g, and all are finite after they were encoded and decoded: an "
              "overflow must stay visible",
              place, value);
    free_way(&way);
}

static void not_finite(struct bps_coder *coder)
{
    static const double values[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < COUNTS * 3; i++) {
        size_t count = counts[i / 3];
        one_is(coder, values[i % 3], count, 0);
        one_is(coder, values[i % 3], count, count / 2);
        one_is(coder, values[i % 3], count, count - 1);
    }
}

static void check_not_finite(struct bps_check *check)
{
    bps_coder_each(check, not_finite);
}

static void all_are(struct bps_coder *coder)
{
    static const double values[] = {0, -0.0, 1e-45, 1e-39, 1e-30, 1.5e38, -1.5e38};
    for (size_t i = 0; i < COUNTS * 7; i++) {
        size_t count = counts[i / 7];
        struct way way = new_way(coder, count, 0);
        for (size_t k = 0; k < count; k++) {
            bps_coder_set(coder, way.src.at, k, values[i % 7]);
        }
        encode(coder, &way, count);
        decode(coder, &way, count);
        for (size_t k = 0; k < count; k++) {
            double found = bps_coder_element(coder, way.dst.at, k);
            BPS_CHECK(coder->check, !isnan(found), "element %zu is %g, where all were %g", k, found, values[i % 7]);
        }
        free_way(&way);
    }
}

static void check_extremes(struct bps_check *check)
{
    bps_coder_each(check, all_are);
}

static void nothing(struct bps_coder *coder)
{
    struct way way = new_way(coder, 0, 0);
    encode(coder, &way, 0);
    decode(coder, &way, 0);
    bps_coder_decode_add(coder, way.wire.at, way.bytes, way.dst.at, 0);
    free_way(&way);
}

static void check_nothing(struct bps_check *check)
{
    bps_coder_each(check, nothing);
}

/* ---- what is lost ---- */

enum { SLICE = 4096, FEEDBACK = 200 };

/* The error of one round, and of the mean of many with what was lost given to the next. */
static void lose(struct bps_coder *coder)
{
    struct way way = new_way(coder, SLICE, 0);
    double *gradient = calloc(3, SLICE * sizeof *gradient), *kept = gradient + SLICE, *sum = kept + SLICE;
    double norm = 0, once = 0, after = 0;
    BPS_CHECK(coder->check, gradient != NULL, "out of memory");
    for (size_t i = 0; i < SLICE; i++) {
        gradient[i] = bps_coder_element(coder, way.src.at, i);
        norm += gradient[i] * gradient[i];
    }
    for (unsigned round = 0; round < FEEDBACK; round++) {
        struct bps_random random = {.shared = round, .own = round + 1, .round = round};
        for (size_t i = 0; i < SLICE; i++) {
            bps_coder_set(coder, way.src.at, i, gradient[i] + kept[i]);
        }
        way.bytes = bps_coder_encode(coder, way.src.at, SLICE, &random, way.coded.at);
        bps_coder_decode(coder, way.coded.at, way.bytes, way.dst.at, SLICE);
        for (size_t i = 0; i < SLICE; i++) {
            double found = bps_coder_element(coder, way.dst.at, i);
            kept[i] = bps_coder_element(coder, way.src.at, i) - found;
            sum[i] += found;
            once += round == 0 ? kept[i] * kept[i] : 0;
        }
    }
    for (size_t i = 0; i < SLICE; i++) {
        after += pow(sum[i] / FEEDBACK - gradient[i], 2);
    }
    bps_check_at(coder->check, "error feedback, %s", bps_dtype_name(coder->dtype));
    BPS_CHECK(coder->check, isfinite(after), "the elements of %d rounds are not finite any more", FEEDBACK);
    bps_check_note(coder->check,
                   "%s: %.1f times fewer bytes; relative error %.2g once, %.2g of the mean of %d rounds with "
                   "error feedback",
                   bps_dtype_name(coder->dtype), (double)(SLICE * coder->size) / (double)way.bytes, sqrt(once / norm),
                   sqrt(after / norm), FEEDBACK);
    free(gradient);
    free_way(&way);
}

static void check_loss(struct bps_check *check)
{
    bps_coder_each(check, lose);
}

/* ---- threads, and nothing left behind ---- */

enum { THREADS = 4, REPEATS = 100, IN_THREAD = 4099 };

struct worker {
    const struct bps_coder *coder;
    pthread_t thread;
    struct way way;
    struct bps_guarded again; /* where it decodes what is compared with way.dst */
    unsigned wrong;
};

static void *code_many(void *arg)
{
    struct worker *worker = arg;
    const struct bps_coder *coder = worker->coder;
    struct way *way = &worker->way;
    for (unsigned i = 0; i < REPEATS; i++) {
        size_t bytes =
            ops_of(coder)->encode(coder->instance->self, coder->dtype, way->src.at, IN_THREAD, &draws, way->coded.at);
        bool same = bytes == way->bytes && memcmp(way->coded.at, way->wire.at, bytes) == 0;
        bps_status status = ops_of(coder)->decode(coder->instance->self, coder->dtype, way->wire.at, way->bytes,
                                                  worker->again.at, IN_THREAD);
        same &= status == BPS_OK && memcmp(worker->again.at, way->dst.at, way->dst.bytes) == 0;
        worker->wrong += !same;
    }
    return NULL;
}

static void code_in_threads(struct bps_coder *coder)
{
    struct worker workers[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        struct worker *one = &workers[i];
        *one = (struct worker){.coder = coder, .way = new_way(coder, IN_THREAD, 0)};
        bps_check_fill(coder->dtype, one->way.src.at, IN_THREAD, i, BPS_CHECK_ORDINARY);
        encode(coder, &one->way, IN_THREAD);
        decode(coder, &one->way, IN_THREAD);
        one->again = bps_guarded_new(coder->check, "dst", one->way.dst.bytes, BPS_GUARDED_BACK);
    }
    bps_check_at(coder->check, "encode and decode, %s, %d elements, on %d threads", bps_dtype_name(coder->dtype),
                 IN_THREAD, THREADS);
    for (unsigned i = 0; i < THREADS; i++) {
        BPS_CHECK(coder->check, pthread_create(&workers[i].thread, NULL, code_many, &workers[i]) == 0,
                  "cannot start a thread");
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        BPS_CHECK(coder->check, workers[i].wrong == 0, "%u of %d results differ from those of one thread",
                  workers[i].wrong, REPEATS);
        bps_guarded_free(&workers[i].again);
        free_way(&workers[i].way);
    }
}

static void check_threads(struct bps_check *check)
{
    bps_coder_each(check, code_in_threads);
}

static void code_rounds(struct bps_coder *coder)
{
    enum { WARM = 20, ROUNDS = 500, SMALL = 300 };
    struct way way = new_way(coder, SMALL, 0);
    struct bps_check_usage before = bps_check_usage_now();
    for (unsigned i = 0; i < WARM + ROUNDS; i++) {
        before = i == WARM ? bps_check_usage_now() : before;
        way.bytes = bps_coder_encode(coder, way.src.at, SMALL, &draws, way.coded.at);
        bps_coder_decode(coder, way.coded.at, way.bytes, way.dst.at, SMALL);
        bps_coder_decode_add(coder, way.coded.at, way.bytes, way.dst.at, SMALL);
    }
    bps_check_at(coder->check, "encode, decode and decode_add, %s", bps_dtype_name(coder->dtype));
    bps_check_usage_same(coder->check, &before, ROUNDS);
    free_way(&way);
}

static void check_rounds(struct bps_check *check)
{
    bps_coder_each(check, code_rounds);
}

const struct bps_check_test bps_check_compressor[] = {
    {"bound", check_bound, 0},
    {"encode and decode: within their memory", check_there_and_back, 0},
    {"encode: the same bytes again", check_again, 0},
    {"decode_add: what decode makes is added", check_add, 0},
    {"no elements", check_nothing, 0},
    {"NaN and infinity stay visible", check_not_finite, 0},
    {"zeros, subnormal and large numbers", check_extremes, 0},
    {"what is lost, once and with error feedback", check_loss, 0},
    {"several threads", check_threads, 0},
    {"nothing is left behind", check_rounds, 0},
    {"decode: every cut of a message", bps_check_cut_bytes, 0},
    {"decode: mutated messages", bps_check_mutated_bytes, 3},
    {NULL, NULL, 0},
};
