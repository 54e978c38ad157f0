/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage_NAME.c - the stage NAME for BytePS: multiplies each element of a tensor by a factor.
 *
 * A plugin includes the header of its kind and links to nothing of BytePS.
 */
#include <string.h>

#include <byteps/stage.h>

/* From this table byteps reads and checks byteps.conf. Each option has a row, and a field in the struct. */
struct NAME_options {
    double factor;
};

static const struct bps_option NAME_option_table[] = {
    BPS_OPTION(struct NAME_options, factor, DOUBLE, BPS_OPT_AGREE, "1.0", "-1e6..1e6",
               "What each element is multiplied by."),
    {0},
};

/* One for each time that a configuration lists the stage. */
struct NAME_stage {
    const struct bps_host *host; /* memory, the log, timers: see byteps/plugin.h */
    float factor;
};

static bps_status NAME_open(const struct bps_host *host, const void *options, void **out, struct bps_report *report)
{
    const struct NAME_options *given = options;
    struct NAME_stage *stage = host->alloc(host, sizeof *stage, 8);

    if (!stage) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    *stage = (struct NAME_stage){.host = host, .factor = (float)given->factor};
    *out = stage;
    return BPS_OK;
}

static void NAME_close(void *instance)
{
    struct NAME_stage *stage = instance;

    stage->host->release(stage->host, stage);
}

/* Which operations and types it takes. Other operations go around it; other types fail without a `when`. */
static void NAME_query(void *instance, struct bps_stage_attr *out)
{
    (void)instance;
    *out = (struct bps_stage_attr){
        .ops = BPS_OP_BIT(BPS_SUM) | BPS_OP_BIT(BPS_AVERAGE),
        .dtypes = BPS_DTYPE_BIT(BPS_FLOAT32),
        .memory = BPS_MEMORY_HOST,
        .executor = BPS_EXECUTOR_CPU, /* run is called by several threads at once */
        .writes = 1,
        .takes = "plain",
        .gives = "plain",
    };
}

/* One part of a tensor. Elements lie at any address, hence memcpy. */
static bps_status NAME_run(void *instance, void *state, const struct bps_stage_task *task, struct bps_report *report)
{
    const struct NAME_stage *stage = instance;
    const char *src = task->src;
    char *dst = task->dst;

    (void)state;  /* bind can make one for each tensor */
    (void)report; /* BPS_REPORT(report, "what is wrong") and an error fail the operation on all workers */
    for (uint64_t i = 0; i < task->count; i++) {
        float x;
        memcpy(&x, src + i * sizeof x, sizeof x);
        x *= stage->factor;
        memcpy(dst + i * sizeof x, &x, sizeof x);
    }
    return BPS_OK;
}

/* One line for `byteps graph --explain`. */
static void NAME_describe(void *instance, char *text, size_t n)
{
    const struct NAME_stage *stage = instance;

    snprintf(text, n, "factor %g", (double)stage->factor);
}

static const struct bps_stage_ops NAME_ops = {
    .size = sizeof NAME_ops,
    .open = NAME_open,
    .close = NAME_close,
    .query = NAME_query,
    .run = NAME_run,
    .describe = NAME_describe,
};

/* Its kind, name, version and license. The version, and .format, tell members apart that would compute differently. */
BPS_PLUGIN_MODULE(BPS_KIND_STAGE, "NAME", "0.1.0", "Apache-2.0", .summary = "multiplies each element by a factor",
                  .options = NAME_option_table, .options_size = sizeof(struct NAME_options), .ops = &NAME_ops);
