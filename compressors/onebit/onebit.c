/* SPDX-License-Identifier: Apache-2.0 */
/*
 * onebit.c - the compressor "onebit": of each element only its sign, and one scale for all of a slice.
 *
 * After Seide et al., "1-Bit Stochastic Gradient Descent", Interspeech 2014, with the scale of Karimireddy et
 * al., "Error Feedback Fixes SignSGD", ICML 2019: the mean of the magnitudes, which is what makes the squared
 * error least.
 *
 * A coded slice is the scale, a number of the type of the elements, little endian, and then one bit for each
 * element, the first one in the lowest bit of the first byte; 1 is negative. The bits behind the last element are
 * zero. The scale is never negative; without scaling it is 1. If an element is not finite, the scale is not either:
 * infinite or NaN, without scaling always NaN. NaN is the quiet one without sign and payload.
 */
#include <endian.h>
#include <math.h>
#include <string.h>

#include <byteps/compressor.h>

#include "kernels.h"
#include "util/environment.h"
#include "util/isa.h"

#ifdef HAVE_AVX2
#define TABLE_AVX2 &bps_onebit_table_avx2
#else
#define TABLE_AVX2 NULL
#endif

#ifdef HAVE_AVX512
#define TABLE_AVX512 &bps_onebit_table_avx512
#else
#define TABLE_AVX512 NULL
#endif

static const struct isa_tables tables = {{&bps_onebit_table_baseline, TABLE_AVX2, TABLE_AVX512}};

struct onebit_options {
    bool scaling;
    uint32_t isa;
};

static const struct bps_option onebit_options[] = {
    BPS_OPTION(struct onebit_options, scaling, BOOL, BPS_OPT_AGREE, "true", NULL,
               "Elements become the mean magnitude of their slice with their sign; false: 1 or -1."),
    BPS_OPTION(struct onebit_options, isa, CHOICE, 0, "auto", ISA_WORDS, ISA_HELP),
    {0},
};

struct onebit {
    const struct bps_host *host;
    const struct onebit_table *table;
    const char *isa;
    bool scaling;
};

static bps_status onebit_open(const struct bps_host *host, const void *options, void **instance_out,
                              struct bps_report *report)
{
    const struct onebit_options *given = options;
    const char *isa = NULL;
    const struct onebit_table *table = isa_choose(&tables, given->isa, &isa, report);
    if (table == NULL) {
        return BPS_ERR_UNSUPPORTED;
    }
    struct onebit *onebit = host->alloc(host, sizeof *onebit, 8);
    if (onebit == NULL) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    *onebit = (struct onebit){.host = host, .table = table, .isa = isa, .scaling = given->scaling};
    *instance_out = onebit;
    return BPS_OK;
}

static void onebit_close(void *instance)
{
    struct onebit *onebit = instance;
    onebit->host->release(onebit->host, onebit);
}

static void onebit_describe(void *instance, char *text, size_t n)
{
    const struct onebit *onebit = instance;
    snprintf(text, n, "%s, kernels for %s", onebit->scaling ? "scaled by the mean magnitude" : "not scaled",
             onebit->isa);
}

/* ---- the format ---- */

static size_t scale_bytes(uint32_t dtype)
{
    return dtype == BPS_FLOAT32 ? sizeof(float) : sizeof(double);
}

static size_t coded_bytes(uint32_t dtype, size_t count)
{
    return scale_bytes(dtype) + count / 8 + (count % 8 > 0);
}

static size_t onebit_bound(void *instance, uint32_t dtype, size_t count)
{
    (void)instance;
    return dtype == BPS_FLOAT32 || dtype == BPS_FLOAT64 ? coded_bytes(dtype, count) : 0;
}

