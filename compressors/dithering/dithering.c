/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dithering.c - the compressor "dithering": elements become one of a few levels between zero and a scale, the lower or
 * the upper one by chance, so that their mean stays what it was.
 *
 * After Alistarh et al., "QSGD", NIPS 2017, with levels of equal distances, and Horvath et al., "Natural Compression
 * for Distributed Deep Learning", 2019, with powers of two. The scale is the largest magnitude of a slice, or its
 * length as a vector.
 *
 * A coded slice is the scale, a number of the type of the elements, little endian, and then a row of blocks, each of
 * 16384 elements but the last, which has what is left. A block is a byte for its form, and bits as bits.h has them: 0,
 * Elias's form; 1, the fixed form, with as many bits as the largest code needs. Elias's is taken if it saves 8 bytes.
 * What a code stands for is said in kernels.h, or, with the option compat, in original.h.
 *
 * The scale of a slice of zeros, or of nothing, is 0. If an element is not finite, the scale is not either: infinite,
 * or NaN, the quiet one without sign and payload; all elements become that. No block follows these. A length beyond the
 * largest number of the type becomes that number.
 */
#include <endian.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include <byteps/compressor.h>

#include "bits.h"
#include "kernels.h"
#include "original.h"
#include "util/environment.h"
#include "util/isa.h"

#ifdef HAVE_AVX2
#define TABLE_AVX2 &bps_dithering_table_avx2
#else
#define TABLE_AVX2 NULL
#endif

#ifdef HAVE_AVX512
#define TABLE_AVX512 &bps_dithering_table_avx512
#else
#define TABLE_AVX512 NULL
#endif

static const struct isa_tables tables = {{&bps_dithering_table_baseline, TABLE_AVX2, TABLE_AVX512}};

enum normalize { MAX, L2 };

struct dithering_options {
    int64_t levels;
    uint32_t partition, normalize;
    bool compat;
    uint32_t isa;
};

#define NATURAL_LIMIT 30 /* levels: the original's are numbers of 32 bits */

static const struct bps_option dithering_options[] = {
    BPS_OPTION(struct dithering_options, levels, INT, BPS_OPT_AGREE, "127", "1..32767",
               "Levels above zero; with partition = \"natural\" at most 30."),
    BPS_OPTION(struct dithering_options, partition, CHOICE, BPS_OPT_AGREE, "linear", PARTITION_WORDS,
               "Levels have equal distances, or each is twice the one below."),
    BPS_OPTION(struct dithering_options, normalize, CHOICE, BPS_OPT_AGREE, "max", "max|l2",
               "The highest level: the largest magnitude of a slice, or its length as a vector."),
    BPS_OPTION(struct dithering_options, compat, BOOL, BPS_OPT_AGREE, "false", NULL,
               "Levels as the original BytePS finds them, with its generator, seeded alike on all workers; slower."),
    BPS_OPTION(struct dithering_options, isa, CHOICE, 0, "auto", ISA_WORDS, ISA_HELP),
    {0},
};

struct dithering {
    const struct bps_host *host;
    const struct dithering_table *table;
    const char *isa;
    uint32_t levels;
    unsigned width; /* bits of a code in the fixed form */
    enum dithering_partition partition;
    enum normalize normalize;
    struct xorshift_skips *skips; /* of compat; NULL: without */
};

