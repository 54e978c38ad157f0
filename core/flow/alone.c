/* SPDX-License-Identifier: Apache-2.0 */
/* alone.c - push_pull in a job, or a process group, of one worker: the scales alone; and blocks of one worker. */
#include <string.h>

#include <byteps/reducer.h>

#include "base/assert.h"
#include "base/tensor.h"
#include "flow/step.h"
#include "plugin/use.h"

/* What scales a task; a tensor of another type or operation has other ways, and so another one of these. */
struct scaling {
    const struct bps_instance *reducer; /* NULL: not known yet */
    struct bps_kernels kernels;
};

static bps_status alone_find(const struct bps_operation *operation, struct bps_worker *worker, struct scaling *out,
                             struct bps_report *report)
{
    bps_assert(out->reducer == NULL);
    uint32_t op = operation->op == BPS_AVERAGE ? BPS_SUM : operation->op;
    const struct bps_instance *by;
    bps_status status = BPS_OK;
    if (worker->reducer == NULL) { /* as in a job of several, whose workers may sum nothing themselves */
        status = bps_reducer_open(worker->conf, worker->loop, &worker->reducer, report);
    }
    if (status == BPS_OK) {
        status = bps_reducer_kernels(worker->reducer, op, operation->request.dtype, &out->kernels, &by, report);
    }
    if (status == BPS_OK) {
        out->reducer = by;
    }
    return status;
}

static bps_status sum_alone(struct bps_task *task, struct bps_report *report)
{
    const struct bps_operation *operation = &task->tensor->operation;
    struct scaling *scaling = bps_task_context(task);
    if (!bps_sums(&task->roles) && task->roles.from != task->tensor->worker->job.rank) {
        BPS_REPORT(report, "root %u is not a worker of this job (0..0)", task->roles.from);
        return BPS_ERR_INVALID;
    }
    if (!bps_sums(&task->roles) || (task->bytes == 0 && operation->op >= BPS_OPS)) {
        return BPS_OK;
    }
    if (scaling->reducer == NULL) {
        bps_status status = alone_find(operation, task->tensor->worker, scaling, report);
        if (status != BPS_OK) {
            return status;
        }
    }
    const void *src = task->src;
    double scale = operation->request.prescale;
    size_t count = task->bytes / bps_element_size(operation->request.dtype);
    BPS_CALLING(scaling->reducer, "reduce", task->tensor->named.name);
    scaling->kernels.reduce(scaling->kernels.context, task->dst, &src, scale != 1.0 ? &scale : NULL, 1, count,
                            operation->request.postscale, 1);
    return BPS_OK;
}

static bool alone_start(struct bps_task *task)
{
    struct bps_report report;
    bps_status status = sum_alone(task, &report);
    if (status != BPS_OK) {
        bps_task_done(task, status, report.text);
    }
    return status == BPS_OK;
}

static const struct bps_step_ops alone = {
    .name = "alone",
    .takes = "all, in a job of one worker",
    .crosses = true,
    .context = sizeof(struct scaling),
    .start = alone_start,
};

static bool in_group_alone(const struct bps_tensor_entry *tensor, uint32_t partition)
{
    const struct bps_process_group *group = tensor->operation.group;
    (void)partition;
    return group != NULL && group->n == 1;
}

const struct bps_step_ops bps_group_alone = {
    .name = "alone in a group",
    .takes = "operations of a process group of one worker",
    .crosses = true,
    .context = sizeof(struct scaling),
    .probe = in_group_alone,
    .start = alone_start,
};

/* ---- what it sends to itself ---- */

bool bps_is_own_block(const struct bps_tensor_entry *tensor, uint32_t partition)
{
    const struct bps_task *task = partition >= BPS_BLOCKS ? bps_tensor_task(tensor, partition) : NULL;
    return task != NULL && task->roles.from == task->roles.to && task->roles.from != BPS_EVERYBODY;
}

static bool own_start(struct bps_task *task)
{
    if (task->src != task->dst && task->bytes > 0) {
        memmove(task->dst, task->src, task->bytes);
    }
    return true;
}

const struct bps_step_ops bps_own_block = {.name = "own block",
                                           .takes = "blocks that are from their receiver",
                                           .crosses = true,
                                           .probe = bps_is_own_block,
                                           .start = own_start};

const struct bps_step_ops *const bps_alone_steps[] = {&bps_own_block, &bps_async_alone, &bps_sparse_alone, &alone,
                                                      NULL};
