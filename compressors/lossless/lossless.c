/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lossless.c - the compressor "lossless": the same bits, in fewer bytes where exponents repeat, as in gradients.
 *
 * A coded slice is a row of chunks, each of 16384 elements but the last, which has what is left. A chunk is for each of
 * its byte planes (planes.h) a length, of two bytes, little endian, and then the planes in their order: one whose
 * length is the number of elements is there as it is, a shorter one as the library has coded it. A slice of no elements
 * is nothing.
 */
#include <string.h>

#include <byteps/compressor.h>

#include "coder.h"
#include "planes.h"
#include "util/environment.h"

#define LENGTH_BYTES 2u

struct lossless_options {
    uint32_t method;
    int64_t level;
};

static const struct bps_option lossless_options[] = {
    BPS_OPTION(struct lossless_options, method, CHOICE, BPS_OPT_AGREE, "zstd", CODER_WORDS,
               "The library that codes bytes."),
    BPS_OPTION(struct lossless_options, level, INT, BPS_OPT_AGREE, "1", "1..19",
               "How hard it tries; lz4 has 12 levels."),
    {0},
};

static const char *const coder_names[CODERS] = {"zstd", "lz4"};

struct lossless {
    const struct bps_host *host;
    struct workspaces workspaces;
};

static bps_status check_options(const struct lossless_options *given, struct bps_report *report)
{
    int levels = bps_lossless_levels(given->method);
    if (levels == 0) {
        BPS_REPORT(report, "method = \"%s\": this build lacks it; byteps info --build shows what it has",
                   coder_names[given->method]);
        return BPS_ERR_UNSUPPORTED;
    }
    if (given->level > levels) {
        BPS_REPORT(report, "level = %lld: with method = \"%s\", expected 1..%d", (long long)given->level,
                   coder_names[given->method], levels);
        return BPS_ERR_CONF;
    }
    return BPS_OK;
}