static bps_status dithering_open(const struct bps_host *host, const void *options, void **instance_out,
                                 struct bps_report *report)
{
    const struct dithering_options *given = options;
    const char *isa = NULL;
    const struct dithering_table *table = isa_choose(&tables, given->isa, &isa, report);
    if (table == NULL) {
        return BPS_ERR_UNSUPPORTED;
    }
    if (given->partition == NATURAL && given->levels > NATURAL_LIMIT) {
        BPS_REPORT(report, "levels = %lld: with partition = \"natural\", expected 1..%d", (long long)given->levels,
                   NATURAL_LIMIT);
        return BPS_ERR_CONF;
    }
    size_t size = sizeof(struct dithering) + (given->compat ? sizeof(struct xorshift_skips) : 0);
    struct dithering *dithering = host->alloc(host, size, 8);
    if (dithering == NULL) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    uint32_t levels = (uint32_t)given->levels;
    *dithering = (struct dithering){.host = host,
                                    .table = table,
                                    .isa = isa,
                                    .levels = levels,
                                    .width = 33 - (unsigned)__builtin_clz(levels),
                                    .partition = given->partition,
                                    .normalize = given->normalize};
    if (given->compat) {
        dithering->skips = (struct xorshift_skips *)(dithering + 1);
        xorshift_skips_init(dithering->skips);
    }
    *instance_out = dithering;
    return BPS_OK;
}

static void dithering_close(void *instance)
{
    struct dithering *dithering = instance;
    dithering->host->release(dithering->host, dithering);
}

static void dithering_describe(void *instance, char *text, size_t n)
{
    const struct dithering *dithering = instance;
    snprintf(text, n, "%u %s levels of the %s%s, kernels for %s", dithering->levels,
             dithering->partition == LINEAR ? "linear" : "natural",
             dithering->normalize == MAX ? "largest magnitude" : "length",
             dithering->skips != NULL ? ", as the original" : "", dithering->isa);
}

/* ---- the format ------------------------------------------------------------------------------------------ */

enum form { ELIAS, FIXED };

static size_t scale_bytes(uint32_t dtype)
{
    return dtype == BPS_FLOAT32 ? sizeof(float) : sizeof(double);
}

