/* SPDX-License-Identifier: Apache-2.0 */
/*
 * randomk.c - the compressor "randomk": of a slice some elements that are drawn; all others become zero.
 *
 * A coded slice is the number that says which they are (draw.h), a uint64, and then these elements in the order in
 * which they are drawn, in their own type; all little endian. No indices travel. Workers and the server draw alike in a
 * round (or each for itself, with `independent`): then they have all of the sum that is sent.
 *
 * `unbiased`: the mean over all draws is the sum. For that elements are multiplied by n / k, in all: with `independent`
 * each of the two codings of a round, by the worker and by the server, drops some, and multiplies by that. Otherwise
 * the server drops what is zero anyway, and each multiplies by the root.
 *
 * If any element is not finite, all that are sent are NaN, and then all of the slice becomes NaN.
 *
 * `compat`: elements are drawn with replacement, as the original does, with its numbers if there is a seed. The state
 * of its generator, two uint64, stands where the number does otherwise. Elements drawn again are sent as -0.0, since a
 * peer that adds must add each once.
 */
#include <endian.h>
#include <math.h>
#include <string.h>

#include <byteps/compressor.h>

#include "draw.h"
#include "util/environment.h"
#include "util/kept.h"
#include "values.h"

#define HEAD        8u  /* bytes before the elements, */
#define COMPAT_HEAD 16u /* and with compat */

struct randomk_options {
    double k;
    bool independent, unbiased, compat;
};

static const struct bps_option randomk_options[] = {
    BPS_OPTION(struct randomk_options, k, DOUBLE, BPS_OPT_AGREE, "0.01", "0..", KEPT_HELP),
    BPS_OPTION(struct randomk_options, independent, BOOL, BPS_OPT_AGREE, "false", NULL,
               "Each worker and the server draws other elements; false: all the same ones."),
    BPS_OPTION(
        struct randomk_options, unbiased, BOOL, BPS_OPT_AGREE, "false", NULL,
        "Elements are multiplied, so that their mean over all draws is right; not with feedback, which does that."),
    BPS_OPTION(
        struct randomk_options, compat, BOOL, BPS_OPT_AGREE, "false", NULL,
        "As the original BytePS: drawn with replacement, not multiplied, and a part of the elements is rounded down."),
    {0},
};

struct randomk {
    const struct bps_host *host;
    struct xorshift_skips *skips; /* of compat */
    struct randomk_options options;
};

static bps_status randomk_open(const struct bps_host *host, const void *options, void **instance_out,
                               struct bps_report *report)
{
    const struct randomk_options *given = options;
    if (!kept_is_valid(given->k, report)) {
        return BPS_ERR_CONF;
    }
    if (given->compat && given->unbiased) {
        BPS_REPORT(report, "unbiased = true: the original multiplies nothing; expected false with compat = true");
        return BPS_ERR_CONF;
    }
    size_t size = sizeof(struct randomk) + (given->compat ? sizeof(struct xorshift_skips) : 0);
    struct randomk *randomk = host->alloc(host, size, 8);
    if (randomk == NULL) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    *randomk = (struct randomk){.host = host, .options = *given};
    if (given->compat) {
        randomk->skips = (struct xorshift_skips *)(randomk + 1);
        xorshift_skips_init(randomk->skips);
    }
    *instance_out = randomk;
    return BPS_OK;
}

static void randomk_close(void *instance)
{
    struct randomk *randomk = instance;
    randomk->host->release(randomk->host, randomk);
}

static void randomk_describe(void *instance, char *text, size_t n)
{
    const struct randomk_options *options = &((const struct randomk *)instance)->options;
    snprintf(text, n, "%g %s, drawn %s%s%s", options->k < 1 ? options->k * 100 : options->k,
             options->k < 1 ? "% of the elements" : "elements of a slice", options->independent ? "by each" : "alike",
             options->unbiased ? ", unbiased" : "", options->compat ? ", as the original" : "");
}

/* ---- coding ---- */

static const struct randomk_values *values_of(uint32_t dtype)
{
    return dtype == BPS_FLOAT32 ? &randomk_values32 : &randomk_values64;
}

static size_t head_bytes(const struct randomk *randomk)
{
    return randomk->options.compat ? COMPAT_HEAD : HEAD;
}

