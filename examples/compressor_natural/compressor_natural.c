/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compressor_natural.c - the compressor "natural": of each float32 its sign and its exponent, 9 bits of 32.
 *
 * After Horvath et al., "Natural Compression for Distributed Deep Learning", 2019 (arXiv:1905.10988). A number becomes
 * one of the two powers of two around it, drawn such that it is kept in the mean.
 *
 * It shows a method that draws numbers, and what is to be done about numbers that are not finite. Coded elements are a
 * byte for each exponent, and then a bit for each sign, the first one in the lowest bit of its byte; the bits behind
 * the last element are zero. So the bytes are the same on all machines.
 */
#include <string.h>

#include <byteps/compressor.h>

#define FRACTION_BITS 23
#define FRACTION_MASK ((1u << FRACTION_BITS) - 1)
#define INFINITE      0xffu /* the exponent of what is not finite */

/* It has no options, and is told nothing: there is one for all. */
static bps_status natural_open(const struct bps_host *host, const void *options, void **out, struct bps_report *report)
{
    (void)host;
    (void)options;
    (void)report;
    *out = NULL;
    return BPS_OK;
}

static void natural_close(void *instance)
{
    (void)instance;
}

static size_t natural_bound(void *instance, uint32_t dtype, size_t count)
{
    (void)instance;
    return dtype == BPS_FLOAT32 ? count + (count + 7) / 8 : 0;
}

/* The numbers of Steele et al., "Fast Splittable Pseudorandom Number Generators", 2014: one for each element. */
static uint32_t draw(uint64_t seed, size_t i)
{
    uint64_t x = seed + (i + 1) * 0x9e3779b97f4a7c15u;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(x >> 32);
}

/*
 * The exponent grows by one where fraction and drawn number together carry, which is as likely as the fraction is
 * large. That holds of subnormal numbers, too, between 0 and the smallest power. What is above the largest power would
 * become infinite: it stays below. What is not finite becomes infinite.
 */
static uint8_t exponent_of(uint32_t bits, uint32_t drawn)
{
    uint32_t magnitude = bits & 0x7fffffffu, exponent;

    if (magnitude >> FRACTION_BITS == INFINITE) {
        return INFINITE;
    }
    exponent = (magnitude + (drawn & FRACTION_MASK)) >> FRACTION_BITS;
    return (uint8_t)(exponent == INFINITE ? INFINITE - 1 : exponent);
}

/* What a worker draws is its own: so what all of them lose together is small. */
static size_t natural_encode(void *instance, uint32_t dtype, const void *src, size_t count,
                             const struct bps_random *random, void *dst)
{
    size_t bytes = natural_bound(instance, dtype, count);
    uint8_t *exponents = dst, *signs = exponents + count;

    memset(signs, 0, bytes - count);
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, (const char *)src + i * sizeof bits, sizeof bits);
        exponents[i] = exponent_of(bits, draw(random->own, i));
        signs[i / 8] |= (uint8_t)(bits >> 31 << i % 8);
    }
    return bytes;
}

/* The bytes come from another process. Every exponent is one; the length, and what is behind the last sign, are not. */
static bool is_coded(const uint8_t *src, size_t bytes, size_t count)
{
    size_t used = count % 8;

    return bytes == natural_bound(NULL, BPS_FLOAT32, count) && (used == 0 || src[bytes - 1] >> used == 0);
}

static float element(const uint8_t *src, size_t count, size_t i)
{
    uint32_t sign = src[count + i / 8] >> i % 8 & 1u, bits = sign << 31 | (uint32_t)src[i] << FRACTION_BITS;
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static bps_status natural_decode(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst, size_t count)
{
    (void)instance;
    (void)dtype;
    if (!is_coded(src, bytes, count)) {
        return BPS_ERR_PROTOCOL;
    }
    for (size_t i = 0; i < count; i++) {
        float x = element(src, count, i);
        memcpy((char *)dst + i * sizeof x, &x, sizeof x);
    }
    return BPS_OK;
}

static bps_status natural_decode_add(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst,
                                     size_t count)
{
    (void)instance;
    (void)dtype;
    if (!is_coded(src, bytes, count)) {
        return BPS_ERR_PROTOCOL;
    }
    for (size_t i = 0; i < count; i++) {
        float x;
        memcpy(&x, (const char *)dst + i * sizeof x, sizeof x);
        x += element(src, count, i);
        memcpy((char *)dst + i * sizeof x, &x, sizeof x);
    }
    return BPS_OK;
}

static void natural_describe(void *instance, char *text, size_t n)
{
    (void)instance;
    snprintf(text, n, "sign and exponent, 9 bits");
}

/* ---- what the core sees of us ---- */

static const struct bps_compressor_ops natural_ops = {
    .size = sizeof natural_ops,
    .open = natural_open,
    .close = natural_close,
    .bound = natural_bound,
    .encode = natural_encode,
    .decode = natural_decode,
    .decode_add = natural_decode_add,
    .describe = natural_describe,
};

BPS_PLUGIN_MODULE(BPS_KIND_COMPRESSOR, "natural", "1.0", "Apache-2.0", .summary = "sign and exponent of each float32",
                  .ops = &natural_ops);