static void put_scale(uint8_t *to, uint32_t dtype, double scale)
{
    float narrow = (float)scale;
    uint32_t bits32;
    uint64_t bits64;
    memcpy(&bits32, &narrow, sizeof bits32);
    memcpy(&bits64, &scale, sizeof bits64);
    bits32 = htole32(isnan(scale) ? 0x7fc00000u : bits32);
    bits64 = htole64(isnan(scale) ? 0x7ff8000000000000u : bits64);
    memcpy(to, dtype == BPS_FLOAT32 ? (const void *)&bits32 : &bits64, scale_bytes(dtype));
}

static double get_scale(const uint8_t *from, uint32_t dtype)
{
    uint64_t bits64;
    uint32_t bits32;
    double wide;
    float narrow;
    if (dtype == BPS_FLOAT32) {
        memcpy(&bits32, from, sizeof bits32);
        bits32 = le32toh(bits32);
        memcpy(&narrow, &bits32, sizeof narrow);
        return narrow;
    }
    memcpy(&bits64, from, sizeof bits64);
    bits64 = le64toh(bits64);
    memcpy(&wide, &bits64, sizeof wide);
    return wide;
}

/* What encode may have made: the length, no sign of the scale, nothing behind the last element. */
static bool is_coded(const struct onebit *onebit, uint32_t dtype, const uint8_t *src, size_t bytes, size_t count)
{
    if (bytes != coded_bytes(dtype, count)) {
        return false;
    }
    double scale = get_scale(src, dtype);
    unsigned used = count % 8;
    return !signbit(scale) && (onebit->scaling || scale == 1 || isnan(scale)) &&
           (used == 0 || src[bytes - 1] >> used == 0);
}

/* ---- coding ---- */

static const struct onebit_kernels *kernels_of(const struct onebit *onebit, uint32_t dtype)
{
    return dtype == BPS_FLOAT32 ? &onebit->table->f32 : &onebit->table->f64;
}

static size_t onebit_encode(void *instance, uint32_t dtype, const void *src, size_t count,
                            const struct bps_random *random, void *dst)
{
    const struct onebit *onebit = instance;
    const struct onebit_kernels *kernels = kernels_of(onebit, dtype);
    uint8_t *bits = (uint8_t *)dst + scale_bytes(dtype);
    uint32_t state = fp_enter();
    (void)random;
    double sum = (onebit->scaling ? kernels->encode : kernels->encode_unscaled)(src, count, bits);
    put_scale(dst, dtype, !onebit->scaling ? sum + 1 : count > 0 ? sum / (double)count : 0);
    fp_leave(state);
    return coded_bytes(dtype, count);
}

static bps_status decode(const struct onebit *onebit, uint32_t dtype, const uint8_t *src, size_t bytes, void *dst,
                         size_t count, bool add)
{
    const struct onebit_kernels *kernels = kernels_of(onebit, dtype);
    if (!is_coded(onebit, dtype, src, bytes, count)) {
        return BPS_ERR_PROTOCOL;
    }
    uint32_t state = fp_enter();
    (add ? kernels->decode_add : kernels->decode)(src + scale_bytes(dtype), count, get_scale(src, dtype), dst);
    fp_leave(state);
    return BPS_OK;
}

static bps_status onebit_decode(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst, size_t count)
{
    return decode(instance, dtype, src, bytes, dst, count, false);
}

static bps_status onebit_decode_add(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst,
                                    size_t count)
{
    return decode(instance, dtype, src, bytes, dst, count, true);
}

/* ---- the module ---- */

static const struct bps_compressor_ops onebit_ops = {
    .size = sizeof onebit_ops,
    .open = onebit_open,
    .close = onebit_close,
    .bound = onebit_bound,
    .encode = onebit_encode,
    .decode = onebit_decode,
    .decode_add = onebit_decode_add,
    .describe = onebit_describe,
};

BPS_PLUGIN_MODULE(BPS_KIND_COMPRESSOR, "onebit", PLUGIN_VERSION, "Apache-2.0",
                  .summary = "the sign of each element, and one scale for a slice", .options = onebit_options,
                  .options_size = sizeof(struct onebit_options), .ops = &onebit_ops);
