/* SPDX-License-Identifier: Apache-2.0 */
/* exact.c - rounds that lose nothing: elements as they are, where a coding is not used yet. */
#include <string.h>

#include "coding/coding.h"

static size_t exact_bound(void *instance, uint32_t dtype, size_t count)
{
    (void)instance;
    return count * bps_dtype_size(dtype);
}

static size_t exact_encode(void *instance, uint32_t dtype, const void *src, size_t count,
                           const struct bps_random *random, void *dst)
{
    size_t bytes = exact_bound(instance, dtype, count);
    (void)random;
    memcpy(dst, src, bytes);
    return bytes;
}

static bps_status exact_decode(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst, size_t count)
{
    if (bytes != exact_bound(instance, dtype, count)) {
        return BPS_ERR_PROTOCOL;
    }
    memcpy(dst, src, bytes);
    return BPS_OK;
}

#define DEFINE_ADD(real)                                                                                               \
    static void real##_add(real *to, const uint8_t *from, size_t count)                                                \
    {                                                                                                                  \
        for (size_t i = 0; i < count; i++) {                                                                           \
            real x;                                                                                                    \
            memcpy(&x, from + i * sizeof x, sizeof x);                                                                 \
            to[i] += x;                                                                                                \
        }                                                                                                              \
    }
DEFINE_ADD(float)
DEFINE_ADD(double)

static bps_status exact_decode_add(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst,
                                   size_t count)
{
    if (bytes != exact_bound(instance, dtype, count)) {
        return BPS_ERR_PROTOCOL;
    }
    if (dtype == BPS_FLOAT64) {
        double_add(dst, src, count);
    } else {
        float_add(dst, src, count);
    }
    return BPS_OK;
}

static const struct bps_compressor_ops exact = {
    .size = sizeof exact,
    .bound = exact_bound,
    .encode = exact_encode,
    .decode = exact_decode,
    .decode_add = exact_decode_add,
};

const struct bps_compressor_ops *bps_coding_ops(const struct bps_coding *coding, bool is_exact)
{
    return is_exact ? &exact : coding->ops;
}
