/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compressor.c - which elements are not zero, and these. The compressor "whole" loses nothing; "part" has about half of
 * the elements, drawn, and those that are not finite; large ones become infinite, as in a format of few bits. Both may
 * lie.
 */
#include <math.h>
#include <string.h>

#include <byteps/compressor.h>

#include "simulation.h"

static bps_status sim_open(const struct bps_host *host, const void *options, void **out, struct bps_report *report)
{
    (void)host;
    (void)options;
    (void)report;
    *out = (void *)(uintptr_t)&sim_compressors;
    return BPS_OK;
}

static void sim_close(void *instance)
{
    (void)instance;
}

/* More than the elements themselves, as any compressor may need for some. */
static size_t sim_bound(void *instance, uint32_t dtype, size_t count)
{
    (void)instance;
    return dtype == BPS_FLOAT32 ? (count + 7) / 8 + count * sizeof(float) : 0;
}

#define LARGEST 150 /* of "part" */

/* By the number of this worker and round; NULL: all are drawn. */
static bool is_drawn(const struct bps_random *random, size_t i)
{
    return random == NULL || ((random->own ^ i * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u >> 63) != 0;
}

static size_t encode(const void *src, size_t count, const struct bps_random *random, void *dst)
{
    uint8_t *bits = dst;
    char *to = (char *)dst + (count + 7) / 8;
    memset(bits, 0, (count + 7) / 8);
    for (size_t i = 0; i < count; i++) {
        float x;
        memcpy(&x, (const char *)src + i * sizeof x, sizeof x);
        x = random != NULL && fabsf(x) > LARGEST ? INFINITY : x;
        if (x != 0 && (is_drawn(random, i) || !isfinite(x))) {
            bits[i / 8] |= (uint8_t)(1u << i % 8);
            memcpy(to, &x, sizeof x);
            to += sizeof x;
        }
    }
    if (sim_coder_lies()) {
        bits[0] = 0xff;
        return 1;
    }
    return (size_t)(to - (char *)dst);
}

static size_t whole_encode(void *instance, uint32_t dtype, const void *src, size_t count,
                           const struct bps_random *random, void *dst)
{
    (void)instance;
    (void)dtype;
    (void)random;
    return encode(src, count, NULL, dst);
}

static size_t part_encode(void *instance, uint32_t dtype, const void *src, size_t count,
                          const struct bps_random *random, void *dst)
{
    (void)instance;
    (void)dtype;
    return encode(src, count, random, dst);
}

static bool is_coded(const uint8_t *bits, size_t bytes, size_t count)
{
    size_t elements = 0;
    if (bytes < (count + 7) / 8) {
        return false;
    }
    for (size_t i = 0; i < (count + 7) / 8 * 8; i++) {
        bool set = (bits[i / 8] >> i % 8 & 1) != 0;
        if (set && i >= count) {
            return false;
        }
        elements += set;
    }
    return bytes == (count + 7) / 8 + elements * sizeof(float);
}

static bps_status decode(const void *src, size_t bytes, void *dst, size_t count, bool add)
{
    const uint8_t *bits = src;
    const char *from = (const char *)src + (count + 7) / 8;
    if (!is_coded(bits, bytes, count)) {
        return BPS_ERR_PROTOCOL;
    }
    for (size_t i = 0; i < count; i++) {
        float x = 0, before = 0;
        if ((bits[i / 8] >> i % 8 & 1) != 0) {
            memcpy(&x, from, sizeof x);
            from += sizeof x;
        }
        char *to = (char *)dst + i * sizeof x;
        if (add) {
            memcpy(&before, to, sizeof before);
        }
        x += before;
        memcpy(to, &x, sizeof x);
    }
    return BPS_OK;
}

static bps_status sim_decode(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst, size_t count)
{
    (void)instance;
    (void)dtype;
    return decode(src, bytes, dst, count, false);
}

static bps_status sim_decode_add(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst, size_t count)
{
    (void)instance;
    (void)dtype;
    return decode(src, bytes, dst, count, true);
}

#define DEFINE_PLUGIN(way, what)                                                                                       \
    static const struct bps_compressor_ops way##_ops = {                                                               \
        .size = sizeof way##_ops,                                                                                      \
        .open = sim_open,                                                                                              \
        .close = sim_close,                                                                                            \
        .bound = sim_bound,                                                                                            \
        .encode = way##_encode,                                                                                        \
        .decode = sim_decode,                                                                                          \
        .decode_add = sim_decode_add,                                                                                  \
    };                                                                                                                 \
    static const struct bps_plugin way##_plugin = {                                                                    \
        .size = sizeof way##_plugin,                                                                                   \
        .kind = BPS_KIND_COMPRESSOR,                                                                                   \
        .name = #way,                                                                                                  \
        .summary = what,                                                                                               \
        .ops = &way##_ops,                                                                                             \
    };
DEFINE_PLUGIN(whole, "loses nothing")
DEFINE_PLUGIN(part, "leaves out half of the elements")

static const struct bps_plugin *const plugins[] = {&whole_plugin, &part_plugin};

const struct bps_module sim_compressors = {
    .magic = BPS_PLUGIN_MAGIC,
    .size = sizeof sim_compressors,
    .abi_major = BPS_ABI_MAJOR,
    .abi_minor = BPS_ABI_MINOR,
    .name = "some",
    .version = "1",
    .license = "Apache-2.0",
    .nplugins = 2,
    .plugins = plugins,
};
