/* SPDX-License-Identifier: Apache-2.0 */
/* plain.c - slices that carry the bytes of their partition as they are, from and to where these lie. */
#include "shards/shards.h"

static uint32_t slice_bytes(const struct bps_task *task, uint32_t index)
{
    return bps_partition_bytes(task->bytes, bps_push_of(task)->slice, index);
}

/* For a group its sum is pushed, in which the scales of its members are already. */
static bps_status make(struct bps_task *task, uint32_t index, struct bps_header *header, const void **payload,
                       struct bps_report *report)
{
    (void)report;
    if (task->for_group) {
        header->prescale = task->divisor;
    }
    *payload = bps_task_payload(task, index * bps_push_of(task)->slice);
    return BPS_OK;
}

static bps_status expect(struct bps_task *task, uint32_t index, uint32_t bytes)
{
    return bytes == slice_bytes(task, index) ? BPS_OK : BPS_ERR_PROTOCOL;
}

static char *place(struct bps_task *task, uint32_t index)
{
    return bps_task_place(task, index * bps_push_of(task)->slice);
}

const struct bps_payload_ops bps_payload_plain = {.bytes = slice_bytes, .make = make, .expect = expect, .place = place};
