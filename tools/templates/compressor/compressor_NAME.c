/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compressor_NAME.c - the compressor NAME for BytePS: of each float32 the upper 16 bits, which is bfloat16.
 *
 * A plugin includes the header of its kind and links to nothing of BytePS. The bytes are those of this machine: all
 * hosts have the same order.
 */
#include <string.h>

#include <byteps/compressor.h>

/* From this table byteps reads and checks byteps.conf. Each option has a row, and a field in the struct. */
struct NAME_options {
    bool nearest;
};

static const struct bps_option NAME_option_table[] = {
    BPS_OPTION(struct NAME_options, nearest, BOOL, BPS_OPT_AGREE, "true", NULL,
               "Rounds to the nearest number; false: towards zero."),
    {0},
};

/* One for each entry of compressors. It keeps nothing between two calls: several threads are in it at once. */
struct NAME_compressor {
    const struct bps_host *host; /* memory and the log: see byteps/plugin.h */
    bool nearest;
};

static bps_status NAME_open(const struct bps_host *host, const void *options, void **out, struct bps_report *report)
{
    const struct NAME_options *given = options;
    struct NAME_compressor *compressor = host->alloc(host, sizeof *compressor, 8);

    if (!compressor) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    *compressor = (struct NAME_compressor){.host = host, .nearest = given->nearest};
    *out = compressor;
    return BPS_OK;
}

static void NAME_close(void *instance)
{
    struct NAME_compressor *compressor = instance;

    compressor->host->release(compressor->host, compressor);
}

/* How many bytes the elements need at most. 0: it does not code this type. */
static size_t NAME_bound(void *instance, uint32_t dtype, size_t count)
{
    (void)instance;
    return dtype == BPS_FLOAT32 ? count * sizeof(uint16_t) : 0;
}

/* Infinity stays infinity, and NaN stays NaN: its lower bits alone must not be what makes it one. */
static uint16_t NAME_upper(uint32_t bits, bool nearest)
{
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)(bits >> 16 | 0x40u);
    }
    if (nearest) {
        bits += 0x7fffu + (bits >> 16 & 1u); /* half of what is cut away; from the middle to an even number */
    }
    return (uint16_t)(bits >> 16);
}

static float NAME_widen(const void *coded, size_t i)
{
    uint16_t upper;
    uint32_t bits;
    float x;

    memcpy(&upper, (const char *)coded + i * sizeof upper, sizeof upper);
    bits = (uint32_t)upper << 16;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* What it returns is how many bytes it has written. Elements and bytes lie at any address, hence memcpy. */
static size_t NAME_encode(void *instance, uint32_t dtype, const void *src, size_t count,
                          const struct bps_random *random, void *dst)
{
    const struct NAME_compressor *compressor = instance;

    (void)dtype;
    (void)random; /* for methods that draw numbers */
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        uint16_t upper;
        memcpy(&bits, (const char *)src + i * sizeof bits, sizeof bits);
        upper = NAME_upper(bits, compressor->nearest);
        memcpy((char *)dst + i * sizeof upper, &upper, sizeof upper);
    }
    return count * sizeof(uint16_t);
}

/* The bytes come from another process: whatever they are, nothing beyond them is read. */
static bps_status NAME_decode(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst, size_t count)
{
    if (bytes != NAME_bound(instance, dtype, count)) {
        return BPS_ERR_PROTOCOL;
    }
    for (size_t i = 0; i < count; i++) {
        float x = NAME_widen(src, i);
        memcpy((char *)dst + i * sizeof x, &x, sizeof x);
    }
    return BPS_OK;
}

/* The same, added to what is there. */
static bps_status NAME_decode_add(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst,
                                  size_t count)
{
    if (bytes != NAME_bound(instance, dtype, count)) {
        return BPS_ERR_PROTOCOL;
    }
    for (size_t i = 0; i < count; i++) {
        float x;
        memcpy(&x, (const char *)dst + i * sizeof x, sizeof x);
        x += NAME_widen(src, i);
        memcpy((char *)dst + i * sizeof x, &x, sizeof x);
    }
    return BPS_OK;
}

/* One line for `byteps graph --explain`. */
static void NAME_describe(void *instance, char *text, size_t n)
{
    const struct NAME_compressor *compressor = instance;

    snprintf(text, n, "16 bits, rounded %s", compressor->nearest ? "to the nearest" : "towards zero");
}

static const struct bps_compressor_ops NAME_ops = {
    .size = sizeof NAME_ops,
    .open = NAME_open,
    .close = NAME_close,
    .bound = NAME_bound,
    .encode = NAME_encode,
    .decode = NAME_decode,
    .decode_add = NAME_decode_add,
    .describe = NAME_describe,
};

/* Its kind, name, version and license. Raise .format when others cannot read what this one writes. */
BPS_PLUGIN_MODULE(BPS_KIND_COMPRESSOR, "NAME", "0.1.0", "Apache-2.0", .summary = "the upper 16 bits of each float32",
                  .options = NAME_option_table, .options_size = sizeof(struct NAME_options), .ops = &NAME_ops);
