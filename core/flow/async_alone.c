/* SPDX-License-Identifier: Apache-2.0 */
/* async_alone.c - tensors in mode async in a job of one worker, which keeps their values itself. */
#include <stdlib.h>
#include <string.h>

#include <byteps/reducer.h>

#include "base/assert.h"
#include "base/report.h"
#include "flow/sparse.h"
#include "flow/step.h"
#include "plugin/use.h"

static bps_status set_value(const struct bps_task *task)
{
    struct bps_tensor_entry *tensor = task->tensor;
    if (tensor->value == NULL) {
        tensor->value = malloc(tensor->operation.bytes + 1);
    }
    if (tensor->value == NULL) {
        return BPS_ERR_NOMEM;
    }
    memcpy(tensor->value + task->offset, task->src, task->bytes);
    return BPS_OK;
}

/* Rows of a task: they become what they are then. */
static bps_status add_rows(const struct bps_task *task, const struct bps_kernels *kernels)
{
    const struct bps_tensor_entry *tensor = task->tensor;
    struct bps_pool *blocks = &tensor->worker->blocks;
    const struct bps_push_pull *r = &tensor->operation.request;
    uint32_t element = (uint32_t)bps_dtype_size(r->dtype);
    struct bps_row_list list;
    struct bps_row_cut cut;
    size_t room = bps_sparse_slice_bound(task, 0, task->bytes);
    char *packed = bps_pool_get(blocks, room);
    if (packed == NULL) {
        return BPS_ERR_NOMEM;
    }
    size_t bytes = bps_sparse_slice_pack(task, 0, task->bytes, kernels, r->prescale, packed);
    bool are = bps_row_parts_read(packed, bytes, task->bytes, bps_sparse_row(&tensor->operation), element, &cut, &list);
    bps_assert(are);
    char *part = packed + bps_row_parts_before(are ? list.count : 0);
    for (uint32_t i = 0; are && i < list.count; i++) {
        char *value = tensor->value + task->offset + bps_row_part_at(&cut, list.index[i]);
        uint32_t own = bps_row_part_bytes(&cut, list.index[i]);
        kernels->reduce(kernels->context, value, (const void *const[]){value, part}, NULL, 2, own / element, 1.0, 1);
        memcpy(part, value, own);
        part += own;
    }
    bps_status status = bps_sparse_slice_result(task, 0, task->bytes, packed);
    bps_pool_put(blocks, packed, room);
    return status;
}

static bps_status add_to_value(const struct bps_task *task, struct bps_report *report)
{
    const struct bps_tensor_entry *tensor = task->tensor;
    const struct bps_operation *operation = &tensor->operation;
    const struct bps_instance *by;
    struct bps_kernels kernels;
    if (tensor->value == NULL) {
        return bps_fail(report, BPS_ERR_STATE, "%s", BPS_ASYNC_UNSET);
    }
    bps_status status =
        bps_reducer_kernels(tensor->worker->reducer, BPS_SUM, operation->request.dtype, &kernels, &by, report);
    if (status != BPS_OK) {
        return status;
    }
    char *value = tensor->value + task->offset;
    const void *const source[] = {value, task->src};
    const double scales[] = {1.0, operation->request.prescale};
    BPS_CALLING(by, "reduce", tensor->named.name);
    if (operation->request.rows != NULL) {
        return add_rows(task, &kernels);
    }
    kernels.reduce(kernels.context, value, source, scales, 2, task->bytes / bps_dtype_size(operation->request.dtype),
                   1.0, 1);
    memcpy(task->dst, value, task->bytes);
    return BPS_OK;
}

static bool async_takes(const struct bps_tensor_entry *tensor, uint32_t partition)
{
    (void)partition;
    return tensor->named.form.keeps;
}

static bool async_start(struct bps_task *task)
{
    const struct bps_roles *roles = &task->tensor->operation.roles;
    struct bps_report report = {""};
    bps_status status = BPS_OK;
    if (bps_sums(roles)) {
        status = add_to_value(task, &report);
    } else if (roles->from != 0) {
        status = bps_fail(&report, BPS_ERR_INVALID, "root %u is not a worker of this job (0..0)", roles->from);
    } else {
        status = set_value(task);
    }
    if (status != BPS_OK) {
        bps_task_done(task, status, report.text[0] != '\0' ? report.text : bps_strerror(status));
    }
    return status == BPS_OK;
}

const struct bps_step_ops bps_async_alone = {
    .name = "add alone",
    .takes = "tensors in mode async, in a job of one worker",
    .crosses = true,
    .probe = async_takes,
    .start = async_start,
};
