/* SPDX-License-Identifier: Apache-2.0 */
/* stage.c - the stages that plugins bring: on the core thread, or in the pool of threads. */
#include <stdlib.h>

#include "flow/step.h"

bps_status bps_stage_run(struct bps_task *task, struct bps_report *report)
{
    const struct bps_tensor_entry *tensor = task->tensor;
    const struct bps_path_step *step = &tensor->path.step[task->step];
    const struct bps_node *node = step->node;
    uint32_t size = (uint32_t)bps_dtype_size(tensor->path_dtype);
    const struct bps_stage_task view = {
        .partition = task->partition,
        .round = tensor->round,
        .first = (uint64_t)task->partition * (tensor->worker->partition / size),
        .count = task->bytes / size,
        .src = task->src,
        .dst = node->attr.writes != 0 ? task->dst : NULL,
    };
    bps_status status = node->ops->run(node->instance->self, step->state, &view, report);
    if (status == BPS_OK && node->attr.writes != 0) {
        task->src = task->dst;
    }
    return status;
}

/* Back from the pool. */
static void on_pooled(struct bps_post *post)
{
    struct bps_task *task = bps_container(post, struct bps_task, post);
    bps_status status = task->stage_status;
    char *text = task->stage_text;
    task->stage_text = NULL;
    bps_task_done(task, status, text != NULL ? text : bps_strerror(status));
    free(text);
}

static bool start(struct bps_task *task)
{
    const struct bps_node *node = task->tensor->path.step[task->step].node;
    struct bps_report report = {""};
    if (node->attr.executor == BPS_EXECUTOR_CPU) {
        task->state = BPS_TASK_POOLED;
        task->post.fn = on_pooled;
        bps_stage_pool_run(task->tensor->worker->pool, task);
        return false;
    }
    bps_status status = bps_stage_run(task, &report);
    if (status != BPS_OK) {
        bps_task_done(task, status, report.text[0] != '\0' ? report.text : bps_strerror(status));
    }
    return status == BPS_OK;
}

const struct bps_step_ops bps_step_plugin = {.start = start};
