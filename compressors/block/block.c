/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block.c - the compressor "block": elements as integers of 8, 4 or 2 bits, times a scale for a block.
 *
 * A coded slice is a row of blocks, each of `block` elements but the last, which has what is left: the scale, a
 * float32, little endian, and then the codes. A code is a number with a sign, in two's complement, from -levels to
 * levels, which are 127, 7 or 1; it stands for that number times the scale.
 *
 * The codes of a block are a row of units, each of 32 elements but the last. A unit has as many bytes as its codes
 * need, w; its element i is in the byte i % w, above the elements i - w, i - 2w, ... The bits of elements that are not
 * there are zero.
 *
 * The scale is the largest magnitude of the block over the highest level, rounded to float32, but at least 2^-126, and
 * 1 if all are zero. For elements of float32 it is the float32 below if that number times the levels would be more than
 * the largest float32. What is rounded is an element times 1 / scale, both in the type of the elements: to nearest,
 * ties to even, or, with the option stochastic, up or down by chance, so that the mean stays what it was. Then an
 * element draws a number of Philox4x32-10: the key is random->own; the element i of a unit, which is the unit u of its
 * slice, counts as p = i % w + i / w * W, with W the w of a unit of 32, and has the word 2 * (p / 16) + p % 2 of the
 * counter 8 * u + p % 16 / 2.
 *
 * If an element is not finite, the scale is not either: infinite, or NaN, the quiet one without sign and payload. The
 * codes are zero then, and all elements of the block become NaN. So it is with float64 where the scale is beyond the
 * largest float32.
 */
#include <byteps/compressor.h>

#include "kernels.h"
#include "util/environment.h"
#include "util/isa.h"

#ifdef HAVE_AVX2
#define TABLE_AVX2 &bps_block_table_avx2
#else
#define TABLE_AVX2 NULL
#endif

#ifdef HAVE_AVX512
#define TABLE_AVX512 &bps_block_table_avx512
#else
#define TABLE_AVX512 NULL
#endif

static const struct isa_tables tables = {{&bps_block_table_baseline, TABLE_AVX2, TABLE_AVX512}};

struct block_options {
    uint32_t bits;
    int64_t block;
    bool stochastic;
    uint32_t isa;
};

static const struct bps_option block_options[] = {
    BPS_OPTION(struct block_options, bits, CHOICE, BPS_OPT_AGREE, "8", BITS_WORDS, "Bits of an element."),
    BPS_OPTION(struct block_options, block, INT, BPS_OPT_AGREE, "256", "32..2048",
               "Elements that share a scale, a power of two."),
    BPS_OPTION(struct block_options, stochastic, BOOL, BPS_OPT_AGREE, "false", NULL,
               "Round up or down by chance, so that the mean stays what it was; else to nearest."),
    BPS_OPTION(struct block_options, isa, CHOICE, 0, "auto", ISA_WORDS, ISA_HELP),
    {0},
};

static const unsigned width_bits[BLOCK_WIDTHS] = {8, 4, 2};

struct block {
    const struct bps_host *host;
    const struct block_table *table;
    const char *isa;
    enum block_width width;
    size_t block;
    bool stochastic;
};

static bps_status block_open(const struct bps_host *host, const void *options, void **instance_out,
                             struct bps_report *report)
{
    const struct block_options *given = options;
    const char *isa = NULL;
    const struct block_table *table = isa_choose(&tables, given->isa, &isa, report);
    if (table == NULL) {
        return BPS_ERR_UNSUPPORTED;
    }
    if ((given->block & (given->block - 1)) != 0) {
        BPS_REPORT(report, "block = %lld: expected a power of two from 32 to 2048", (long long)given->block);
        return BPS_ERR_CONF;
    }
    struct block *block = host->alloc(host, sizeof *block, 8);
    if (block == NULL) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    *block = (struct block){.host = host,
                            .table = table,
                            .isa = isa,
                            .width = given->bits,
                            .block = (size_t)given->block,
                            .stochastic = given->stochastic};
    *instance_out = block;
    return BPS_OK;
}

static void block_close(void *instance)
{
    struct block *block = instance;
    block->host->release(block->host, block);
}

static void block_describe(void *instance, char *text, size_t n)
{
    const struct block *block = instance;
    snprintf(text, n, "%u bits in blocks of %zu%s, kernels for %s", width_bits[block->width], block->block,
             block->stochastic ? ", rounded by chance" : "", block->isa);
}

/* ---- coding ---- */

/* Only the last block's codes may need a part of a byte. */
static size_t coded_bytes(const struct block *block, size_t count)
{
    size_t blocks = count / block->block + (count % block->block > 0), per = 8 / width_bits[block->width];
    return SCALE_BYTES * blocks + count / per + (count % per > 0);
}

static size_t block_bound(void *instance, uint32_t dtype, size_t count)
{
    return dtype == BPS_FLOAT32 || dtype == BPS_FLOAT64 ? coded_bytes(instance, count) : 0;
}

static const struct block_kernels *kernels_of(const struct block *block, uint32_t dtype)
{
    return &block->table->of[dtype == BPS_FLOAT32 ? F32 : F64][block->width];
}

static size_t block_encode(void *instance, uint32_t dtype, const void *src, size_t count,
                           const struct bps_random *random, void *dst)
{
    const struct block *block = instance;
    const struct block_kernels *kernels = kernels_of(block, dtype);
    uint32_t state = fp_enter();
    if (block->stochastic) {
        kernels->encode_by_chance(src, count, block->block, random->own, dst);
    } else {
        kernels->encode(src, count, block->block, dst);
    }
    fp_leave(state);
    return coded_bytes(block, count);
}

static bps_status decode(const struct block *block, uint32_t dtype, const void *src, size_t bytes, void *dst,
                         size_t count, bool add)
{
    const struct block_kernels *kernels = kernels_of(block, dtype);
    if (bytes != coded_bytes(block, count)) {
        return BPS_ERR_PROTOCOL;
    }
    uint32_t state = fp_enter();
    bool known = (add ? kernels->decode_add : kernels->decode)(src, count, block->block, dst);
    fp_leave(state);
    return known ? BPS_OK : BPS_ERR_PROTOCOL;
}

static bps_status block_decode(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst, size_t count)
{
    return decode(instance, dtype, src, bytes, dst, count, false);
}

static bps_status block_decode_add(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst,
                                   size_t count)
{
    return decode(instance, dtype, src, bytes, dst, count, true);
}

/* ---- the module ---- */

static const struct bps_compressor_ops block_ops = {
    .size = sizeof block_ops,
    .open = block_open,
    .close = block_close,
    .bound = block_bound,
    .encode = block_encode,
    .decode = block_decode,
    .decode_add = block_decode_add,
    .describe = block_describe,
};

BPS_PLUGIN_MODULE(BPS_KIND_COMPRESSOR, "block", PLUGIN_VERSION, "Apache-2.0",
                  .summary = "elements as integers of 8, 4 or 2 bits, with a scale for a block",
                  .options = block_options, .options_size = sizeof(struct block_options), .ops = &block_ops);
