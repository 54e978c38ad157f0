/* SPDX-License-Identifier: Apache-2.0 */
/* stage.c - the stage "double": what passes it is doubled, at once or later, or fails. */
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include <byteps/stage.h>

#include "simulation.h"

struct stage {
    const struct bps_host *host;
    const struct sim_process *process;
    LIST_HEAD(, answer) answers;
};

/* One that is still to be given. */
struct answer {
    LIST_ENTRY(answer) entry;
    struct stage *stage;
    struct bps_timer *timer;
    const struct bps_stage_task *task;
    const char *tensor;
};

static bps_status sim_open(const struct bps_host *host, const void *options, void **out, struct bps_report *report)
{
    struct stage *stage = __real_calloc(1, sizeof *stage);
    (void)options;
    (void)report;
    *stage = (struct stage){.host = host, .process = sim_self()};
    LIST_INIT(&stage->answers);
    *out = stage;
    return BPS_OK;
}

static void sim_close(void *instance)
{
    struct stage *stage = instance;
    while (!LIST_EMPTY(&stage->answers)) {
        struct answer *answer = LIST_FIRST(&stage->answers);
        stage->host->cancel(stage->host, answer->timer);
        LIST_REMOVE(answer, entry);
        free(answer);
    }
    free(stage);
}

static void sim_query(void *instance, struct bps_stage_attr *out)
{
    (void)instance;
    *out = (struct bps_stage_attr){
        .ops = BPS_OP_BIT(BPS_SUM) | BPS_OP_BIT(BPS_AVERAGE) | BPS_OP_BIT(BPS_MAX),
        .dtypes = BPS_DTYPE_BIT(BPS_FLOAT32) | BPS_DTYPE_BIT(BPS_INT32), /* what disagrees is as large */
        .memory = BPS_MEMORY_HOST,
        .executor = BPS_EXECUTOR_IO,
        .writes = 1,
        .takes = "plain",
        .gives = "plain",
    };
}

static bps_status sim_bind(void *instance, const struct bps_tensor_info *tensor, void **state,
                           struct bps_report *report)
{
    (void)instance;
    (void)report;
    *state = (void *)(uintptr_t)tensor->name;
    return BPS_OK;
}

static bps_status work(const struct stage *stage, const char *tensor, const struct bps_stage_task *task)
{
    const float *from = task->src;
    float *to = task->dst;
    for (uint64_t i = 0; i < task->count; i++) {
        to[i] = 2 * from[i];
    }
    return sim_stage_fails(stage->process, tensor, task->partition) ? BPS_ERR_FAILED : BPS_OK;
}

static void give(struct answer *answer)
{
    const struct bps_stage_task *task = answer->task;
    bps_status status = work(answer->stage, answer->tensor, task);
    LIST_REMOVE(answer, entry);
    free(answer);
    task->done(task, status, "it was to fail");
}

static void on_time(void *arg)
{
    give(arg);
}

static bps_status sim_run_stage(void *instance, void *state, const struct bps_stage_task *task,
                                struct bps_report *report)
{
    struct stage *stage = instance;
    struct answer *answer = __real_calloc(1, sizeof *answer);
    *answer = (struct answer){.stage = stage, .task = task, .tensor = state};
    LIST_INSERT_HEAD(&stage->answers, answer, entry);
    if (sim_chance(60)) {
        answer->timer = stage->host->timer(stage->host, sim_random(100000) * 1000, 0, on_time, answer);
    }
    if (answer->timer == NULL && sim_chance(50)) {
        give(answer);
    } else if (answer->timer == NULL) {
        LIST_REMOVE(answer, entry);
        free(answer);
        bps_status status = work(stage, state, task);
        snprintf(report->text, sizeof report->text, "it was to fail");
        return status;
    }
    return BPS_INPROGRESS;
}

/* The end of the job: the answer comes now, or as it would have come. */
static void sim_cancel(void *instance, void *state, const struct bps_stage_task *task)
{
    struct stage *stage = instance;
    struct answer *answer;
    (void)state;
    LIST_FOREACH(answer, &stage->answers, entry) {
        if (answer->task == task && sim_chance(50)) {
            stage->host->cancel(stage->host, answer->timer);
            give(answer);
            return;
        }
    }
}

static const struct bps_stage_ops ops = {
    .size = sizeof ops,
    .open = sim_open,
    .close = sim_close,
    .query = sim_query,
    .bind = sim_bind,
    .run = sim_run_stage,
    .cancel = sim_cancel,
};

static const struct bps_plugin plugin = {
    .size = sizeof plugin,
    .kind = BPS_KIND_STAGE,
    .name = "double",
    .summary = "doubles",
    .ops = &ops,
};

static const struct bps_plugin *const plugins[] = {&plugin};

const struct bps_module sim_stages = {
    .magic = BPS_PLUGIN_MAGIC,
    .size = sizeof sim_stages,
    .abi_major = BPS_ABI_MAJOR,
    .abi_minor = BPS_ABI_MINOR,
    .name = "double",
    .version = "1",
    .license = "Apache-2.0",
    .nplugins = 1,
    .plugins = plugins,
};
