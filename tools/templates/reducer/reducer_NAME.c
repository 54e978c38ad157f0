/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reducer_NAME.c - the reducer NAME for BytePS: sums of float32 and float64, one element after the other.
 *
 * A plugin includes the header of its kind and links to nothing of BytePS.
 */
#include <fenv.h>
#include <math.h>
#include <string.h>

#include <byteps/reducer.h>

/* From this table byteps reads and checks byteps.conf. Each option has a row, and a field in the struct. */
struct NAME_options {
    uint32_t types; /* which word of "both|float32|float64" */
};

static const struct bps_option NAME_option_table[] = {
    BPS_OPTION(struct NAME_options, types, CHOICE, 0, "both", "both|float32|float64",
               "Which types it sums; another reducer has the rest."),
    {0},
};

/* One for each entry of reducers. */
struct NAME_reducer {
    const struct bps_host *host; /* memory and the log: see byteps/plugin.h */
    uint32_t types;
};

static bps_status NAME_open(const struct bps_host *host, const void *options, void **out, struct bps_report *report)
{
    const struct NAME_options *given = options;
    struct NAME_reducer *reducer = host->alloc(host, sizeof *reducer, 8);

    if (!reducer) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    *reducer = (struct NAME_reducer){.host = host, .types = given->types};
    *out = reducer;
    return BPS_OK;
}

static void NAME_close(void *instance)
{
    struct NAME_reducer *reducer = instance;

    reducer->host->release(reducer->host, reducer);
}

/*
 * The settings of the thread that calls, such as how it rounds, are its own: put aside, and restored at the end. The
 * scale is read after that, so that the compiler computes nothing with it before.
 */
static double NAME_enter(fenv_t *settings, double scale)
{
    volatile double kept = scale;

    fegetenv(settings);
    fesetenv(FE_DFL_ENV);
    return kept;
}

/*
 * The functions for a type. Several threads call them at once. Elements lie at any address, hence memcpy. The last
 * one must give, bit by bit, what the first three do one after the other; of all NaN there is one that is written.
 */
#define NAME_KERNELS(T, dtype)                                                                                         \
    static T load_##T(const void *from, size_t i)                                                                      \
    {                                                                                                                  \
        T x;                                                                                                           \
        memcpy(&x, (const char *)from + i * sizeof x, sizeof x);                                                       \
        return x;                                                                                                      \
    }                                                                                                                  \
    static void store_##T(void *to, size_t i, T x)                                                                     \
    {                                                                                                                  \
        x = isnan(x) ? (T)NAN : x;                                                                                     \
        memcpy((char *)to + i * sizeof x, &x, sizeof x);                                                               \
    }                                                                                                                  \
    static void first_##T(void *context, void *acc, const void *src, size_t count, double scale)                       \
    {                                                                                                                  \
        (void)context;                                                                                                 \
        fenv_t settings;                                                                                               \
        T factor = (T)NAME_enter(&settings, scale);                                                                    \
        for (size_t i = 0; i < count; i++) {                                                                           \
            store_##T(acc, i, load_##T(src, i) * factor);                                                              \
        }                                                                                                              \
        fesetenv(&settings);                                                                                           \
    }                                                                                                                  \
    static void fold_##T(void *context, void *acc, const void *src, size_t count, double scale)                        \
    {                                                                                                                  \
        (void)context;                                                                                                 \
        fenv_t settings;                                                                                               \
        T factor = (T)NAME_enter(&settings, scale);                                                                    \
        for (size_t i = 0; i < count; i++) {                                                                           \
            store_##T(acc, i, load_##T(acc, i) + load_##T(src, i) * factor);                                           \
        }                                                                                                              \
        fesetenv(&settings);                                                                                           \
    }                                                                                                                  \
    static void finish_##T(void *context, void *dst, const void *acc, size_t count, double scale, uint64_t divisor)    \
    {                                                                                                                  \
        (void)context;                                                                                                 \
        fenv_t settings;                                                                                               \
        T factor = (T)(NAME_enter(&settings, scale) / (double)divisor);                                                \
        for (size_t i = 0; i < count; i++) {                                                                           \
            store_##T(dst, i, load_##T(acc, i) * factor);                                                              \
        }                                                                                                              \
        fesetenv(&settings);                                                                                           \
    }                                                                                                                  \
    static void reduce_##T(void *context, void *dst, const void *const *src, const double *scales, unsigned n,         \
                           size_t count, double scale, uint64_t divisor)                                               \
    {                                                                                                                  \
        (void)context;                                                                                                 \
        fenv_t settings;                                                                                               \
        T factor = (T)(NAME_enter(&settings, scale) / (double)divisor);                                                \
        for (size_t i = 0; i < count; i++) {                                                                           \
            T acc = load_##T(src[0], i) * (T)(scales ? scales[0] : 1);                                                 \
            for (unsigned j = 1; j < n; j++) {                                                                         \
                acc += load_##T(src[j], i) * (T)(scales ? scales[j] : 1);                                              \
            }                                                                                                          \
            store_##T(dst, i, acc *factor);                                                                            \
        }                                                                                                              \
        fesetenv(&settings);                                                                                           \
    }                                                                                                                  \
    static const struct bps_kernels kernels_##T = {                                                                    \
        .accumulator = dtype,                                                                                          \
        .first = first_##T,                                                                                            \
        .fold = fold_##T,                                                                                              \
        .finish = finish_##T,                                                                                          \
        .reduce = reduce_##T,                                                                                          \
    };

NAME_KERNELS(float, BPS_FLOAT32)
NAME_KERNELS(double, BPS_FLOAT64)

/* What it has for an operation and a type. The average of floating point is a sum with a divisor. */
static bps_status NAME_kernels(void *instance, uint32_t op, uint32_t dtype, struct bps_kernels *out)
{
    const struct NAME_reducer *reducer = instance;

    if (op == BPS_SUM && dtype == BPS_FLOAT32 && reducer->types != 2) {
        *out = kernels_float;
        return BPS_OK;
    }
    if (op == BPS_SUM && dtype == BPS_FLOAT64 && reducer->types != 1) {
        *out = kernels_double;
        return BPS_OK;
    }
    return BPS_ERR_UNSUPPORTED;
}

/* One line for `byteps bench reducer`. */
static void NAME_describe(void *instance, char *text, size_t n)
{
    (void)instance;
    snprintf(text, n, "one element after the other");
}

static const struct bps_reducer_ops NAME_ops = {
    .size = sizeof NAME_ops,
    .open = NAME_open,
    .close = NAME_close,
    .kernels = NAME_kernels,
    .describe = NAME_describe,
};

/* Its kind, name, version and license. The version tells members apart that would compute differently. */
BPS_PLUGIN_MODULE(BPS_KIND_REDUCER, "NAME", "0.1.0", "Apache-2.0", .summary = "sums of float32 and float64",
                  .options = NAME_option_table, .options_size = sizeof(struct NAME_options), .ops = &NAME_ops);
