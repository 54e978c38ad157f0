/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topk.c - the compressor "topk": of a slice only the elements of largest magnitude, and where they are.
 *
 * After Aji and Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017. All others become zero.
 *
 * A coded slice is how many elements there are, a uint32; the string of their indices (indices.h); and the elements in
 * the order of their indices, in their own type; all little endian. How many, and so the length, depends on the options
 * and the number of elements only.
 *
 * Of equal magnitudes those with the lowest indices are kept, so the bytes are the same wherever they are made. NaN
 * counts as the largest, then infinity: what is not finite is kept first, and shows. More of these than are kept are
 * still as many as can be.
 */
#include <endian.h>
#include <string.h>

#include <byteps/compressor.h>

#include "indices.h"
#include "kernels.h"
#include "select.h"
#include "util/environment.h"
#include "util/isa.h"
#include "util/kept.h"

#ifdef HAVE_AVX2
#define TABLE_AVX2 &bps_topk_table_avx2
#else
#define TABLE_AVX2 NULL
#endif

#ifdef HAVE_AVX512
#define TABLE_AVX512 &bps_topk_table_avx512
#else
#define TABLE_AVX512 NULL
#endif

static const struct isa_tables tables = {{&bps_topk_table_baseline, TABLE_AVX2, TABLE_AVX512}};

#define HEAD  4u     /* bytes before the indices */
#define CHUNK 16384u /* elements that are looked through at once */

struct topk_options {
    double k;
    bool compat;
    uint32_t isa;
};

static const struct bps_option topk_options[] = {
    BPS_OPTION(struct topk_options, k, DOUBLE, BPS_OPT_AGREE, "0.01", "0..", KEPT_HELP),
    BPS_OPTION(struct topk_options, compat, BOOL, BPS_OPT_AGREE, "false", NULL,
               "As the original BytePS: a part of the elements is rounded down."),
    BPS_OPTION(struct topk_options, isa, CHOICE, 0, "auto", ISA_WORDS, ISA_HELP),
    {0},
};

struct topk {
    const struct bps_host *host;
    const struct topk_table *table;
    const char *isa;
    double k;
    bool compat;
};

static bps_status topk_open(const struct bps_host *host, const void *options, void **instance_out,
                            struct bps_report *report)
{
    const struct topk_options *given = options;
    const char *isa = NULL;
    const struct topk_table *table = isa_choose(&tables, given->isa, &isa, report);
    if (table == NULL) {
        return BPS_ERR_UNSUPPORTED;
    }
    if (!kept_is_valid(given->k, report)) {
        return BPS_ERR_CONF;
    }
    struct topk *topk = host->alloc(host, sizeof *topk, 8);
    if (topk == NULL) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    *topk = (struct topk){.host = host, .table = table, .isa = isa, .k = given->k, .compat = given->compat};
    *instance_out = topk;
    return BPS_OK;
}

static void topk_close(void *instance)
{
    struct topk *topk = instance;
    topk->host->release(topk->host, topk);
}

static void topk_describe(void *instance, char *text, size_t n)
{
    const struct topk *topk = instance;
    snprintf(text, n, "%g %s%s, kernels for %s", topk->k < 1 ? topk->k * 100 : topk->k,
             topk->k < 1 ? "% of the elements" : "elements of a slice", topk->compat ? " as the original" : "",
             topk->isa);
}

/* ---- the format ---- */

static size_t size_of(uint32_t dtype)
{
    return dtype == BPS_FLOAT32 ? 4 : 8;
}

static struct indices layout_of(const struct topk *topk, uint32_t dtype, size_t count)
{
    size_t kept = kept_of(topk->k, count, topk->compat ? size_of(dtype) : 0);
    return indices_layout(count, kept < UINT32_MAX ? kept : UINT32_MAX);
}

static size_t coded_bytes(const struct indices *indices, uint32_t dtype)
{
    return HEAD + indices->bytes + indices->kept * size_of(dtype);
}

static size_t topk_bound(void *instance, uint32_t dtype, size_t count)
{
    const struct indices indices = layout_of(instance, dtype, count);
    return dtype == BPS_FLOAT32 || dtype == BPS_FLOAT64 ? coded_bytes(&indices, dtype) : 0;
}

/* ---- coding ---- */

static const struct topk_kernels *kernels_of(const struct topk *topk, uint32_t dtype)
{
    return dtype == BPS_FLOAT32 ? &topk->table->f32 : &topk->table->f64;
}

#define ALWAYS_INLINE static inline __attribute__((always_inline)) /* for each size of elements */

