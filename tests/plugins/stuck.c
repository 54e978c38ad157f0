/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stuck.c - a reducer, a compressor and a stage, all named "stuck", of which one callback does not return.
 *
 * `at` names the callback and `how` what it does instead. The reducer sums float32, the compressor codes float32 as it
 * is, the stage does nothing to it; `pool`: on the threads that compute.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <byteps/compressor.h>
#include <byteps/reducer.h>
#include <byteps/stage.h>

struct options {
    uint32_t at, how;
    bool pool;
};

enum { OPEN, CLOSE, BIND, RUN, ENCODE, DECODE, FOLD };

static const struct bps_option options[] = {
    BPS_OPTION(struct options, at, CHOICE, BPS_OPT_AGREE, "open", "open|close|bind|run|encode|decode|fold",
               "The callback."),
    BPS_OPTION(struct options, how, CHOICE, BPS_OPT_AGREE, "hang", "hang|fault|abort|exit|silence",
               "What it does; silence: it says that it answers later."),
    BPS_OPTION(struct options, pool, BOOL, BPS_OPT_AGREE, "no", NULL, "Whether others run it."),
    {0},
};

static const struct options *chosen; /* kernels have no instance */

static void be_at(const struct options *o, uint32_t at)
{
    static void (*const nothing)(void);
    if (o->at != at) {
        return;
    }
    switch (o->how) {
    case 0:
        while (1) {
            pause();
        }
    case 1:
        nothing();
        break;
    case 2:
        abort();
    case 3:
        exit(3);
    }
}

/* The instance is the options, which live until close. */
static bps_status stuck_open(const struct bps_host *host, const void *given, void **instance_out,
                             struct bps_report *report)
{
    (void)host;
    (void)report;
    chosen = given;
    *instance_out = (void *)(uintptr_t)given;
    be_at(given, OPEN);
    return BPS_OK;
}

static void stuck_close(void *instance)
{
    be_at(instance, CLOSE);
}

/* ---- the reducer ---- */

static void first(void *context, void *acc, const void *src, size_t count, double scale)
{
    (void)context;
    float *to = acc;
    const float *from = src;
    for (size_t i = 0; i < count; i++) {
        to[i] = from[i] * (float)scale;
    }
}

static void fold(void *context, void *acc, const void *src, size_t count, double scale)
{
    (void)context;
    float *to = acc;
    const float *from = src;
    be_at(chosen, FOLD);
    for (size_t i = 0; i < count; i++) {
        to[i] += from[i] * (float)scale;
    }
}

static void finish(void *context, void *dst, const void *acc, size_t count, double scale, uint64_t divisor)
{
    (void)context;
    first(context, dst, acc, count, scale / (double)divisor);
}

static void reduce(void *context, void *dst, const void *const *src, const double *scales, unsigned n, size_t count,
                   double scale, uint64_t divisor)
{
    (void)context;
    first(context, dst, src[0], count, scales != NULL ? scales[0] : 1);
    for (unsigned i = 1; i < n; i++) {
        fold(context, dst, src[i], count, scales != NULL ? scales[i] : 1);
    }
    finish(context, dst, dst, count, scale, divisor);
}

static bps_status stuck_kernels(void *instance, uint32_t op, uint32_t dtype, struct bps_kernels *out)
{
    (void)instance;
    *out = (struct bps_kernels){BPS_FLOAT32, NULL, first, fold, finish, reduce};
    return op == BPS_SUM && dtype == BPS_FLOAT32 ? BPS_OK : BPS_ERR_UNSUPPORTED;
}

static const struct bps_reducer_ops reducer_ops = {
    .size = sizeof reducer_ops, .open = stuck_open, .close = stuck_close, .kernels = stuck_kernels};

/* ---- the compressor ---- */

static size_t stuck_bound(void *instance, uint32_t dtype, size_t count)
{
    (void)instance;
    return dtype == BPS_FLOAT32 ? count * sizeof(float) : 0;
}

static size_t stuck_encode(void *instance, uint32_t dtype, const void *src, size_t count,
                           const struct bps_random *random, void *dst)
{
    size_t bytes = stuck_bound(instance, dtype, count);
    (void)random;
    be_at(instance, ENCODE);
    memcpy(dst, src, bytes);
    return bytes;
}

