/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage_clip.c - the stage "clip": limits every element of a gradient to -limit .. limit before it is pushed.
 *
 * An example of a plugin that is built outside of BytePS: it includes one installed header and links to
 * nothing of BytePS.
 */
#include <string.h>

#include <byteps/stage.h>

struct clip_options {
    double limit;
};

static const struct bps_option clip_options[] = {
    BPS_OPTION(struct clip_options, limit, DOUBLE, BPS_OPT_AGREE, "1.0", "1e-30..1e30",
               "Largest magnitude of an element; what is larger becomes limit or -limit."),
    {0},
};

struct clip {
    const struct bps_host *host;
    double limit;
};

static bps_status clip_open(const struct bps_host *host, const void *options, void **instance_out,
                            struct bps_report *report)
{
    const struct clip_options *given = options;
    struct clip *clip = host->alloc(host, sizeof *clip, 8);

    if (!clip) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    *clip = (struct clip){.host = host, .limit = given->limit};
    *instance_out = clip;
    return BPS_OK;
}

static void clip_close(void *instance)
{
    struct clip *clip = instance;

    clip->host->release(clip->host, clip);
}

/* Sums and averages are gradients. Other operations, and broadcasts of parameters, go around this stage. */
static void clip_query(void *instance, struct bps_stage_attr *out)
{
    (void)instance;
    *out = (struct bps_stage_attr){
        .ops = BPS_OP_BIT(BPS_SUM) | BPS_OP_BIT(BPS_AVERAGE),
        .dtypes = BPS_DTYPE_BIT(BPS_FLOAT32) | BPS_DTYPE_BIT(BPS_FLOAT64),
        .memory = BPS_MEMORY_HOST,
        .executor = BPS_EXECUTOR_CPU,
        .writes = 1,
        .takes = "plain",
        .gives = "plain",
    };
}

/* Elements lie at any address, hence memcpy. A NaN compares false and stays what it is. */
#define CLIP(T)                                                                                                        \
    static void clip_##T(void *dst, const void *src, uint64_t count, T limit)                                          \
    {                                                                                                                  \
        for (uint64_t i = 0; i < count; i++) {                                                                         \
            T x;                                                                                                       \
            memcpy(&x, (const char *)src + i * sizeof x, sizeof x);                                                    \
            x = x > limit ? limit : x;                                                                                 \
            x = x < -limit ? -limit : x;                                                                               \
            memcpy((char *)dst + i * sizeof x, &x, sizeof x);                                                          \
        }                                                                                                              \
    }

CLIP(float)
CLIP(double)

/* The state of a tensor is its type, kept in the pointer itself. */
static bps_status clip_bind(void *instance, const struct bps_tensor_info *tensor, void **state_out,
                            struct bps_report *report)
{
    (void)instance;
    (void)report;
    *state_out = (void *)(uintptr_t)tensor->dtype;
    return BPS_OK;
}

static bps_status clip_run(void *instance, void *state, const struct bps_stage_task *task, struct bps_report *report)
{
    const struct clip *clip = instance;

    (void)report;
    if ((uint32_t)(uintptr_t)state == BPS_FLOAT32) {
        clip_float(task->dst, task->src, task->count, (float)clip->limit);
    } else {
        clip_double(task->dst, task->src, task->count, clip->limit);
    }
    return BPS_OK;
}

static void clip_describe(void *instance, char *text, size_t n)
{
    const struct clip *clip = instance;

    snprintf(text, n, "limit %g", clip->limit);
}

/* ---- what the core sees of us -------------------------------------------------------------------------- */

static const struct bps_stage_ops clip_ops = {
    .size = sizeof clip_ops,
    .open = clip_open,
    .close = clip_close,
    .query = clip_query,
    .bind = clip_bind,
    .run = clip_run,
    .describe = clip_describe,
};

BPS_PLUGIN_MODULE(BPS_KIND_STAGE, "clip", "1.0", "Apache-2.0", .summary = "limits the magnitude of every element",
                  .options = clip_options, .options_size = sizeof(struct clip_options), .ops = &clip_ops);