/* Whether the key of an element is that one, whose highest bit is 0. */
ALWAYS_INLINE bool has_key(const uint8_t *element, size_t size, uint64_t key)
{
    uint32_t narrow;
    uint64_t wide;
    if (size == sizeof narrow) {
        memcpy(&narrow, element, sizeof narrow);
        return (narrow & INT32_MAX) == key;
    }
    memcpy(&wide, element, sizeof wide);
    return (wide & INT64_MAX) == key;
}

/* Of the elements at these places the first `ties` with the threshold's key stay, and those with others; how many. */
ALWAYS_INLINE size_t drop_ties(const uint8_t *src, size_t size, struct threshold *threshold, uint16_t *places,
                               size_t found)
{
    size_t stay = 0;
    for (size_t i = 0; i < found; i++) {
        bool tie = has_key(src + places[i] * size, size, threshold->key), drop = tie && threshold->ties == 0;
        threshold->ties -= tie && !drop;
        places[stay] = places[i];
        stay += !drop;
    }
    return stay;
}

/* Writes the elements that the threshold selects. */
ALWAYS_INLINE void put_all(const struct topk_kernels *kernels, const uint8_t *src, const struct indices *indices,
                           size_t size, struct threshold threshold, uint8_t *string)
{
    struct index_writer writer = indices_begin(indices, string);
    uint8_t *value = string + indices->bytes;
    uint16_t places[CHUNK];
    for (size_t first = 0; first < indices->count; first += CHUNK, src += CHUNK * size) {
        size_t left = indices->count - first;
        size_t found = kernels->find(src, left < CHUNK ? left : CHUNK, threshold.key, places);
        found = drop_ties(src, size, &threshold, places, found);
        indices_put(&writer, first, places, found);
        for (size_t i = 0; i < found; i++, value += size) {
            memcpy(value, src + places[i] * size, size);
        }
    }
    indices_end(&writer);
}

static size_t topk_encode(void *instance, uint32_t dtype, const void *src, size_t count,
                          const struct bps_random *random, void *dst)
{
    const struct topk_kernels *kernels = kernels_of(instance, dtype);
    const struct indices indices = layout_of(instance, dtype, count);
    uint32_t head = htole32((uint32_t)indices.kept);
    (void)random;
    memcpy(dst, &head, HEAD);
    if (count > 0) {
        struct threshold threshold = topk_select(kernels, src, count, size_of(dtype), indices.kept);
        if (dtype == BPS_FLOAT32) {
            put_all(kernels, src, &indices, 4, threshold, (uint8_t *)dst + HEAD);
        } else {
            put_all(kernels, src, &indices, 8, threshold, (uint8_t *)dst + HEAD);
        }
    }
    return coded_bytes(&indices, dtype);
}

/* What is coded begins with `head`; false: it is no such thing. */
static bool is_coded(const struct indices *indices, uint32_t dtype, const void *src, size_t bytes)
{
    uint32_t head;
    if (bytes != coded_bytes(indices, dtype)) {
        return false;
    }
    memcpy(&head, src, HEAD);
    return le32toh(head) == indices->kept;
}

static bps_status topk_decode(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst, size_t count)
{
    const struct indices indices = layout_of(instance, dtype, count);
    const uint8_t *string = (const uint8_t *)src + HEAD;
    if (!is_coded(&indices, dtype, src, bytes)) {
        return BPS_ERR_PROTOCOL;
    }
    memset(dst, 0, count * size_of(dtype));
    bool right =
        (dtype == BPS_FLOAT32 ? indices_assign32 : indices_assign64)(&indices, string, string + indices.bytes, dst);
    return right ? BPS_OK : BPS_ERR_PROTOCOL;
}

static bps_status topk_decode_add(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst,
                                  size_t count)
{
    const struct indices indices = layout_of(instance, dtype, count);
    const uint8_t *string = (const uint8_t *)src + HEAD;
    if (!is_coded(&indices, dtype, src, bytes)) {
        return BPS_ERR_PROTOCOL;
    }
    uint32_t state = fp_enter();
    bool right = (dtype == BPS_FLOAT32 ? indices_add32 : indices_add64)(&indices, string, string + indices.bytes, dst);
    fp_leave(state);
    return right ? BPS_OK : BPS_ERR_PROTOCOL;
}

/* ---- the module ---- */

static const struct bps_compressor_ops topk_ops = {
    .size = sizeof topk_ops,
    .open = topk_open,
    .close = topk_close,
    .bound = topk_bound,
    .encode = topk_encode,
    .decode = topk_decode,
    .decode_add = topk_decode_add,
    .describe = topk_describe,
};

BPS_PLUGIN_MODULE(BPS_KIND_COMPRESSOR, "topk", PLUGIN_VERSION, "Apache-2.0",
                  .summary = "the elements of largest magnitude, and where they are", .options = topk_options,
                  .options_size = sizeof(struct topk_options), .ops = &topk_ops, .format = 1);
