/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compressor_faulty.c - a compressor that keeps elements of float32 as they are, behind their number, with one fault of
 * those that `byteps plugin check` must find: the one that -DFAULT=NAME chooses, or none.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <byteps/compressor.h>

enum fault {
    NONE,
    BOUND_NOTHING,
    BOUND_SHRINKS,
    ENCODE_OVER_BOUND,
    ENCODE_NO_BYTES,
    ENCODE_BEYOND,
    ENCODE_READS_BEYOND,
    ENCODE_WRITES_SRC,
    ENCODE_DIFFERS,
    ENCODE_LEAVES_OUT,
    ENCODE_SHARES,
    ENCODE_LEAKS,
    ENCODE_HIDES_NAN,
    ENCODE_NEEDS_ELEMENTS,
    DECODE_BEYOND,
    DECODE_READS_BEYOND,
    DECODE_SHORT,
    DECODE_REFUSES,
    DECODE_DIVIDES,
    DECODE_OVERFLOWS,
    DECODE_DIVERGES,
    DECODE_TRUSTS_NUMBER,
    DECODE_TRUSTS_LENGTH,
    DECODE_OTHER_STATUS,
    ADD_SETS,
};

static volatile enum fault fault = FAULT;

static bool has(enum fault one)
{
    return fault == one;
}

static bps_status faulty_open(const struct bps_host *host, const void *options, void **instance_out,
                              struct bps_report *report)
{
    (void)options;
    (void)report;
    *instance_out = (void *)host;
    return BPS_OK;
}

static void faulty_close(void *instance)
{
    (void)instance;
}

static size_t faulty_bound(void *instance, uint32_t dtype, size_t count)
{
    (void)instance;
    if (dtype != BPS_FLOAT32 || has(BOUND_NOTHING)) {
        return 0;
    }
    return 4 + count * 4 + (has(BOUND_SHRINKS) && count == 100 ? 400 : 0);
}

static void encode_wrongly(float *src, size_t count, uint8_t *dst)
{
    static uint8_t calls;
    volatile float *from = src;
    volatile uint8_t *to = dst;
    if (has(ENCODE_BEYOND)) {
        to[4 + count * 4] = 1;
    } else if (has(ENCODE_READS_BEYOND)) {
        to[4] = (uint8_t)from[count];
    } else if (has(ENCODE_WRITES_SRC) && count > 0) {
        from[0] = 1;
    } else if (has(ENCODE_DIFFERS)) {
        to[4] ^= ++calls & 1;
    } else if (has(ENCODE_LEAKS)) {
        *(volatile char *)malloc(100) = 1;
    } else if (has(ENCODE_NEEDS_ELEMENTS) && count == 0) {
        abort();
    }
    for (size_t i = 0; i < count && has(ENCODE_HIDES_NAN); i++) {
        if (isnan(src[i])) {
            memset(dst + 4 + i * 4, 0, 4);
        }
    }
}

static size_t faulty_encode(void *instance, uint32_t dtype, const void *src, size_t count,
                            const struct bps_random *random, void *dst)
{
    static uint8_t shared[20000];
    uint32_t number = (uint32_t)count;
    uint8_t *to = dst;
    (void)instance;
    (void)dtype;
    (void)random;
    if (has(ENCODE_SHARES)) {
        memcpy(shared, src, count * 4);
        usleep(1000); /* the others come in meanwhile, also where they share a core */
        src = shared;
    }
    memcpy(to, &number, has(ENCODE_LEAVES_OUT) ? 3 : 4);
    memcpy(to + 4, src, count * 4);
    encode_wrongly((float *)src, count, dst);
    return has(ENCODE_OVER_BOUND) ? 5 + count * 4 : has(ENCODE_NO_BYTES) ? 0 : 4 + count * 4;
}

static bool is_whole(const uint8_t *from, size_t bytes, size_t count)
{
    uint32_t number;
    if (bytes < 4) {
        return has(DECODE_TRUSTS_LENGTH);
    }
    memcpy(&number, from, 4);
    return (number == count || has(DECODE_TRUSTS_NUMBER) || has(ENCODE_LEAVES_OUT)) &&
           (bytes == 4 + count * 4 || has(DECODE_TRUSTS_LENGTH));
}

static void decode_wrongly(const uint8_t *src, size_t bytes, float *dst, size_t count)
{
    volatile float *to = dst;
    if (has(DECODE_BEYOND)) {
        to[count] = 1;
    } else if (has(DECODE_READS_BEYOND)) {
        to[0] += ((volatile const uint8_t *)src)[bytes];
    }
    for (size_t i = 0; i < count; i++) {
        if (has(DECODE_DIVIDES)) {
            to[i] = to[i] * to[i] / to[i];
        } else if (has(DECODE_OVERFLOWS)) {
            to[i] = to[i] * 2e38f * 2e38f;
        } else if (has(DECODE_DIVERGES)) {
            to[i] *= 30;
        }
    }
}

static bps_status faulty_decode(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst, size_t count)
{
    (void)instance;
    (void)dtype;
    if (has(DECODE_REFUSES)) {
        return BPS_ERR_PROTOCOL;
    }
    if (!is_whole(src, bytes, count)) {
        return has(DECODE_OTHER_STATUS) ? BPS_ERR_INVALID : BPS_ERR_PROTOCOL;
    }
    uint32_t number = (uint32_t)count;
    if (has(DECODE_TRUSTS_NUMBER)) {
        memcpy(&number, src, 4);
    }
    memcpy(dst, (const uint8_t *)src + 4, (number - (number > 0 && has(DECODE_SHORT))) * (size_t)4);
    decode_wrongly(src, bytes, dst, count);
    return BPS_OK;
}

static bps_status faulty_decode_add(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst,
                                    size_t count)
{
    float *elements = calloc(count + 1, sizeof *elements), *to = dst;
    bps_status status = has(ADD_SETS) ? faulty_decode(instance, dtype, src, bytes, dst, count)
                                      : faulty_decode(instance, dtype, src, bytes, elements, count);
    for (size_t i = 0; i < count && status == BPS_OK && !has(ADD_SETS); i++) {
        to[i] += elements[i];
    }
    free(elements);
    return status;
}

static const struct bps_compressor_ops faulty_ops = {
    .size = sizeof(struct bps_compressor_ops),
    .open = faulty_open,
    .close = faulty_close,
    .bound = faulty_bound,
    .encode = faulty_encode,
    .decode = faulty_decode,
    .decode_add = faulty_decode_add,
};

BPS_PLUGIN_MODULE(BPS_KIND_COMPRESSOR, "faulty", "1.0", "Apache-2.0", .summary = "keeps elements", .ops = &faulty_ops);
