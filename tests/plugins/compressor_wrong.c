/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compressor_wrong.c - a compressor that keeps elements of float32 as they are. As it is, it is right; each macro below
 * makes one thing wrong.
 */
#include <string.h>

#include <byteps/compressor.h>

#ifndef BOUND
#define BOUND bytes /* what bound() says of so many bytes of elements */
#endif
#ifndef CODED
#define CODED bytes /* how many bytes encode says it has written */
#endif
#ifndef DECODED
#define DECODED bytes /* how many of them decode writes */
#endif
#ifndef ADDED
#define ADDED from[i] /* what decode_add adds */
#endif
#ifndef DIFFERS
#define DIFFERS 0 /* what is added to the first byte that is coded, except for the baseline */
#endif
#ifndef TAKEN
#define TAKEN true /* whether decode takes what has been coded */
#endif

struct options {
    uint32_t isa;
};

static const struct bps_option options[] = {
    BPS_OPTION(struct options, isa, CHOICE, 0, "auto", "auto|baseline", "Instruction set."),
    {0},
};

static bps_status wrong_open(const struct bps_host *host, const void *given, void **instance_out,
                             struct bps_report *report)
{
    static const bool fast[2] = {true, false};
    (void)host;
    (void)report;
    *instance_out = (void *)&fast[((const struct options *)given)->isa];
    return BPS_OK;
}

static void wrong_close(void *instance)
{
    (void)instance;
}

static size_t wrong_bound(void *instance, uint32_t dtype, size_t count)
{
    size_t bytes = count * sizeof(float);
    (void)instance;
    return dtype == BPS_FLOAT32 ? BOUND : 0;
}

static size_t wrong_encode(void *instance, uint32_t dtype, const void *src, size_t count,
                           const struct bps_random *random, void *dst)
{
    size_t bytes = count * sizeof(float);
    (void)dtype;
    (void)random;
    memcpy(dst, src, bytes);
    if (count > 0 && *(const bool *)instance) {
        *(char *)dst += DIFFERS;
    }
    return CODED;
}

static bps_status wrong_decode(void *instance, uint32_t dtype, const void *src, size_t coded, void *dst, size_t count)
{
    size_t bytes = count * sizeof(float);
    (void)instance;
    (void)dtype;
    (void)coded;
    memcpy(dst, src, bytes < DECODED ? bytes : DECODED);
    memset((char *)dst + bytes, 0, DECODED > bytes ? DECODED - bytes : 0);
    return TAKEN ? BPS_OK : BPS_ERR_PROTOCOL;
}

static bps_status wrong_decode_add(void *instance, uint32_t dtype, const void *src, size_t coded, void *dst,
                                   size_t count)
{
    const float *from = src;
    float *to = dst;
    (void)instance;
    (void)dtype;
    (void)coded;
    for (size_t i = 0; i < count; i++) {
        to[i] += ADDED;
    }
    return BPS_OK;
}

static const struct bps_compressor_ops ops = {
    .size = sizeof ops,
    .open = wrong_open,
    .close = wrong_close,
    .bound = wrong_bound,
    .encode = wrong_encode,
    .decode = wrong_decode,
    .decode_add = wrong_decode_add,
};

BPS_PLUGIN_MODULE(BPS_KIND_COMPRESSOR, "wrong", "0.1.0", "Apache-2.0", .summary = "elements as they are, or not quite",
                  .options = options, .options_size = sizeof(struct options), .ops = &ops);
