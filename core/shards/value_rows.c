/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value_rows.c - rows of tensors in mode async: each slice carries what this worker brings of the rows in it, and its
 * answer what these rows are then.
 */
#include <string.h>

#include <byteps/reducer.h>

#include "base/report.h"
#include "flow/sparse.h"
#include "plugin/use.h"
#include "shards/shards.h"

/* What the step keeps of a task. */
struct value_rows {
    struct bps_push push; /* first: all that the shards know of it */
    struct rows_slice {
        char *sent, *landing; /* blocks of the worker's; NULL: none */
        uint32_t room, sent_bytes, tail;
    } *slice; /* behind what the push needs */
};

static struct value_rows *own_of(const struct bps_task *task)
{
    return bps_task_context(task);
}

static uint32_t rows_bytes(const struct bps_task *task, uint32_t index)
{
    const struct rows_slice *slice = &own_of(task)->slice[index];
    return slice->sent != NULL ? slice->sent_bytes : slice->room;
}

static bps_status pack_slice(const struct bps_task *task, uint32_t index, struct bps_report *report)
{
    struct rows_slice *slice = &own_of(task)->slice[index];
    const struct bps_tensor_entry *tensor = task->tensor;
    struct bps_worker *worker = tensor->worker;
    const struct bps_instance *by;
    struct bps_kernels kernels;
    bps_status status = bps_reducer_open(worker->conf, worker->loop, &worker->reducer, report);
    if (status == BPS_OK) {
        status = bps_reducer_kernels(worker->reducer, BPS_SUM, tensor->operation.request.dtype, &kernels, &by, report);
    }
    if (status != BPS_OK) {
        return status;
    }
    slice->sent = bps_pool_get(&worker->blocks, slice->room);
    if (slice->sent == NULL) {
        return bps_fail(report, BPS_ERR_NOMEM, "out of memory for rows of tensor %s", tensor->named.name);
    }
    BPS_CALLING(by, "reduce", tensor->named.name);
    slice->sent_bytes = (uint32_t)bps_sparse_slice_pack(task, index * own_of(task)->push.slice,
                                                        bps_push_bytes(task, index), &kernels, 1.0, slice->sent);
    return BPS_OK;
}

static bps_status rows_make(struct bps_task *task, uint32_t index, struct bps_header *header, const void **payload,
                            struct bps_report *report)
{
    const struct rows_slice *slice = &own_of(task)->slice[index];
    bps_status status = slice->sent != NULL ? BPS_OK : pack_slice(task, index, report);
    header->length = slice->sent_bytes;
    header->root = bps_sparse_row(&task->tensor->operation);
    header->flags |= BPS_FLAG_ROWS;
    *payload = slice->sent;
    return status;
}

/* Nobody else has anything to do with it: the job cannot go on. */
static void rows_refuse(struct bps_task *task, bps_status status, const char *text)
{
    bps_push_fail(task->tensor->worker, status, text);
}

static bps_status rows_expect(struct bps_task *task, uint32_t index, uint32_t bytes)
{
    struct rows_slice *slice = &own_of(task)->slice[index];
    if (slice->sent == NULL || bytes != slice->sent_bytes + slice->tail) {
        return BPS_ERR_PROTOCOL;
    }
    if (slice->landing == NULL) {
        slice->landing = bps_pool_get(&task->tensor->worker->blocks, bytes);
    }
    return slice->landing != NULL ? BPS_OK : BPS_ERR_NOMEM;
}

static char *rows_place(struct bps_task *task, uint32_t index)
{
    return own_of(task)->slice[index].landing;
}

static void drop_landing(struct bps_task *task, struct rows_slice *slice)
{
    if (slice->landing != NULL) {
        bps_pool_put(&task->tensor->worker->blocks, slice->landing, slice->sent_bytes + slice->tail);
        slice->landing = NULL;
    }
}

/* The answer has the rows that were asked for. */
static bps_status rows_settle(struct bps_task *task, uint32_t index, struct bps_report *report)
{
    struct value_rows *own = own_of(task);
    struct rows_slice *slice = &own->slice[index];
    uint32_t count;
    memcpy(&count, slice->sent, sizeof count);
    if (memcmp(slice->landing, slice->sent, bps_row_parts_before(count)) != 0) {
        return bps_fail(report, BPS_ERR_PROTOCOL, "a server sent other rows of tensor %s than were requested",
                        task->tensor->named.name);
    }
    if (own->push.copy != NULL) {
        bps_value_copy_tear(own->push.copy, index, slice->landing + slice->sent_bytes);
    }
    bps_status status =
        bps_sparse_slice_result(task, index * own->push.slice, bps_push_bytes(task, index), slice->landing);
    drop_landing(task, slice);
    return status;
}

static const struct bps_payload_ops payload_rows = {.bytes = rows_bytes,
                                                    .make = rows_make,
                                                    .refuse = rows_refuse,
                                                    .expect = rows_expect,
                                                    .place = rows_place,
                                                    .settle = rows_settle};

static void rows_finish(struct bps_task *task)
{
    struct value_rows *own = own_of(task);
    for (uint32_t i = 0; i < own->push.slices; i++) {
        drop_landing(task, &own->slice[i]);
        if (own->slice[i].sent != NULL) {
            bps_pool_put(&task->tensor->worker->blocks, own->slice[i].sent, own->slice[i].room);
            own->slice[i].sent = NULL;
        }
    }
}

static bool rows_takes(const struct bps_tensor_entry *tensor, uint32_t partition)
{
    (void)partition;
    return tensor->named.form.keeps && tensor->operation.request.rows != NULL;
}

static size_t rows_more(const struct bps_task *task)
{
    uint32_t slices = bps_partitions(task->bytes, bps_tensor_slice(task->tensor));
    return bps_push_more(slices) + slices * sizeof(struct rows_slice);
}

static bool rows_start(struct bps_task *task)
{
    struct value_rows *own = own_of(task);
    struct bps_push *push = &own->push;
    struct bps_worker *worker = task->tensor->worker;
    uint32_t slice = bps_tensor_slice(task->tensor), slices = bps_partitions(task->bytes, slice);
    own->slice = (struct rows_slice *)(own + 1);
    bps_push_init(task, &payload_rows, slice, own->slice + slices);
    push->flags = BPS_FLAG_KEEPS;
    push->finish = rows_finish;
    if (push->remote->has_heirs) {
        push->copy = bps_value_copy_of(&worker->shards->copies, task, push->remote->index, slice);
        push->flags |= push->copy != NULL ? BPS_FLAG_COUNTS : 0;
    }
    uint64_t room = 0;
    for (uint32_t i = 0; i < slices; i++) {
        uint32_t bytes = (uint32_t)bps_sparse_slice_bound(task, i * slice, bps_push_bytes(task, i));
        own->slice[i] = (struct rows_slice){.room = bytes, .tail = push->copy != NULL ? push->copy->tail : 0};
        room += bytes;
    }
    push->wire = (uint32_t)(room / slices);
    return bps_push_start(task);
}

const struct bps_step_ops bps_push_value_rows = {
    .name = "add rows",
    .takes = "rows of tensors in mode async",
    .crosses = true,
    .context = sizeof(struct value_rows),
    .more = rows_more,
    .probe = rows_takes,
    .start = rows_start,
    .cancel = bps_push_cancel,
    .abandon = bps_push_abandon,
    .refuse = bps_remote_refuse,
};