static bps_status lossless_open(const struct bps_host *host, const void *options, void **instance_out,
                                struct bps_report *report)
{
    const struct lossless_options *given = options;
    bps_status status = check_options(given, report);
    if (status != BPS_OK) {
        return status;
    }
    struct lossless *lossless = host->alloc(host, sizeof *lossless, 8);
    if (lossless == NULL ||
        !bps_lossless_workspaces_init(&lossless->workspaces, host, given->method, (int)given->level)) {
        if (lossless != NULL) {
            host->release(host, lossless);
        }
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    lossless->host = host;
    *instance_out = lossless;
    return BPS_OK;
}

static void lossless_close(void *instance)
{
    struct lossless *lossless = instance;
    bps_lossless_workspaces_fini(&lossless->workspaces);
    lossless->host->release(lossless->host, lossless);
}

static void lossless_describe(void *instance, char *text, size_t n)
{
    const struct lossless *lossless = instance;
    snprintf(text, n, "%s at level %d", coder_names[lossless->workspaces.coder], lossless->workspaces.level);
}

/* ---- coding ------------------------------------------------------------------------------------------------ */

static size_t size_of(uint32_t dtype)
{
    return dtype == BPS_FLOAT32 ? sizeof(float) : sizeof(double);
}

static size_t lossless_bound(void *instance, uint32_t dtype, size_t count)
{
    (void)instance;
    size_t chunks = count / CHUNK + (count % CHUNK > 0);
    return dtype == BPS_FLOAT32 || dtype == BPS_FLOAT64 ? size_of(dtype) * (count + LENGTH_BYTES * chunks) : 0;
}

static size_t encode_chunk(const struct workspaces *all, struct workspace *workspace, const uint8_t *src, size_t count,
                           size_t size, uint8_t *dst)
{
    size_t at = LENGTH_BYTES * size;
    bps_lossless_split(src, count, size, workspace->planes);
    for (size_t p = 0; p < size; p++) {
        const uint8_t *plane = workspace->planes + p * count;
        size_t bytes = bps_lossless_compress(all, workspace, plane, count, dst + at, count - 1);
        if (bytes == 0) {
            memcpy(dst + at, plane, count);
            bytes = count;
        }
        dst[LENGTH_BYTES * p] = (uint8_t)bytes;
        dst[LENGTH_BYTES * p + 1] = (uint8_t)(bytes >> 8);
        at += bytes;
    }
    return at;
}

static size_t lossless_encode(void *instance, uint32_t dtype, const void *src, size_t count,
                              const struct bps_random *random, void *dst)
{
    struct lossless *lossless = instance;
    struct workspace *workspace = bps_lossless_borrow(&lossless->workspaces);
    const uint8_t *from = src;
    uint8_t *to = dst;
    size_t size = size_of(dtype);
    (void)random;
    while (count > 0) {
        size_t n = count < CHUNK ? count : CHUNK;
        to += encode_chunk(&lossless->workspaces, workspace, from, n, size, to);
        from += n * size;
        count -= n;
    }
    bps_lossless_return(&lossless->workspaces, workspace);
    return (size_t)(to - (uint8_t *)dst);
}

/* ---- decoding ---------------------------------------------------------------------------------------------- */

/* Makes the planes of so many elements; how many bytes of the source they are, 0: they cannot be that. */
static size_t get_planes(const struct workspaces *all, struct workspace *workspace, const uint8_t *src, size_t bytes,
                         size_t count, size_t size)
{
    size_t at = LENGTH_BYTES * size;
    if (bytes < at) {
        return 0;
    }
    for (size_t p = 0; p < size; p++) {
        uint8_t *plane = workspace->planes + p * count;
        size_t length = src[LENGTH_BYTES * p] | (size_t)src[LENGTH_BYTES * p + 1] << 8;
        if (length == 0 || length > count || length > bytes - at) {
            return 0;
        }
        if (length == count) {
            memcpy(plane, src + at, count);
        } else if (!bps_lossless_decompress(all, workspace, src + at, length, plane, count)) {
            return 0;
        }
        at += length;
    }
    return at;
}

static bps_status decode_chunks(const struct workspaces *all, struct workspace *workspace, size_t size,
                                const uint8_t *src, size_t bytes, uint8_t *dst, size_t count, bool add)
{
    while (count > 0) {
        size_t n = count < CHUNK ? count : CHUNK, used = get_planes(all, workspace, src, bytes, n, size);
        if (used == 0) {
            return BPS_ERR_PROTOCOL;
        }
        bps_lossless_join(workspace->planes, n, size, dst, add);
        src += used;
        bytes -= used;
        dst += n * size;
        count -= n;
    }
    return bytes == 0 ? BPS_OK : BPS_ERR_PROTOCOL;
}

static bps_status decode(struct lossless *lossless, uint32_t dtype, const void *src, size_t bytes, void *dst,
                         size_t count, bool add)
{
    struct workspace *workspace = bps_lossless_borrow(&lossless->workspaces);
    uint32_t state = fp_enter();
    bps_status status = decode_chunks(&lossless->workspaces, workspace, size_of(dtype), src, bytes, dst, count, add);
    fp_leave(state);
    bps_lossless_return(&lossless->workspaces, workspace);
    return status;
}

static bps_status lossless_decode(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst,
                                  size_t count)
{
    return decode(instance, dtype, src, bytes, dst, count, false);
}

static bps_status lossless_decode_add(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst,
                                      size_t count)
{
    return decode(instance, dtype, src, bytes, dst, count, true);
}

/* ---- the module ------------------------------------------------------------------------------------------- */

static const struct bps_compressor_ops lossless_ops = {
    .size = sizeof lossless_ops,
    .open = lossless_open,
    .close = lossless_close,
    .bound = lossless_bound,
    .encode = lossless_encode,
    .decode = lossless_decode,
    .decode_add = lossless_decode_add,
    .describe = lossless_describe,
};

BPS_PLUGIN_MODULE(BPS_KIND_COMPRESSOR, "lossless", PLUGIN_VERSION, "Apache-2.0",
                  .summary = "the same bits, in fewer bytes where exponents repeat", .options = lossless_options,
                  .options_size = sizeof(struct lossless_options), .ops = &lossless_ops);
