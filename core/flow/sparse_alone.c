/* SPDX-License-Identifier: Apache-2.0 */
/* sparse_alone.c - rows in a job of one worker: those given twice are summed, and scales. */
#include <byteps/reducer.h>

#include "base/report.h"
#include "flow/sparse.h"
#include "flow/step.h"
#include "plugin/use.h"

static bool sparse_alone_takes(const struct bps_tensor_entry *tensor, uint32_t partition)
{
    (void)partition;
    return tensor->named.form.row > 0;
}

static bps_status make_result(const struct bps_task *task, struct bps_report *report)
{
    struct bps_worker *worker = task->tensor->worker;
    const struct bps_push_pull *r = &task->tensor->operation.request;
    const struct bps_instance *by;
    struct bps_kernels kernels;
    bps_status status = bps_reducer_kernels(worker->reducer, BPS_SUM, r->dtype, &kernels, &by, report);
    size_t room = bps_sparse_packed(task);
    char *packed = status == BPS_OK ? bps_pool_get(&worker->blocks, room) : NULL;
    if (packed == NULL) {
        return status != BPS_OK ? status : BPS_ERR_NOMEM;
    }
    BPS_CALLING(by, "reduce", task->tensor->named.name);
    size_t bytes = bps_sparse_pack(task, &kernels, r->prescale * r->postscale, packed);
    status = bps_sparse_result(task, packed, bytes, room);
    if (status != BPS_OK) {
        bps_pool_put(&worker->blocks, packed, room);
    }
    return status;
}

static bool sparse_alone_start(struct bps_task *task)
{
    struct bps_report report = {""};
    bps_status status = make_result(task, &report);
    if (status != BPS_OK) {
        bps_task_done(task, status, report.text[0] != '\0' ? report.text : bps_strerror(status));
    }
    return status == BPS_OK;
}

const struct bps_step_ops bps_sparse_alone = {
    .name = "rows alone",
    .takes = "rows of a tensor, in a job of one worker",
    .crosses = true,
    .probe = sparse_alone_takes,
    .start = sparse_alone_start,
};