static size_t kept_by(const struct randomk *randomk, uint32_t dtype, size_t count)
{
    return kept_of(randomk->options.k, count, randomk->options.compat ? values_of(dtype)->size : 0);
}

static size_t coded_bytes(const struct randomk *randomk, uint32_t dtype, size_t count)
{
    return head_bytes(randomk) + kept_by(randomk, dtype, count) * values_of(dtype)->size;
}

static size_t randomk_bound(void *instance, uint32_t dtype, size_t count)
{
    return dtype == BPS_FLOAT32 || dtype == BPS_FLOAT64 ? coded_bytes(instance, dtype, count) : 0;
}

/* Where drawing begins: of compat both of it, otherwise the first. */
static struct xorshift beginning(const struct randomk *randomk, const struct bps_random *random, size_t kept)
{
    if (randomk->options.independent) {
        return (struct xorshift){random->own, random->own};
    }
    return randomk->options.compat ? xorshift_of(randomk->skips, random, kept) : (struct xorshift){random->shared, 0};
}

static double factor_of(const struct randomk_options *options, const struct draw *draw)
{
    if (!options->unbiased || draw->kept == 0) {
        return 1;
    }
    double share = (double)draw->count / (double)draw->kept;
    return options->independent ? share : sqrt(share);
}

static size_t randomk_encode(void *instance, uint32_t dtype, const void *src, size_t count,
                             const struct bps_random *random, void *dst)
{
    const struct randomk *randomk = instance;
    const struct randomk_values *values = values_of(dtype);
    size_t kept = kept_by(randomk, dtype, count), at = head_bytes(randomk);
    const struct xorshift begin = beginning(randomk, random, kept);
    const struct draw draw = draw_begin(begin, count, kept, randomk->options.compat);
    const uint64_t head[] = {htole64(begin.a), htole64(begin.b)};
    memcpy(dst, head, at);
    if (!values->finite(src, count)) {
        values->break_all((uint8_t *)dst + at, draw.kept);
    } else {
        uint32_t state = fp_enter();
        values->gather(src, &draw, factor_of(&randomk->options, &draw), (uint8_t *)dst + at);
        fp_leave(state);
    }
    return coded_bytes(randomk, dtype, count);
}

/* Encode makes NaN of all values or none. */
static bps_status decode(const struct randomk *randomk, uint32_t dtype, const uint8_t *src, size_t bytes, void *dst,
                         size_t count, bool add)
{
    const struct randomk_values *values = values_of(dtype);
    uint64_t head[2] = {0, 0};
    size_t at = head_bytes(randomk);
    if (bytes != coded_bytes(randomk, dtype, count)) {
        return BPS_ERR_PROTOCOL;
    }
    memcpy(head, src, at);
    const struct xorshift begin = {le64toh(head[0]), le64toh(head[1])};
    const struct draw draw = draw_begin(begin, count, kept_by(randomk, dtype, count), randomk->options.compat);
    size_t nans = values->nans(src + at, draw.kept);
    if (nans > 0) {
        values->break_all(dst, count);
        return nans == draw.kept ? BPS_OK : BPS_ERR_PROTOCOL;
    }
    if (!add) {
        memset(dst, 0, count * values->size);
    }
    uint32_t state = fp_enter();
    values->scatter(src + at, &draw, add || draw.compat, dst);
    fp_leave(state);
    return BPS_OK;
}

static bps_status randomk_decode(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst, size_t count)
{
    return decode(instance, dtype, src, bytes, dst, count, false);
}

static bps_status randomk_decode_add(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst,
                                     size_t count)
{
    return decode(instance, dtype, src, bytes, dst, count, true);
}

/* ---- the module ---- */

static const struct bps_compressor_ops randomk_ops = {
    .size = sizeof randomk_ops,
    .open = randomk_open,
    .close = randomk_close,
    .bound = randomk_bound,
    .encode = randomk_encode,
    .decode = randomk_decode,
    .decode_add = randomk_decode_add,
    .describe = randomk_describe,
};

BPS_PLUGIN_MODULE(BPS_KIND_COMPRESSOR, "randomk", PLUGIN_VERSION, "Apache-2.0", .summary = "elements that are drawn",
                  .options = randomk_options, .options_size = sizeof(struct randomk_options), .ops = &randomk_ops,
                  .format = 1);
