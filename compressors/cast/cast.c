/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast.c - the compressor "cast": elements as floating point of 16 or 8 bits.
 *
 * A slice coded as float16 or bfloat16 is its elements in that format, little endian. One coded as float8_e4m3 or
 * float8_e5m2 is a row of blocks, each of `block` elements but the last, which has what is left: the scale, a float32,
 * little endian, and then one byte for each element, which stands for that number times the scale.
 *
 * The scale is the largest magnitude of the block's finite elements over the largest number of the format (448 or
 * 57344), rounded to float32, so that none becomes too large; but at least 2^-126, at most the largest float32 (which
 * float64 may exceed), and 1 if they are all zero. What is coded is an element times 1 / scale, both in the type of
 * the elements, rounded to nearest, ties to even.
 *
 * E4M3 and E5M2 are those of Micikevicius et al., "FP8 Formats for Deep Learning", 2022, and of the Open Compute
 * Project. What is not finite stays so: NaN becomes the one NaN of the format without sign and payload, infinity stays
 * infinity, in E4M3, which has none, it becomes NaN. Elements too large for float16 or bfloat16 become infinite.
 */
#include <byteps/compressor.h>

#include "kernels.h"
#include "util/environment.h"
#include "util/isa.h"

#ifdef HAVE_AVX2
#define TABLE_AVX2 &bps_cast_table_avx2
#else
#define TABLE_AVX2 NULL
#endif

#ifdef HAVE_AVX512
#define TABLE_AVX512 &bps_cast_table_avx512
#else
#define TABLE_AVX512 NULL
#endif

static const struct isa_tables tables = {{&bps_cast_table_baseline, TABLE_AVX2, TABLE_AVX512}};

struct cast_options {
    uint32_t to;
    int64_t block;
    uint32_t isa;
};

static const struct bps_option cast_options[] = {
    BPS_OPTION(struct cast_options, to, CHOICE, BPS_OPT_AGREE, "bfloat16", CAST_WORDS, "What elements become."),
    BPS_OPTION(struct cast_options, block, INT, BPS_OPT_AGREE, "256", "32..2048",
               "Elements that share a scale, a power of two; 16 bits need none."),
    BPS_OPTION(struct cast_options, isa, CHOICE, 0, "auto", ISA_WORDS, ISA_HELP),
    {0},
};

static const char *const format_names[CAST_FORMATS] = {"float16", "bfloat16", "float8_e4m3", "float8_e5m2"};

struct cast {
    const struct bps_host *host;
    const struct cast_table *table;
    const char *isa;
    enum cast_format format;
    size_t block;
};

static bps_status cast_open(const struct bps_host *host, const void *options, void **instance_out,
                            struct bps_report *report)
{
    const struct cast_options *given = options;
    const char *isa = NULL;
    const struct cast_table *table = isa_choose(&tables, given->isa, &isa, report);
    if (table == NULL) {
        return BPS_ERR_UNSUPPORTED;
    }
    if ((given->block & (given->block - 1)) != 0) {
        BPS_REPORT(report, "block = %lld: expected a power of two from 32 to 2048", (long long)given->block);
        return BPS_ERR_CONF;
    }
    struct cast *cast = host->alloc(host, sizeof *cast, 8);
    if (cast == NULL) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    *cast = (struct cast){.host = host, .table = table, .isa = isa, .format = given->to, .block = (size_t)given->block};
    *instance_out = cast;
    return BPS_OK;
}

static void cast_close(void *instance)
{
    struct cast *cast = instance;
    cast->host->release(cast->host, cast);
}

static bool has_scales(const struct cast *cast)
{
    return cast->format == E4M3 || cast->format == E5M2;
}

static void cast_describe(void *instance, char *text, size_t n)
{
    const struct cast *cast = instance;
    char blocks[40] = "";
    if (has_scales(cast)) {
        snprintf(blocks, sizeof blocks, " in blocks of %zu", cast->block);
    }
    snprintf(text, n, "%s%s, kernels for %s", format_names[cast->format], blocks, cast->isa);
}

/* ---- coding ---- */

static size_t coded_bytes(const struct cast *cast, size_t count)
{
    size_t blocks = count / cast->block + (count % cast->block > 0);
    return has_scales(cast) ? count + SCALE_BYTES * blocks : 2 * count;
}

static size_t cast_bound(void *instance, uint32_t dtype, size_t count)
{
    return dtype == BPS_FLOAT32 || dtype == BPS_FLOAT64 ? coded_bytes(instance, count) : 0;
}

static const struct cast_kernels *kernels_of(const struct cast *cast, uint32_t dtype)
{
    return &cast->table->of[dtype == BPS_FLOAT32 ? F32 : F64][cast->format];
}

static size_t cast_encode(void *instance, uint32_t dtype, const void *src, size_t count,
                          const struct bps_random *random, void *dst)
{
    const struct cast *cast = instance;
    (void)random;
    uint32_t state = fp_enter();
    kernels_of(cast, dtype)->encode(src, count, cast->block, dst);
    fp_leave(state);
    return coded_bytes(cast, count);
}

static bps_status decode(const struct cast *cast, uint32_t dtype, const void *src, size_t bytes, void *dst,
                         size_t count, bool add)
{
    const struct cast_kernels *kernels = kernels_of(cast, dtype);
    if (bytes != coded_bytes(cast, count)) {
        return BPS_ERR_PROTOCOL;
    }
    uint32_t state = fp_enter();
    bool known = (add ? kernels->decode_add : kernels->decode)(src, count, cast->block, dst);
    fp_leave(state);
    return known ? BPS_OK : BPS_ERR_PROTOCOL;
}

static bps_status cast_decode(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst, size_t count)
{
    return decode(instance, dtype, src, bytes, dst, count, false);
}

static bps_status cast_decode_add(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst,
                                  size_t count)
{
    return decode(instance, dtype, src, bytes, dst, count, true);
}

/* ---- the module ---- */

static const struct bps_compressor_ops cast_ops = {
    .size = sizeof cast_ops,
    .open = cast_open,
    .close = cast_close,
    .bound = cast_bound,
    .encode = cast_encode,
    .decode = cast_decode,
    .decode_add = cast_decode_add,
    .describe = cast_describe,
};

BPS_PLUGIN_MODULE(BPS_KIND_COMPRESSOR, "cast", PLUGIN_VERSION, "Apache-2.0",
                  .summary = "elements as floating point of 16 or 8 bits", .options = cast_options,
                  .options_size = sizeof(struct cast_options), .ops = &cast_ops);
