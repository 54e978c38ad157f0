/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage_later.c - the stage "later": negates a tensor, and answers some milliseconds after it was asked.
 *
 * The smallest step that waits for something: it keeps the task, and answers from a timer of its loop. A count that is
 * larger than `limit` fails.
 */
#include <sys/queue.h>

#include <byteps/stage.h>

struct later_options {
    uint64_t delay;
    int64_t limit;
};

static const struct bps_option later_options[] = {
    BPS_OPTION(struct later_options, delay, TIME, 0, "5 ms", NULL, "How long a task is kept."),
    BPS_OPTION(struct later_options, limit, INT, 0, "1000000", "0..1000000", "Elements that pass."),
    {0},
};

struct later {
    const struct bps_host *host;
    struct later_options options;
    LIST_HEAD(, kept) kept;
};

struct kept {
    LIST_ENTRY(kept) entry;
    struct later *later;
    struct bps_timer *timer;
    const struct bps_stage_task *task;
};

static bps_status later_open(const struct bps_host *host, const void *options, void **instance_out,
                             struct bps_report *report)
{
    struct later *later = host->alloc(host, sizeof *later, 8);

    (void)report;
    if (!later) {
        return BPS_ERR_NOMEM;
    }
    later->host = host;
    later->options = *(const struct later_options *)options;
    LIST_INIT(&later->kept);
    *instance_out = later;
    return BPS_OK;
}

static void later_close(void *instance)
{
    struct later *later = instance;

    later->host->release(later->host, later);
}

static void later_query(void *instance, struct bps_stage_attr *out)
{
    (void)instance;
    *out = (struct bps_stage_attr){
        .ops = BPS_OP_BIT(BPS_SUM),
        .dtypes = BPS_DTYPE_BIT(BPS_FLOAT32),
        .memory = BPS_MEMORY_HOST,
        .executor = BPS_EXECUTOR_IO,
        .writes = 1,
        .takes = "plain",
        .gives = "plain",
    };
}

static void answer(struct kept *kept, bps_status status, const char *text)
{
    const struct bps_stage_task *task = kept->task;
    const struct bps_host *host = kept->later->host;

    LIST_REMOVE(kept, entry);
    host->release(host, kept);
    task->done(task, status, text);
}

static void on_time(void *arg)
{
    struct kept *kept = arg;
    const float *src = kept->task->src;
    float *dst = kept->task->dst;

    if (kept->task->count > (uint64_t)kept->later->options.limit) {
        answer(kept, BPS_ERR_FAILED, "there are too many elements");
        return;
    }
    for (uint64_t i = 0; i < kept->task->count; i++) {
        dst[i] = -src[i];
    }
    answer(kept, BPS_OK, "");
}

static bps_status later_run(void *instance, void *state, const struct bps_stage_task *task, struct bps_report *report)
{
    struct later *later = instance;
    struct kept *kept = later->host->alloc(later->host, sizeof *kept, 8);

    (void)state;
    (void)report;
    if (!kept) {
        return BPS_ERR_NOMEM;
    }
    *kept = (struct kept){.later = later, .task = task};
    kept->timer = later->host->timer(later->host, later->options.delay, 0, on_time, kept);
    if (!kept->timer) {
        later->host->release(later->host, kept);
        return BPS_ERR_NOMEM;
    }
    LIST_INSERT_HEAD(&later->kept, kept, entry);
    return BPS_INPROGRESS;
}

static void later_cancel(void *instance, void *state, const struct bps_stage_task *task)
{
    struct later *later = instance;
    struct kept *kept;

    (void)state;
    LIST_FOREACH(kept, &later->kept, entry) {
        if (kept->task == task) {
            later->host->log(later->host, BPS_LOG_INFO, "a task is given back");
            later->host->cancel(later->host, kept->timer);
            answer(kept, BPS_ERR_FAILED, "");
            return;
        }
    }
}

static const struct bps_stage_ops later_ops = {
    .size = sizeof later_ops,
    .open = later_open,
    .close = later_close,
    .query = later_query,
    .run = later_run,
    .cancel = later_cancel,
};

BPS_PLUGIN_MODULE(BPS_KIND_STAGE, "later", "1", "Apache-2.0", .summary = "negates, later", .options = later_options,
                  .options_size = sizeof(struct later_options), .ops = &later_ops);
