/* SPDX-License-Identifier: Apache-2.0 */
/* plain.c - slices that carry the bytes of their partition as they are, from and to where these lie. */
#include "shards/shards.h"

/* For a group its sum is pushed, in which the scales of its members are already. */
bps_status bps_plain_make(struct bps_task *task, uint32_t index, struct bps_header *header, const void **payload,
                          struct bps_report *report)
{
    (void)report;
    if (task->for_group) {
        header->prescale = task->divisor;
    }
    *payload = bps_task_payload(task, index * bps_push_of(task)->slice);
    return BPS_OK;
}

static bps_status plain_expect(struct bps_task *task, uint32_t index, uint32_t bytes)
{
    return bytes == bps_push_bytes(task, index) ? BPS_OK : BPS_ERR_PROTOCOL;
}

static char *plain_place(struct bps_task *task, uint32_t index)
{
    return bps_task_place(task, index * bps_push_of(task)->slice);
}

static const struct bps_payload_ops payload_plain = {
    .bytes = bps_push_bytes, .make = bps_plain_make, .expect = plain_expect, .place = plain_place};

/* ---- with a result that is kept: it comes there first ---- */

static bps_status kept_expect(struct bps_task *task, uint32_t index, uint32_t bytes)
{
    const struct bps_push *push = bps_push_of(task);
    bps_status status = plain_expect(task, index, bytes);
    if (status == BPS_OK && bytes > 0 &&
        bps_kept_land(&push->remote->worker->shards->kept, push->kept, index, bytes) == NULL) {
        status = BPS_ERR_NOMEM;
    }
    return status;
}

static char *kept_place(struct bps_task *task, uint32_t index)
{
    return bps_push_of(task)->kept->now.slice[index].landing;
}

static bps_status kept_settle(struct bps_task *task, uint32_t index, struct bps_report *report)
{
    const struct bps_push *push = bps_push_of(task);
    bool gets = bps_gets(&task->roles, task->tensor->worker->job.rank);
    (void)report;
    if (push->kept->now.slice[index].bytes > 0) {
        bps_kept_landed(&push->remote->worker->shards->kept, push->kept, index, gets ? plain_place(task, index) : NULL);
    }
    return BPS_OK;
}

static const struct bps_payload_ops payload_kept = {
    .bytes = bps_push_bytes, .make = bps_plain_make, .expect = kept_expect, .place = kept_place, .settle = kept_settle};

void bps_push_init_plain(struct bps_task *task, void *memory)
{
    bps_push_init(task, &payload_plain, bps_tensor_slice(task->tensor), memory);
    if (bps_push_of(task)->kept != NULL) {
        bps_push_of(task)->payload = &payload_kept;
    }
}

static size_t plain_more(const struct bps_task *task)
{
    return bps_push_more(bps_partitions(task->bytes, bps_tensor_slice(task->tensor)));
}

static bool plain_start(struct bps_task *task)
{
    bps_push_init_plain(task, bps_push_of(task) + 1);
    return bps_push_start(task);
}

const struct bps_step_ops bps_push_plain = {
    .name = "push",
    .takes = "all that is not summed on this host alone",
    .crosses = true,
    .context = sizeof(struct bps_push),
    .more = plain_more,
    .start = plain_start,
    .cancel = bps_push_cancel,
    .refuse = bps_remote_refuse,
};
