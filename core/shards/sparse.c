/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sparse.c - tensors of which some rows are sent: a partition is one slice, which carries the rows that begin in it,
 * and its result those that any worker has brought.
 */
#include <string.h>

#include <byteps/reducer.h>

#include "base/report.h"
#include "flow/sparse.h"
#include "plugin/use.h"
#include "shards/shards.h"

/* What the step keeps of a task. */
struct rows_push {
    struct bps_push push; /* first: all that the shards know of it */
    char *sent, *result;  /* in blocks of the worker's; the result is the store's where it is kept */
    uint32_t room, sent_bytes, result_bytes;
};

static struct rows_push *rows_push_of(const struct bps_task *task)
{
    return bps_task_context(task);
}

static uint32_t row_of(const struct bps_task *task)
{
    return task->tensor->named.form.row;
}

static uint32_t sparse_bytes(const struct bps_task *task, uint32_t index)
{
    const struct rows_push *own = rows_push_of(task);
    (void)index;
    return own->sent != NULL ? own->sent_bytes : own->room;
}

static bps_status pack(const struct bps_task *task, struct bps_report *report)
{
    struct rows_push *own = rows_push_of(task);
    const struct bps_tensor_entry *tensor = task->tensor;
    const struct bps_instance *by;
    struct bps_kernels kernels;
    struct bps_worker *worker = tensor->worker;
    bps_status status = bps_reducer_open(worker->conf, worker->loop, &worker->reducer, report);
    if (status == BPS_OK) {
        status = bps_reducer_kernels(worker->reducer, BPS_SUM, tensor->operation.request.dtype, &kernels, &by, report);
    }
    if (status != BPS_OK) {
        return status;
    }
    own->sent = bps_pool_get(&worker->blocks, own->room);
    if (own->sent == NULL) {
        return bps_fail(report, BPS_ERR_NOMEM, "out of memory for rows of tensor %s", tensor->named.name);
    }
    BPS_CALLING(by, "reduce", tensor->named.name);
    own->sent_bytes = (uint32_t)bps_sparse_pack(task, &kernels, 1.0, own->sent);
    return BPS_OK;
}

static bps_status sparse_make(struct bps_task *task, uint32_t index, struct bps_header *header, const void **payload,
                              struct bps_report *report)
{
    const struct rows_push *own = rows_push_of(task);
    (void)index;
    bps_status status = own->sent != NULL ? BPS_OK : pack(task, report);
    header->length = own->sent_bytes;
    header->slice = row_of(task);
    header->flags |= BPS_FLAG_ROWS;
    *payload = own->sent;
    return status;
}

/* Nobody else has anything to do with it: the job cannot go on. */
static void sparse_refuse(struct bps_task *task, bps_status status, const char *text)
{
    bps_push_fail(task->tensor->worker, status, text);
}

static bps_status sparse_expect(struct bps_task *task, uint32_t index, uint32_t bytes)
{
    struct rows_push *own = rows_push_of(task);
    if (bytes < BPS_ROWS_HEAD || bytes > bps_rows_bound(task->bytes, row_of(task))) {
        return BPS_ERR_PROTOCOL;
    }
    own->result_bytes = bytes;
    own->result = own->push.kept != NULL
                      ? bps_kept_place(&own->push.remote->worker->shards->kept, own->push.kept, index, bytes)
                      : bps_pool_get(&task->tensor->worker->blocks, bytes);
    return own->result != NULL ? BPS_OK : BPS_ERR_NOMEM;
}

static char *sparse_place(struct bps_task *task, uint32_t index)
{
    (void)index;
    return rows_push_of(task)->result;
}

static bps_status sparse_settle(struct bps_task *task, uint32_t index, struct bps_report *report)
{
    struct rows_push *own = rows_push_of(task);
    uint32_t room = own->push.kept == NULL ? own->result_bytes : 0;
    (void)index;
    bps_status status = bps_sparse_result(task, own->result, own->result_bytes, room);
    if (status == BPS_OK) {
        own->result = NULL;
    }
    return status == BPS_ERR_PROTOCOL
               ? bps_fail(report, status, "a server sent data that is not rows of tensor %s", task->tensor->named.name)
               : status;
}

static const struct bps_payload_ops payload_rows = {
    .bytes = sparse_bytes,
    .make = sparse_make,
    .refuse = sparse_refuse,
    .expect = sparse_expect,
    .place = sparse_place,
    .settle = sparse_settle,
};

static void sparse_finish(struct bps_task *task)
{
    struct rows_push *own = rows_push_of(task);
    struct bps_pool *blocks = &task->tensor->worker->blocks;
    if (own->sent != NULL) {
        bps_pool_put(blocks, own->sent, own->room);
    }
    if (own->result != NULL && own->push.kept == NULL) {
        bps_pool_put(blocks, own->result, own->result_bytes);
    }
    own->sent = own->result = NULL;
}

static bool sparse_takes(const struct bps_tensor_entry *tensor, uint32_t partition)
{
    (void)partition;
    return tensor->job.row > 0;
}

static size_t sparse_more(const struct bps_task *task)
{
    (void)task;
    return bps_push_more(1);
}

static bool sparse_start(struct bps_task *task)
{
    struct rows_push *own = rows_push_of(task);
    bps_push_init(task, &payload_rows, task->bytes, own + 1);
    own->sent = own->result = NULL;
    own->room = (uint32_t)bps_sparse_packed(task);
    own->push.wire = own->room;
    own->push.finish = sparse_finish;
    return bps_push_start(task);
}

const struct bps_step_ops bps_push_rows = {
    .name = "push rows",
    .takes = "rows of a tensor",
    .crosses = true,
    .context = sizeof(struct rows_push),
    .more = sparse_more,
    .probe = sparse_takes,
    .start = sparse_start,
    .cancel = bps_push_cancel,
    .abandon = bps_push_abandon,
    .refuse = bps_remote_refuse,
};