static bps_status stuck_decode(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst, size_t count)
{
    (void)dtype;
    (void)count;
    be_at(instance, DECODE);
    memcpy(dst, src, bytes);
    return BPS_OK;
}

static bps_status stuck_decode_add(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst,
                                   size_t count)
{
    (void)instance;
    (void)dtype;
    (void)bytes;
    for (size_t i = 0; i < count; i++) {
        ((float *)dst)[i] += ((const float *)src)[i];
    }
    return BPS_OK;
}

static const struct bps_compressor_ops compressor_ops = {
    .size = sizeof compressor_ops,
    .open = stuck_open,
    .close = stuck_close,
    .bound = stuck_bound,
    .encode = stuck_encode,
    .decode = stuck_decode,
    .decode_add = stuck_decode_add,
};

/* ---- the stage ---- */

static void stuck_query(void *instance, struct bps_stage_attr *out)
{
    const struct options *o = instance;
    *out = (struct bps_stage_attr){
        .ops = BPS_OP_BIT(BPS_SUM),
        .dtypes = BPS_DTYPE_BIT(BPS_FLOAT32),
        .memory = BPS_MEMORY_HOST,
        .executor = o->pool ? BPS_EXECUTOR_CPU : BPS_EXECUTOR_IO,
        .takes = "plain",
        .gives = "plain",
    };
}

static bps_status stuck_bind(void *instance, const struct bps_tensor_info *tensor, void **state_out,
                             struct bps_report *report)
{
    (void)tensor;
    (void)state_out;
    (void)report;
    be_at(instance, BIND);
    return BPS_OK;
}

static void stuck_unbind(void *instance, void *state)
{
    (void)instance;
    (void)state;
}

static bps_status stuck_run(void *instance, void *state, const struct bps_stage_task *task, struct bps_report *report)
{
    const struct options *o = instance;
    (void)state;
    (void)task;
    (void)report;
    be_at(o, RUN);
    return o->at == RUN ? BPS_INPROGRESS : BPS_OK;
}

static const struct bps_stage_ops stage_ops = {
    .size = sizeof stage_ops,
    .open = stuck_open,
    .close = stuck_close,
    .query = stuck_query,
    .bind = stuck_bind,
    .unbind = stuck_unbind,
    .run = stuck_run,
};

/* ---- the module, under three names ---- */

#define PLUGIN(kind_, ops_)                                                                                            \
    {                                                                                                                  \
        .size = sizeof(struct bps_plugin),                                                                             \
        .kind = (kind_),                                                                                               \
        .name = "stuck",                                                                                               \
        .summary = "one callback does not return",                                                                     \
        .options = options,                                                                                            \
        .options_size = sizeof(struct options),                                                                        \
        .ops = (ops_),                                                                                                 \
    }

static const struct bps_plugin reducer = PLUGIN(BPS_KIND_REDUCER, &reducer_ops);
static const struct bps_plugin compressor = PLUGIN(BPS_KIND_COMPRESSOR, &compressor_ops);
static const struct bps_plugin stage = PLUGIN(BPS_KIND_STAGE, &stage_ops);
static const struct bps_plugin *const plugins[] = {&reducer, &compressor, &stage};

static const struct bps_module module = {
    .magic = BPS_PLUGIN_MAGIC,
    .size = sizeof module,
    .abi_major = BPS_ABI_MAJOR,
    .abi_minor = BPS_ABI_MINOR,
    .name = "stuck",
    .version = "1.0.0",
    .license = "Apache-2.0",
    .nplugins = 3,
    .plugins = plugins,
};

BPS_PLUGIN_NOTE(BPS_KIND_REDUCER, "stuck", "1.0.0");
BPS_PLUGIN_NOTE(BPS_KIND_COMPRESSOR, "stuck", "1.0.0");
BPS_PLUGIN_NOTE(BPS_KIND_STAGE, "stuck", "1.0.0");

#ifndef LOADING
#define LOADING /* what goes on before there is an instance */
#endif

const struct bps_module *BPS_PLUGIN_ENTRY(void)
{
    LOADING;
    return &module;
}
