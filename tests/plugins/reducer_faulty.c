/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reducer_faulty.c - a reducer of sums of float32 and averages of int32, with one fault of those that `byteps plugin
 * check` must find: the one that -DFAULT=NAME chooses, or none.
 */
#include <fenv.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <byteps/reducer.h>

enum fault {
    NONE,
    KERNELS_NONE,
    KERNELS_RETURNS_TWO,
    KERNELS_NULL,
    KERNELS_ACCUMULATOR,
    KERNELS_FLOAT_AVERAGE,
    KERNELS_ANY_OPERATION,
    KERNELS_COMPENSATED,
    FIRST_WITHOUT_SCALE,
    FOLD_SHORT,
    FOLD_SUBTRACTS,
    FINISH_TWICE,
    REDUCE_BEYOND,
    REDUCE_READS_BEYOND,
    REDUCE_WRITES_SRC,
    REDUCE_ONE_SOURCE,
    REDUCE_NOT_IN_PLACE,
    REDUCE_SCALES,
    REDUCE_DIFFERS,
    REDUCE_BY_PLACE,
    REDUCE_SHARES,
    REDUCE_ROUNDS_ALIKE,
    REDUCE_ALIGNED,
    SPECIAL_FLUSHES,
    AVERAGE_WRAPS,
    AVERAGE_TRUNCATES,
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

static float load(const void *elements, size_t i)
{
    float value;
    memcpy(&value, (const char *)elements + i * 4, 4);
    return value;
}

static void store(void *elements, size_t i, float value)
{
    static const uint32_t nan = 0x7fc00000;
    memcpy((char *)elements + i * 4, value != value ? (const void *)&nan : &value, 4);
}

static float scaled(float value, double scale)
{
    return value * (float)scale;
}

static void first(void *context, void *acc, const void *src, size_t count, double scale)
{
    (void)context;
    for (size_t i = 0; i < count; i++) {
        store(acc, i, scaled(load(src, i), has(FIRST_WITHOUT_SCALE) ? 1 : scale));
    }
}

static void fold(void *context, void *acc, const void *src, size_t count, double scale)
{
    (void)context;
    for (size_t i = 0; i < count - (count > 0 && has(FOLD_SHORT)); i++) {
        float value = scaled(load(src, i), scale);
        store(acc, i, has(FOLD_SUBTRACTS) ? load(acc, i) - value : load(acc, i) + value);
    }
}

static void finish(void *context, void *dst, const void *acc, size_t count, double scale, uint64_t divisor)
{
    (void)context;
    double factor = scale / (double)divisor;
    for (size_t i = 0; i < count; i++) {
        store(dst, i, scaled(load(acc, i), has(FINISH_TWICE) ? factor * factor : factor));
    }
}

static float sum_of(const void *const *src, const double *scales, unsigned n, size_t i)
{
    float total = scaled(load(src[0], i), scales != NULL ? scales[0] : 1);
    for (unsigned k = 1; k < n; k++) {
        total += scaled(load(src[k], i), scales != NULL && !has(REDUCE_SCALES) ? scales[k] : 1);
    }
    return total;
}

static void reduce_wrongly(void *dst, const void *const *src, size_t count)
{
    volatile float *to = dst;
    if (has(REDUCE_BEYOND)) {
        ((volatile char *)dst)[count * 4] = 1;
    } else if (has(REDUCE_READS_BEYOND)) {
        char last = ((volatile const char *)src[0])[count * 4];
        (void)last;
    } else if (has(REDUCE_WRITES_SRC) && count > 0) {
        *(volatile char *)src[0] = 1;
    } else if (has(REDUCE_DIFFERS) && count > 200) {
        to[200] *= 1.0000002f;
    } else if (has(REDUCE_BY_PLACE) && count > 0) {
        to[count - 1] *= 2;
    } else if (has(REDUCE_ALIGNED) && (uintptr_t)dst % 4 != 0) {
        abort();
    }
}

static void reduce(void *context, void *dst, const void *const *src, const double *scales, unsigned n, size_t count,
                   double scale, uint64_t divisor)
{
    (void)context;
    static float shared[70000];
    double factor = scale / (double)divisor;
    fenv_t settings;
    fegetenv(&settings);
    if (!has(REDUCE_ROUNDS_ALIKE)) {
        fesetenv(FE_DFL_ENV);
    }
    for (size_t i = 0; i < count; i++) {
        float total = has(REDUCE_ONE_SOURCE) ? load(src[0], i) : sum_of(src, scales, n, i);
        if (has(REDUCE_NOT_IN_PLACE) && i > 0) {
            total += 0 * load(src[0], i - 1);
        }
        if (has(SPECIAL_FLUSHES) && total < 1e-38f && total > -1e-38f) {
            total = 0;
        }
        store(has(REDUCE_SHARES) ? shared : dst, i, scaled(total, factor));
    }
    if (has(REDUCE_SHARES)) {
        usleep(1000); /* the others come in meanwhile, also where they share a core */
        memcpy(dst, shared, count * 4);
    }
    fesetenv(&settings);
    reduce_wrongly(dst, src, count);
}

static int32_t quotient(int64_t sum, int64_t divisor)
{
    int64_t result = sum / divisor;
    return (int32_t)(result - (!has(AVERAGE_TRUNCATES) && sum % divisor < 0));
}

static void average(void *context, void *dst, const void *const *src, const double *scales, unsigned n, size_t count,
                    double scale, uint64_t divisor)
{
    (void)context;
    (void)scales;
    (void)scale;
    for (size_t i = 0; i < count; i++) {
        int64_t sum = 0;
        for (unsigned k = 0; k < n; k++) {
            int32_t value;
            memcpy(&value, (const char *)src[k] + i * 4, 4);
            sum = has(AVERAGE_WRAPS) ? (int32_t)((uint32_t)sum + (uint32_t)value) : sum + value;
        }
        int32_t mean = quotient(sum, (int64_t)divisor);
        memcpy((char *)dst + i * 4, &mean, 4);
    }
}

static bps_status faulty_kernels(void *instance, uint32_t op, uint32_t dtype, struct bps_kernels *out)
{
    (void)instance;
    bool exists = op == BPS_SUM || (has(KERNELS_FLOAT_AVERAGE) && op == BPS_AVERAGE) || has(KERNELS_ANY_OPERATION);
    if (exists && dtype == BPS_FLOAT32 && !has(KERNELS_NONE)) {
        *out = (struct bps_kernels){has(KERNELS_ACCUMULATOR) ? BPS_FLOAT64 : BPS_FLOAT32,
                                    NULL,
                                    first,
                                    has(KERNELS_NULL) ? NULL : fold,
                                    finish,
                                    reduce,
                                    has(KERNELS_COMPENSATED)};
        return has(KERNELS_RETURNS_TWO) ? 2 : BPS_OK;
    }
    if (op == BPS_AVERAGE && dtype == BPS_INT32 && !has(KERNELS_NONE)) {
        *out = (struct bps_kernels){.accumulator = BPS_INT32, .reduce = average};
        return BPS_OK;
    }
    return BPS_ERR_UNSUPPORTED;
}

static const struct bps_reducer_ops faulty_ops = {
    .size = sizeof(struct bps_reducer_ops),
    .open = faulty_open,
    .close = faulty_close,
    .kernels = faulty_kernels,
};

BPS_PLUGIN_MODULE(BPS_KIND_REDUCER, "faulty", "1.0", "Apache-2.0", .summary = "sums float32", .ops = &faulty_ops);
