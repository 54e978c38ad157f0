/* SPDX-License-Identifier: Apache-2.0 */
/*
 * returns.c - a reducer, a compressor and a stage, all named "returns", of which one callback returns what it may not.
 *
 * `at` names the callback, or a field that `query` fills, and `value` is what it returns; kernels that are not refused
 * are not there. The compressor, which codes float32 as it is, does so for
 * slices that begin with the number `first`; its encode adds `value` to its bound, and -1 and 0 are themselves.
 */
#include <stdint.h>
#include <string.h>

#include <byteps/compressor.h>
#include <byteps/reducer.h>
#include <byteps/stage.h>

#ifndef VERSION
#define VERSION "0.1.0"
#endif
#ifndef FORMAT
#define FORMAT 0
#endif

struct options {
    uint32_t at;
    int64_t value;
    double first;
};

enum { KERNELS, ENCODE, DECODE, DECODE_ADD, BIND, RUN, DONE, EXECUTOR, OPS };

static const struct bps_option options[] = {
    BPS_OPTION(struct options, at, CHOICE, BPS_OPT_AGREE, "kernels",
               "kernels|encode|decode|decode_add|bind|run|done|executor|ops", "The callback."),
    BPS_OPTION(struct options, value, INT, BPS_OPT_AGREE, "0", NULL, "What it returns."),
    BPS_OPTION(struct options, first, DOUBLE, BPS_OPT_AGREE, "0", NULL, "Of the slices for which it does."),
    {0},
};

/* The instance is the options, which live until close. */
static bps_status returns_open(const struct bps_host *host, const void *given, void **instance_out,
                               struct bps_report *report)
{
    (void)host;
    (void)report;
    *instance_out = (void *)(uintptr_t)given;
    return BPS_OK;
}

static void returns_close(void *instance)
{
    (void)instance;
}

/* ---- the reducer ---- */

static bps_status returns_kernels(void *instance, uint32_t op, uint32_t dtype, struct bps_kernels *out)
{
    const struct options *o = instance;
    (void)op;
    *out = (struct bps_kernels){.accumulator = dtype};
    return (bps_status)o->value;
}

static const struct bps_reducer_ops reducer_ops = {
    .size = sizeof reducer_ops, .open = returns_open, .close = returns_close, .kernels = returns_kernels};

/* ---- the compressor ---- */

/* What a callback returns of these elements; 0: it is right. */
static int64_t wrong(const struct options *o, uint32_t at, const void *elements)
{
    float first;
    memcpy(&first, elements, sizeof first);
    return o->at == at && first == (float)o->first ? o->value : 0;
}

static size_t returns_bound(void *instance, uint32_t dtype, size_t count)
{
    (void)instance;
    return dtype == BPS_FLOAT32 ? count * sizeof(float) : 0;
}

static size_t returns_encode(void *instance, uint32_t dtype, const void *src, size_t count,
                             const struct bps_random *random, void *dst)
{
    const struct options *o = instance;
    size_t bytes = returns_bound(instance, dtype, count);
    int64_t more = wrong(o, ENCODE, src);
    (void)random;
    memcpy(dst, src, bytes);
    return more == -1 ? SIZE_MAX : bytes + (size_t)more;
}

static bps_status returns_decode(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst, size_t count)
{
    (void)dtype;
    (void)count;
    memcpy(dst, src, bytes);
    return (bps_status)wrong(instance, DECODE, src);
}

static bps_status returns_decode_add(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst,
                                     size_t count)
{
    (void)dtype;
    (void)bytes;
    for (size_t i = 0; i < count; i++) {
        ((float *)dst)[i] += ((const float *)src)[i];
    }
    return (bps_status)wrong(instance, DECODE_ADD, src);
}

static const struct bps_compressor_ops compressor_ops = {
    .size = sizeof compressor_ops,
    .open = returns_open,
    .close = returns_close,
    .bound = returns_bound,
    .encode = returns_encode,
    .decode = returns_decode,
    .decode_add = returns_decode_add,
};

/* ---- the stage ---- */

static void returns_query(void *instance, struct bps_stage_attr *out)
{
    const struct options *o = instance;
    *out = (struct bps_stage_attr){
        .ops = o->at == OPS ? (uint32_t)o->value : BPS_OP_BIT(BPS_SUM),
        .dtypes = BPS_DTYPE_BIT(BPS_FLOAT32),
        .memory = BPS_MEMORY_HOST,
        .executor = o->at == EXECUTOR ? (uint32_t)o->value : BPS_EXECUTOR_IO,
        .takes = "plain",
        .gives = "plain",
    };
}

static bps_status returns_bind(void *instance, const struct bps_tensor_info *tensor, void **state_out,
                               struct bps_report *report)
{
    const struct options *o = instance;
    (void)tensor;
    (void)state_out;
    (void)report;
    return o->at == BIND ? (bps_status)o->value : BPS_OK;
}

static bps_status returns_run(void *instance, void *state, const struct bps_stage_task *task, struct bps_report *report)
{
    const struct options *o = instance;
    (void)state;
    (void)report;
    if (o->at == DONE) {
        task->done(task, (bps_status)o->value, NULL);
    }
    return o->at == DONE ? BPS_INPROGRESS : o->at == RUN ? (bps_status)o->value : BPS_OK;
}

static const struct bps_stage_ops stage_ops = {
    .size = sizeof stage_ops,
    .open = returns_open,
    .close = returns_close,
    .query = returns_query,
    .bind = returns_bind,
    .run = returns_run,
};

/* ---- the module, under three names ---- */

#define PLUGIN(kind_, ops_)                                                                                            \
    {                                                                                                                  \
        .size = sizeof(struct bps_plugin),                                                                             \
        .kind = (kind_),                                                                                               \
        .name = "returns",                                                                                             \
        .summary = "wrong values",                                                                                     \
        .options = options,                                                                                            \
        .options_size = sizeof(struct options),                                                                        \
        .ops = (ops_),                                                                                                 \
        .format = FORMAT,                                                                                              \
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
    .name = "returns",
    .version = VERSION,
    .license = "Apache-2.0",
    .nplugins = 3,
    .plugins = plugins,
};

BPS_PLUGIN_NOTE(BPS_KIND_REDUCER, "returns", VERSION);
BPS_PLUGIN_NOTE(BPS_KIND_COMPRESSOR, "returns", VERSION);
BPS_PLUGIN_NOTE(BPS_KIND_STAGE, "returns", VERSION);

const struct bps_module *BPS_PLUGIN_ENTRY(void)
{
    return &module;
}
