/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reducer_kahan.c - the reducer "kahan": sums of float32 that keep what their additions round off, and add it at the
 * end.
 *
 * After W. Kahan, "Further Remarks on Reducing Truncation Errors", CACM 8, 1965, in the form of A. Neumaier,
 * "Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen", ZAMM 54, 1974, which also holds where an
 * element is larger than the sum so far.
 *
 * It shows how a reducer tells that its `reduce` is nearer to the exact sum than steps of float32 are (`compensated`).
 * Between two steps there is one float32 of each element and nothing else, so that first, fold and finish cannot keep
 * what was rounded off: they are plain.
 */
#include <fenv.h>
#include <math.h>
#include <string.h>

#include <byteps/reducer.h>

/* It has no options, and is told nothing: there is one for all. */
static bps_status kahan_open(const struct bps_host *host, const void *options, void **out, struct bps_report *report)
{
    (void)host;
    (void)options;
    (void)report;
    *out = NULL;
    return BPS_OK;
}

static void kahan_close(void *instance)
{
    (void)instance;
}

/* ---- elements and settings ---- */

/* Elements lie at any address, hence memcpy. */
static float load(const void *from, size_t i)
{
    float x;

    memcpy(&x, (const char *)from + i * sizeof x, sizeof x);
    return x;
}

/* Of all NaN there is one that is written. */
static void store(void *to, size_t i, float x)
{
    x = isnan(x) ? NAN : x;
    memcpy((char *)to + i * sizeof x, &x, sizeof x);
}

/*
 * The settings of the thread that calls, such as how it rounds, are its own: put aside, and restored at the end. The
 * scale is read after that, so that the compiler computes nothing with it before.
 */
static double enter(fenv_t *settings, double scale)
{
    volatile double kept = scale;

    fegetenv(settings);
    fesetenv(FE_DFL_ENV);
    return kept;
}

/* ---- the plain steps ---- */

static void kahan_first(void *context, void *acc, const void *src, size_t count, double scale)
{
    (void)context;
    fenv_t settings;
    float factor = (float)enter(&settings, scale);

    for (size_t i = 0; i < count; i++) {
        store(acc, i, load(src, i) * factor);
    }
    fesetenv(&settings);
}

static void kahan_fold(void *context, void *acc, const void *src, size_t count, double scale)
{
    (void)context;
    fenv_t settings;
    float factor = (float)enter(&settings, scale);

    for (size_t i = 0; i < count; i++) {
        store(acc, i, load(acc, i) + load(src, i) * factor);
    }
    fesetenv(&settings);
}

static void kahan_finish(void *context, void *dst, const void *acc, size_t count, double scale, uint64_t divisor)
{
    (void)context;
    fenv_t settings;
    float factor = (float)(enter(&settings, scale) / (double)divisor);

    for (size_t i = 0; i < count; i++) {
        store(dst, i, load(acc, i) * factor);
    }
    fesetenv(&settings);
}

/* ---- the sum that keeps what is rounded off ---- */

struct sum {
    float total; /* as plain steps make it */
    float lost;  /* by all roundings so far */
};

static void add(struct sum *sum, float x)
{
    float total = sum->total + x;

    /* Of the two, the larger one is what the rounded total was taken from: these subtractions are exact. */
    sum->lost += fabsf(sum->total) >= fabsf(x) ? (sum->total - total) + x : (x - total) + sum->total;
    sum->total = total;
}

/* Where the total is infinite or NaN, nothing is known to be lost; and a zero keeps its sign. */
static float end(const struct sum *sum)
{
    float better = sum->total + sum->lost;

    return isfinite(better) && better != sum->total ? better : sum->total;
}

static void kahan_reduce(void *context, void *dst, const void *const *src, const double *scales, unsigned n,
                         size_t count, double scale, uint64_t divisor)
{
    (void)context;
    fenv_t settings;
    float factor = (float)(enter(&settings, scale) / (double)divisor);

    for (size_t i = 0; i < count; i++) {
        struct sum sum = {.total = load(src[0], i) * (float)(scales ? scales[0] : 1)};
        for (unsigned j = 1; j < n; j++) {
            add(&sum, load(src[j], i) * (float)(scales ? scales[j] : 1));
        }
        store(dst, i, end(&sum) * factor);
    }
    fesetenv(&settings);
}

/* ---- what the core sees of us ---- */

/* The average of float32 is a sum with a divisor. What it lacks, the next reducer in server.use has. */
static bps_status kahan_kernels(void *instance, uint32_t op, uint32_t dtype, struct bps_kernels *out)
{
    (void)instance;
    if (op != BPS_SUM || dtype != BPS_FLOAT32) {
        return BPS_ERR_UNSUPPORTED;
    }
    *out = (struct bps_kernels){
        .accumulator = BPS_FLOAT32,
        .first = kahan_first,
        .fold = kahan_fold,
        .finish = kahan_finish,
        .reduce = kahan_reduce,
        .compensated = true,
    };
    return BPS_OK;
}

static void kahan_describe(void *instance, char *text, size_t n)
{
    (void)instance;
    snprintf(text, n, "sums of float32 with what was rounded off");
}

static const struct bps_reducer_ops kahan_ops = {
    .size = sizeof kahan_ops,
    .open = kahan_open,
    .close = kahan_close,
    .kernels = kahan_kernels,
    .describe = kahan_describe,
};

BPS_PLUGIN_MODULE(BPS_KIND_REDUCER, "kahan", "1.0", "Apache-2.0",
                  .summary = "sums of float32 that keep what additions round off", .ops = &kahan_ops);
