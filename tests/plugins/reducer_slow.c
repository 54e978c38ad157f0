/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reducer_slow.c - a second reducer, to show that one line of byteps.conf replaces the first: sums of
 * float32, float64, int32 and int64, one element after the other.
 */
#include <string.h>

#include <byteps/reducer.h>

/* Elements lie at any address. */
#define LOAD_STORE(T, name)                                                                                            \
    static T load_##name(const void *from, size_t i)                                                                   \
    {                                                                                                                  \
        T value;                                                                                                       \
        memcpy(&value, (const char *)from + i * sizeof value, sizeof value);                                           \
        return value;                                                                                                  \
    }                                                                                                                  \
    static void store_##name(void *to, size_t i, T value)                                                              \
    {                                                                                                                  \
        memcpy((char *)to + i * sizeof value, &value, sizeof value);                                                   \
    }

/* SCALED, ADD and FINISH say how the type calculates. */
#define KERNELS(T, name, dtype, SCALED, ADD, FINISH)                                                                   \
    LOAD_STORE(T, name)                                                                                                \
    static void first_##name(void *context, void *acc, const void *src, size_t count, double scale)                    \
    {                                                                                                                  \
        (void)context;                                                                                                 \
        for (size_t i = 0; i < count; i++) {                                                                           \
            store_##name(acc, i, SCALED(T, load_##name(src, i), scale));                                               \
        }                                                                                                              \
    }                                                                                                                  \
    static void fold_##name(void *context, void *acc, const void *src, size_t count, double scale)                     \
    {                                                                                                                  \
        (void)context;                                                                                                 \
        for (size_t i = 0; i < count; i++) {                                                                           \
            store_##name(acc, i, ADD(load_##name(acc, i), SCALED(T, load_##name(src, i), scale)));                     \
        }                                                                                                              \
    }                                                                                                                  \
    static void finish_##name(void *context, void *dst, const void *acc, size_t count, double scale, uint64_t divisor) \
    {                                                                                                                  \
        (void)context;                                                                                                 \
        for (size_t i = 0; i < count; i++) {                                                                           \
            store_##name(dst, i, FINISH(T, load_##name(acc, i), scale, divisor));                                      \
        }                                                                                                              \
    }                                                                                                                  \
    static void reduce_##name(void *context, void *dst, const void *const *src, const double *scales, unsigned n,      \
                              size_t count, double scale, uint64_t divisor)                                            \
    {                                                                                                                  \
        (void)context;                                                                                                 \
        for (size_t i = 0; i < count; i++) {                                                                           \
            T acc = SCALED(T, load_##name(src[0], i), scales ? scales[0] : 1);                                         \
            for (unsigned j = 1; j < n; j++) {                                                                         \
                acc = ADD(acc, SCALED(T, load_##name(src[j], i), scales ? scales[j] : 1));                             \
            }                                                                                                          \
            store_##name(dst, i, FINISH(T, acc, scale, divisor));                                                      \
        }                                                                                                              \
    }                                                                                                                  \
    static const struct bps_kernels kernels_##name = {dtype,       NULL,          first_##name,                        \
                                                      fold_##name, finish_##name, reduce_##name};

#define FLOAT_SCALED(T, x, scale)          ((x) * (T)(scale))
#define FLOAT_ADD(a, b)                    ((a) + (b))
#define FLOAT_FINISH(T, x, scale, divisor) ((x) * (T)((scale) / (double)(divisor)))
#define INT_SCALED(T, x, scale)            ((scale) == 1 ? (x) : (T)((double)(x) * (scale)))
#define INT_ADD(a, b)                      ((__typeof__(a))((uint64_t)(a) + (uint64_t)(b)))
#define INT_FINISH(T, x, scale, divisor)   ((void)(divisor), INT_SCALED(T, x, scale))

KERNELS(float, float32, BPS_FLOAT32, FLOAT_SCALED, FLOAT_ADD, FLOAT_FINISH)
KERNELS(double, float64, BPS_FLOAT64, FLOAT_SCALED, FLOAT_ADD, FLOAT_FINISH)
KERNELS(int32_t, int32, BPS_INT32, INT_SCALED, INT_ADD, INT_FINISH)
KERNELS(int64_t, int64, BPS_INT64, INT_SCALED, INT_ADD, INT_FINISH)

static bps_status slow_open(const struct bps_host *host, const void *options, void **instance_out,
                            struct bps_report *report)
{
    (void)options;
    *instance_out = NULL;
    (void)report;
    host->log(host, BPS_LOG_INFO, "the slow reducer is at work");
    return BPS_OK;
}

static void slow_close(void *instance)
{
    (void)instance;
}

static bps_status slow_kernels(void *instance, uint32_t op, uint32_t dtype, struct bps_kernels *out)
{
    static const struct bps_kernels *const sums[BPS_DTYPES] = {
        [BPS_FLOAT32] = &kernels_float32,
        [BPS_FLOAT64] = &kernels_float64,
        [BPS_INT32] = &kernels_int32,
        [BPS_INT64] = &kernels_int64,
    };

    (void)instance;
    if (op != BPS_SUM || dtype >= BPS_DTYPES || !sums[dtype]) {
        return BPS_ERR_UNSUPPORTED;
    }
    *out = *sums[dtype];
    return BPS_OK;
}

static const struct bps_reducer_ops slow_ops = {
    .size = sizeof slow_ops,
    .open = slow_open,
    .close = slow_close,
    .kernels = slow_kernels,
};

BPS_PLUGIN_MODULE(BPS_KIND_REDUCER, "slow", "0.1.0", "Apache-2.0",
                  .summary = "sums of 32 and 64 bit types, one element after the other", .ops = &slow_ops);
