/* SPDX-License-Identifier: Apache-2.0 */
/* stage.c - the stages that plugins bring: on the core thread, or in the pool of threads. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "flow/step.h"
#include "flow/thread_pool.h"
#include "plugin/returned.h"

/* A stage at work on a task: the context of the step. */
struct bps_stage_call {
    struct bps_task *task;
    struct bps_job job; /* for the pool */
    struct bps_stage_task view;
    bool runs;
    bps_status status; /* of one in the pool */
    char *text;        /* of its error; owned */
};

static void stage_on_answer(const struct bps_stage_task *view, bps_status status, const char *text);

/* Runs the stage, on any thread. */
static bps_status stage_run(struct bps_stage_call *call, struct bps_report *report)
{
    const struct bps_task *task = call->task;
    const struct bps_tensor_entry *tensor = task->tensor;
    const struct bps_path_step *on = bps_task_on(task);
    const struct bps_node *node = on->node;
    uint32_t size = (uint32_t)bps_dtype_size(tensor->path_dtype);
    call->view = (struct bps_stage_task){
        .partition = task->partition,
        .round = tensor->round,
        .first = task->offset / size,
        .count = task->bytes / size,
        .src = task->src,
        .dst = node->attr.writes != 0 ? task->dst : NULL,
        .done = stage_on_answer,
    };
    BPS_CALLING(node->instance, "run", tensor->named.name);
    bps_status status = node->ops->run(node->instance->self, on->state, &call->view, report);
    return bps_returned(node->instance, "run", BPS_INPROGRESS, status, report);
}

/* What the stage has written is what goes on. */
static void stage_finish(struct bps_stage_call *call, bps_status status, const char *text)
{
    bps_assert(call->runs && call->task->state == BPS_TASK_WORKING);
    struct bps_task *task = call->task;
    call->runs = false;
    if (status == BPS_OK && bps_task_on(task)->node->attr.writes != 0) {
        task->src = task->dst;
    }
    bps_task_done(task, status, text);
}

static void stage_on_answer(const struct bps_stage_task *view, bps_status status, const char *text)
{
    struct bps_stage_call *call = bps_container(view, struct bps_stage_call, view);
    struct bps_report report;
    if (!call->runs) {
        bps_error("stage", "a stage has completed a task that it does not have");
        return;
    }
    status = bps_answered(bps_task_on(call->task)->node->instance, "done", status, &text, &report);
    stage_finish(call, status, text);
}

static void run_in_pool(struct bps_job *job)
{
    struct bps_stage_call *call = bps_container(job, struct bps_stage_call, job);
    struct bps_report report = {""};
    call->status = stage_run(call, &report);
    if (call->status != BPS_OK && report.text[0] != '\0') {
        call->text = strdup(report.text);
    }
}

/* Back from the pool. */
static void on_pooled(struct bps_post *post)
{
    struct bps_stage_call *call = bps_container(post, struct bps_stage_call, job.done);
    bps_status status = call->status;
    char *text = call->text;
    call->text = NULL;
    if (status == BPS_INPROGRESS) {
        status = BPS_ERR_UNSUPPORTED; /* its task is not its own any more when it comes back from there */
        stage_finish(call, status,
                     "it returned BPS_INPROGRESS, which only stages on the core thread may (BPS_EXECUTOR_IO)");
    } else {
        stage_finish(call, status, text != NULL ? text : bps_strerror(status));
    }
    free(text);
}

static bool stage_start(struct bps_task *task)
{
    struct bps_stage_call *call = bps_task_context(task);
    struct bps_report report = {""};
    call->task = task;
    call->runs = true;
    if (bps_task_on(task)->node->attr.executor == BPS_EXECUTOR_CPU) {
        call->job.run = run_in_pool;
        call->job.done.fn = on_pooled;
        bps_thread_pool_run(task->tensor->worker->pool, &call->job);
        return false;
    }
    bps_status status = stage_run(call, &report);
    if (status != BPS_INPROGRESS) {
        stage_finish(call, status, report.text[0] != '\0' ? report.text : bps_strerror(status));
    }
    return false;
}

/* One in the pool comes back anyhow. */
static void stage_abandon(struct bps_task *task)
{
    struct bps_stage_call *call = bps_task_context(task);
    const struct bps_path_step *on = bps_task_on(task);
    const struct bps_node *node = on->node;
    if (call->runs && node->attr.executor != BPS_EXECUTOR_CPU && node->ops->cancel != NULL) {
        BPS_CALLING(node->instance, "cancel", task->tensor->named.name);
        node->ops->cancel(node->instance->self, on->state, &call->view);
    }
}

static const struct bps_step_ops stage = {
    .name = "run",
    .takes = "what its condition says",
    .context = sizeof(struct bps_stage_call),
    .start = stage_start,
    .abandon = stage_abandon,
};

const struct bps_step_ops *const bps_plugin_steps[] = {&stage, NULL};
