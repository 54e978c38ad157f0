/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage_clip_global.c - the stage "clip_global": limits the norm of all gradients of a step together, as
 * torch.nn.utils.clip_grad_norm_() does.
 *
 * A model for stages that need a whole round: run_all gets every partition of every tensor at once. Behind push_pull it
 * clips the average of all workers, which is the same on each.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <byteps/stage.h>

struct clip_options {
    double max_norm;
};

static const struct bps_option clip_options[] = {
    BPS_OPTION(struct clip_options, max_norm, DOUBLE, BPS_OPT_AGREE, "1.0", "1e-30..1e30",
               "Largest norm of all gradients of a step together; larger ones are scaled down to it."),
    {0},
};

struct clip {
    const struct bps_host *host;
    double max_norm;
    uint64_t *rounds, *clipped; /* counters */
};

/* What is known of a tensor: the state of its binding. */
struct bound {
    const char *name;
    uint32_t dtype;
};

static bps_status clip_open(const struct bps_host *host, const void *options, void **instance_out,
                            struct bps_report *report)
{
    struct clip *clip = host->alloc(host, sizeof *clip, 8);
    if (clip == NULL) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    clip->host = host;
    clip->max_norm = ((const struct clip_options *)options)->max_norm;
    clip->rounds = host->counter(host, "rounds", "Steps whose norm was taken.");
    clip->clipped = host->counter(host, "clipped", "Steps whose gradients were scaled down.");
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

static bps_status clip_bind(void *instance, const struct bps_tensor_info *tensor, void **state_out,
                            struct bps_report *report)
{
    const struct clip *clip = instance;
    struct bound *bound = clip->host->alloc(clip->host, sizeof *bound, 8);
    if (bound == NULL) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    *bound = (struct bound){tensor->name, tensor->dtype};
    *state_out = bound;
    return BPS_OK;
}

static void clip_unbind(void *instance, void *state)
{
    const struct clip *clip = instance;
    clip->host->release(clip->host, state);
}

/* ---- one partition: elements lie at any address, hence memcpy ---- */

#define PART(T)                                                                                                        \
    static double squares_##T(const void *src, uint64_t count)                                                         \
    {                                                                                                                  \
        double sum = 0;                                                                                                \
        for (uint64_t i = 0; i < count; i++) {                                                                         \
            T x;                                                                                                       \
            memcpy(&x, (const char *)src + i * sizeof x, sizeof x);                                                    \
            sum += (double)x * (double)x;                                                                              \
        }                                                                                                              \
        return sum;                                                                                                    \
    }                                                                                                                  \
    static void scale_##T(void *dst, const void *src, uint64_t count, double factor)                                   \
    {                                                                                                                  \
        for (uint64_t i = 0; i < count; i++) {                                                                         \
            T x;                                                                                                       \
            memcpy(&x, (const char *)src + i * sizeof x, sizeof x);                                                    \
            x = (T)((double)x * factor);                                                                               \
            memcpy((char *)dst + i * sizeof x, &x, sizeof x);                                                          \
        }                                                                                                              \
    }

PART(float)
PART(double)

/* ---- a round ---- */

struct part {
    const struct bps_stage_task *task;
    const struct bound *bound;
};

static int by_name(const void *a, const void *b)
{
    const struct part *one = a, *other = b;
    int names = strcmp(one->bound->name, other->bound->name);
    return names != 0 ? names : (one->task->first > other->task->first) - (one->task->first < other->task->first);
}

/* Tasks come in any order, and a sum of floating point depends on it: all workers have to take the same. */
static struct part *sorted(const struct bps_stage_task *const *task, void *const *state, size_t count)
{
    struct part *part = calloc(count, sizeof *part);
    for (size_t i = 0; i < count && part != NULL; i++) {
        part[i] = (struct part){task[i], state[i]};
    }
    if (part != NULL) {
        qsort(part, count, sizeof *part, by_name);
    }
    return part;
}

static double norm_of(const struct part *part, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        const struct bps_stage_task *task = part[i].task;
        sum += part[i].bound->dtype == BPS_FLOAT32 ? squares_float(task->src, task->count)
                                                   : squares_double(task->src, task->count);
    }
    return sqrt(sum);
}

static void scale(const struct part *part, size_t count, double factor)
{
    for (size_t i = 0; i < count; i++) {
        const struct bps_stage_task *task = part[i].task;
        if (part[i].bound->dtype == BPS_FLOAT32) {
            scale_float(task->dst, task->src, task->count, factor);
        } else {
            scale_double(task->dst, task->src, task->count, factor);
        }
    }
}

/* With a norm that is not finite, gradients stay as they are: who looks at them shall see it. */
static bps_status clip_run_all(void *instance, const struct bps_stage_task *const *task, void *const *state,
                               size_t count, struct bps_report *report)
{
    struct clip *clip = instance;
    struct part *part = sorted(task, state, count);
    if (part == NULL) {
        BPS_REPORT(report, "out of memory for %zu partitions", count);
        return BPS_ERR_NOMEM;
    }
    double norm = norm_of(part, count);
    bool clips = isfinite(norm) && norm > clip->max_norm;
    scale(part, count, clips ? clip->max_norm / norm : 1);
    *clip->rounds += 1;
    *clip->clipped += clips;
    free(part);
    return BPS_OK;
}

static void clip_describe(void *instance, char *text, size_t n)
{
    snprintf(text, n, "the gradients of a step, to a norm of %g", ((const struct clip *)instance)->max_norm);
}

static const struct bps_stage_ops clip_ops = {
    .size = sizeof(struct bps_stage_ops),
    .open = clip_open,
    .close = clip_close,
    .query = clip_query,
    .bind = clip_bind,
    .unbind = clip_unbind,
    .describe = clip_describe,
    .run_all = clip_run_all,
};

BPS_PLUGIN_MODULE(BPS_KIND_STAGE, "clip_global", "1.0", "Apache-2.0", .summary = "clips by the norm of all gradients",
                  .options = clip_options, .options_size = sizeof(struct clip_options), .ops = &clip_ops);
