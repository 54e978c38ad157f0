/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value.c - tensors in mode async: the shards keep a value, to which they add what is pushed, and each worker pushes
 * for itself.
 *
 * Where a shard may be lost, they ask for answers with tails, and keep the last one (copies.h) for its heir.
 */
#include <string.h>

#include "shards/shards.h"

static bool value_takes(const struct bps_tensor_entry *tensor, uint32_t partition)
{
    (void)partition;
    return tensor->named.form.keeps && tensor->operation.request.rows == NULL;
}

static size_t value_more(const struct bps_task *task)
{
    return bps_push_more(bps_partitions(task->bytes, bps_tensor_slice(task->tensor)));
}

/* ---- with answers that are kept ---- */

static struct bps_value_copies *copies_of(const struct bps_task *task)
{
    return &task->tensor->worker->shards->copies;
}

static bps_status copied_expect(struct bps_task *task, uint32_t index, uint32_t bytes)
{
    struct bps_value_copy *copy = bps_push_of(task)->copy;
    return bytes != bps_value_copy_bytes(copy, index)                  ? BPS_ERR_PROTOCOL
           : bps_value_copy_land(copies_of(task), copy, index) == NULL ? BPS_ERR_NOMEM
                                                                       : BPS_OK;
}

static char *copied_place(struct bps_task *task, uint32_t index)
{
    return bps_push_of(task)->copy->slice[index].landing;
}

/* The root of a broadcast has what it has set. */
static bps_status copied_settle(struct bps_task *task, uint32_t index, struct bps_report *report)
{
    const struct bps_push *push = bps_push_of(task);
    const struct bps_roles *roles = &task->tensor->operation.roles;
    const char *data = bps_value_copy_landed(copies_of(task), push->copy, index);
    uint32_t bytes = bps_push_bytes(task, index);
    bool root = !bps_sums(roles) && bps_tensor_speaks_for(task->tensor, roles->from);
    (void)report;
    if (bytes > 0 && !root && bps_gets(roles, task->tensor->worker->job.rank)) {
        memcpy(bps_task_place(task, index * push->slice), data, bytes);
    }
    return BPS_OK;
}

static const struct bps_payload_ops payload_copied = {.bytes = bps_push_bytes,
                                                      .make = bps_plain_make,
                                                      .expect = copied_expect,
                                                      .place = copied_place,
                                                      .settle = copied_settle};

static void value_finish(struct bps_task *task)
{
    const struct bps_push *push = bps_push_of(task);
    push->copy->broadcasts += push->sent > 0 && !bps_sums(&task->tensor->operation.roles);
}

static bool value_start(struct bps_task *task)
{
    struct bps_push *push = bps_push_of(task);
    bps_push_init_plain(task, push + 1);
    push->flags = BPS_FLAG_KEEPS;
    if (push->remote->has_heirs && task->direct == 0) {
        push->copy = bps_value_copy_of(copies_of(task), task, push->remote->index, push->slice);
    }
    if (push->copy != NULL) {
        push->flags |= BPS_FLAG_COUNTS;
        push->payload = &payload_copied;
        push->finish = value_finish;
    }
    return bps_push_start(task);
}

const struct bps_step_ops bps_push_value = {
    .name = "add",
    .takes = "tensors in mode async",
    .crosses = true,
    .context = sizeof(struct bps_push),
    .more = value_more,
    .probe = value_takes,
    .start = value_start,
    .cancel = bps_push_cancel,
    .refuse = bps_remote_refuse,
};
