/* SPDX-License-Identifier: Apache-2.0 */
/* alone.c - push_pull in a job of one worker: the scales alone. */
#include <byteps/reducer.h>

#include "flow/step.h"
#include "plugin/use.h"

static bps_status sum_alone(struct bps_task *task, struct bps_report *report)
{
    const struct bps_operation *operation = &task->tensor->operation;
    const struct bps_worker *worker = task->tensor->worker;
    struct bps_kernels kernels;
    if (operation->op == BPS_WIRE_BROADCAST) {
        if (operation->root != 0) {
            BPS_REPORT(report, "root %u is not a worker of this job (0..0)", operation->root);
            return BPS_ERR_INVALID;
        }
        return BPS_OK;
    }
    uint32_t op = operation->op == BPS_AVERAGE ? BPS_SUM : operation->op;
    uint32_t dtype = operation->request.dtype;
    const struct bps_instance *reducer;
    bps_status status = bps_reducer_kernels(worker->reducer, op, dtype, &kernels, &reducer, report);
    if (status != BPS_OK) {
        return status;
    }
    const void *src = task->src;
    double scale = operation->request.prescale;
    BPS_CALLING(reducer, "reduce", task->tensor->name);
    kernels.reduce(task->dst, &src, scale != 1.0 ? &scale : NULL, 1, task->bytes / bps_dtype_size(dtype),
                   operation->request.postscale, 1);
    return BPS_OK;
}

static bool start(struct bps_task *task)
{
    struct bps_report report;
    bps_status status = sum_alone(task, &report);
    if (status != BPS_OK) {
        bps_task_done(task, status, report.text);
    }
    return status == BPS_OK;
}

static const struct bps_step_ops alone = {
    .name = "alone", .takes = "all, in a job of one worker", .crosses = true, .start = start};

const struct bps_step_ops *const bps_alone_steps[] = {&alone, NULL};