static size_t dithering_bound(void *instance, uint32_t dtype, size_t count)
{
    const struct dithering *dithering = instance;
    size_t blocks = count / CODES_LIMIT, rest = count % CODES_LIMIT;
    if (dtype != BPS_FLOAT32 && dtype != BPS_FLOAT64) {
        return 0;
    }
    return scale_bytes(dtype) + blocks * (1 + fixed_bytes(CODES_LIMIT, dithering->width)) +
           (rest > 0 ? 1 + fixed_bytes(rest, dithering->width) : 0);
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

/* false: encode does not write it, as it has a sign or the bits of another NaN. */
static bool get_scale(const uint8_t *from, uint32_t dtype, double *scale)
{
    uint64_t bits64;
    uint32_t bits32;
    float narrow;
    if (dtype == BPS_FLOAT32) {
        memcpy(&bits32, from, sizeof bits32);
        bits32 = le32toh(bits32);
        memcpy(&narrow, &bits32, sizeof narrow);
        *scale = narrow;
        return bits32 <= 0x7f800000u || bits32 == 0x7fc00000u;
    }
    memcpy(&bits64, from, sizeof bits64);
    bits64 = le64toh(bits64);
    memcpy(scale, &bits64, sizeof *scale);
    return bits64 <= 0x7ff0000000000000u || bits64 == 0x7ff8000000000000u;
}

/* ---- coding ---------------------------------------------------------------------------------------------- */

static const struct dithering_kernels *kernels_of(const struct dithering *dithering, uint32_t dtype)
{
    return &dithering->table->of[dtype == BPS_FLOAT32 ? F32 : F64];
}

static struct original original_of(const struct dithering *dithering, uint32_t dtype)
{
    return (struct original){dtype == BPS_FLOAT32 ? F32 : F64, dithering->partition, dithering->levels};
}

static size_t lesser(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* At least the largest magnitude, so that no element is beyond the highest level. */
static double scale_of(const struct dithering *dithering, uint32_t dtype, const uint8_t *src, size_t count)
{
    const struct dithering_kernels *kernels = kernels_of(dithering, dtype);
    double largest = kernels->largest(src, count), limit = dtype == BPS_FLOAT32 ? FLT_MAX : DBL_MAX;
    int exponent;
    if (dithering->normalize == MAX || largest == 0 || !isfinite(largest)) {
        return largest;
    }
    /* Squares could overflow, or vanish. A factor that is a power of two rounds nothing, but must be a number, too. */
    frexp(largest, &exponent);
    exponent = exponent < -1000 ? -1000 : exponent;
    double length = ldexp(sqrt(kernels->squares(src, count, ldexp(1, -exponent))), exponent);
    return fmin(fmax(length, largest), limit);
}

/* A slice on its way. */
struct encoding {
    const struct dithering *dithering;
    uint32_t dtype;
    double scale;
    struct dithering_draw draw;
    struct xorshift state;
};

static void round_block(struct encoding *slice, const uint8_t *src, size_t count, uint16_t *codes)
{
    const struct dithering *dithering = slice->dithering;
    if (dithering->skips != NULL) {
        struct original original = original_of(dithering, slice->dtype);
        bps_dithering_original_round(&original, src, count, &slice->state, slice->scale, codes);
    } else {
        kernels_of(dithering, slice->dtype)
            ->of[dithering->partition]
            .round(src, count, slice->draw, slice->scale, dithering->levels, codes);
    }
}

static size_t encode_block(struct encoding *slice, const uint8_t *src, size_t count, uint8_t *dst)
{
    uint16_t codes[CODES_LIMIT];
    size_t room = fixed_bytes(count, slice->dithering->width), bytes = 0;
    round_block(slice, src, count, codes);
    if (slice->dithering->table->least_elias(codes, count) / 8 + ELIAS_MARGIN < room) {
        bytes = bps_dithering_put_elias(codes, count, dst + 1, room);
    }
    dst[0] = bytes > 0 ? ELIAS : FIXED;
    if (bytes == 0) {
        bps_dithering_put_fixed(codes, count, slice->dithering->width, dst + 1);
        bytes = room;
    }
    return 1 + bytes;
}

static size_t encode(const struct dithering *dithering, uint32_t dtype, const uint8_t *src, size_t count,
                     const struct bps_random *random, uint8_t *dst)
{
    struct encoding slice = {dithering, dtype, scale_of(dithering, dtype, src, count), {random->own, 0}, {0, 0}};
    size_t at = scale_bytes(dtype);
    if (dithering->skips != NULL) {
        slice.state = xorshift_of(dithering->skips, random, count);
    }
    put_scale(dst, dtype, slice.scale);
    if (slice.scale == 0 || !isfinite(slice.scale)) {
        return at;
    }
    if (dithering->skips == NULL) {
        get_scale(dst, dtype, &slice.scale);
    }
    while (count > 0) {
        size_t n = lesser(count, CODES_LIMIT);
        at += encode_block(&slice, src, n, dst + at);
        src += n * scale_bytes(dtype);
        slice.draw.first += n;
        count -= n;
    }
    return at;
}

static size_t dithering_encode(void *instance, uint32_t dtype, const void *src, size_t count,
                               const struct bps_random *random, void *dst)
{
    uint32_t state = fp_enter();
    size_t bytes = encode(instance, dtype, src, count, random, dst);
    fp_leave(state);
    return bytes;
}

/* ---- decoding -------------------------------------------------------------------------------------------- */

/* How many bytes of the source are a block of so many elements; 0: they cannot be one. */
static size_t get_block(const struct dithering *dithering, const uint8_t *src, size_t bytes, uint16_t *codes,
                        size_t count)
{
    size_t fixed = fixed_bytes(count, dithering->width), used = 0;
    if (bytes == 0) {
        return 0;
    }
    if (src[0] == ELIAS) {
        used = bps_dithering_get_elias(src + 1, bytes - 1, dithering->levels, codes, count);
        used = used + ELIAS_MARGIN <= fixed ? used : 0;
    } else if (src[0] == FIXED && bytes - 1 >= fixed &&
               bps_dithering_get_fixed(src + 1, dithering->width, codes, count) &&
               dithering->table->are_codes(codes, count, dithering->levels)) {
        used = fixed;
    }
    return used > 0 ? 1 + used : 0;
}

static void decode_block(const struct dithering *dithering, uint32_t dtype, const uint16_t *codes, size_t count,
                         double scale, uint8_t *dst, bool add)
{
    const struct dithering_rounding *kernels = &kernels_of(dithering, dtype)->of[dithering->partition];
    if (dithering->skips != NULL) {
        struct original original = original_of(dithering, dtype);
        bps_dithering_original_decode(&original, codes, count, scale, dst, add);
    } else {
        (add ? kernels->decode_add : kernels->decode)(codes, count, scale, dithering->levels, dst);
    }
}

static bps_status decode_blocks(const struct dithering *dithering, uint32_t dtype, const uint8_t *src, size_t bytes,
                                double scale, uint8_t *dst, size_t count, bool add)
{
    uint16_t codes[CODES_LIMIT];
    while (count > 0) {
        size_t n = lesser(count, CODES_LIMIT), used = get_block(dithering, src, bytes, codes, n);
        if (used == 0) {
            return BPS_ERR_PROTOCOL;
        }
        decode_block(dithering, dtype, codes, n, scale, dst, add);
        src += used;
        bytes -= used;
        dst += n * scale_bytes(dtype);
        count -= n;
    }
    return bytes == 0 ? BPS_OK : BPS_ERR_PROTOCOL;
}

/* All elements become, or get added, the scale itself, which is zero or not finite. */
static void decode_scale(uint32_t dtype, double scale, uint8_t *dst, size_t count, bool add)
{
    for (size_t i = 0; i < count; i++) {
        float narrow = 0;
        double wide = 0;
        if (add) {
            memcpy(dtype == BPS_FLOAT32 ? (void *)&narrow : &wide, dst + i * scale_bytes(dtype), scale_bytes(dtype));
        }
        narrow += (float)scale;
        wide += scale;
        memcpy(dst + i * scale_bytes(dtype), dtype == BPS_FLOAT32 ? (const void *)&narrow : &wide, scale_bytes(dtype));
    }
}

static bps_status decode(const struct dithering *dithering, uint32_t dtype, const uint8_t *src, size_t bytes,
                         uint8_t *dst, size_t count, bool add)
{
    size_t head = scale_bytes(dtype);
    double scale;
    if (bytes < head || !get_scale(src, dtype, &scale) || (count == 0 && scale != 0)) {
        return BPS_ERR_PROTOCOL;
    }
    if (scale != 0 && isfinite(scale)) {
        return decode_blocks(dithering, dtype, src + head, bytes - head, scale, dst, count, add);
    }
    if (bytes != head) {
        return BPS_ERR_PROTOCOL;
    }
    decode_scale(dtype, scale, dst, count, add);
    return BPS_OK;
}

static bps_status decode_here(const struct dithering *dithering, uint32_t dtype, const uint8_t *src, size_t bytes,
                              uint8_t *dst, size_t count, bool add)
{
    uint32_t state = fp_enter();
    bps_status status = decode(dithering, dtype, src, bytes, dst, count, add);
    fp_leave(state);
    return status;
}

static bps_status dithering_decode(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst,
                                   size_t count)
{
    return decode_here(instance, dtype, src, bytes, dst, count, false);
}

static bps_status dithering_decode_add(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst,
                                       size_t count)
{
    return decode_here(instance, dtype, src, bytes, dst, count, true);
}

/* ---- the module ------------------------------------------------------------------------------------------ */

static const struct bps_compressor_ops dithering_ops = {
    .size = sizeof dithering_ops,
    .open = dithering_open,
    .close = dithering_close,
    .bound = dithering_bound,
    .encode = dithering_encode,
    .decode = dithering_decode,
    .decode_add = dithering_decode_add,
    .describe = dithering_describe,
};

BPS_PLUGIN_MODULE(BPS_KIND_COMPRESSOR, "dithering", PLUGIN_VERSION, "Apache-2.0",
                  .summary = "elements as levels, rounded by chance so that their mean stays",
                  .options = dithering_options, .options_size = sizeof(struct dithering_options),
                  .ops = &dithering_ops);
