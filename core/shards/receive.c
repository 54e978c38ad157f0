/* SPDX-License-Identifier: Apache-2.0 */
/* receive.c - results straight into the caller's memory, and the words of the servers. */
#include <string.h>

#include "flow/traced.h"
#include "shards/shards.h"
#include "wire/sink.h"

/* ---- results ---- */

/* Whether a task that waits does so for a shard. */
static bool is_pushed(const struct bps_task *task)
{
    return !task->refused && bps_task_on(task)->node->kind == BPS_NODE_PUSH_PULL;
}

/* Where the slice that arrives goes. */
static char *place_of(const struct bps_remote_lane *lane)
{
    return bps_push_of(lane->task)->payload->place(lane->task, lane->index);
}

static void *result_place(struct bps_sink *sink, uint32_t offset, uint32_t *bytes)
{
    const struct bps_remote_lane *lane = bps_container(sink, struct bps_remote_lane, sink);
    *bytes = lane->length - offset;
    return place_of(lane) + offset;
}

static uint32_t result_take(struct bps_sink *sink, uint32_t offset, const void *data, uint32_t bytes)
{
    struct bps_remote_lane *lane = bps_container(sink, struct bps_remote_lane, sink);
    char *place = place_of(lane) + offset;
    if (data != place) {
        memcpy(place, data, bytes);
    }
    if (offset + bytes == lane->length) {
        bps_remote_placed(lane->task, lane->index);
    }
    return bytes;
}

static void *result_open(struct bps_sink *sink, void **ticket)
{
    struct bps_remote_lane *lane = bps_container(sink, struct bps_remote_lane, sink);
    for (uint32_t i = 0; i < BPS_PLACES_LIMIT; i++) {
        if (lane->open[i].task == NULL) {
            lane->open[i] = (struct bps_open_slice){lane->task, lane->index};
            *ticket = &lane->open[i];
            return place_of(lane);
        }
    }
    return NULL;
}

/* To a device, by a transport that does not open a place there as it has promised: that ends the link. */
static uint32_t refuse_take(struct bps_sink *sink, uint32_t offset, const void *data, uint32_t bytes)
{
    (void)sink;
    (void)offset;
    (void)data;
    (void)bytes;
    return 0;
}

void bps_receive_placed(void *owner, struct bps_link *link, void *ticket)
{
    struct bps_open_slice *slice = ticket;
    struct bps_task *task = slice->task;
    (void)owner;
    (void)link;
    slice->task = NULL;
    bps_remote_placed(task, slice->index);
}

bps_status bps_receive_slice(void *owner, struct bps_link *link, const struct bps_header *header,
                             struct bps_sink **sink)
{
    struct bps_remote_lane *lane = owner;
    struct bps_worker *worker = lane->remote->worker;
    (void)link;
    bps_flow_settle(worker);
    struct bps_task *task = bps_task_find(worker, header);
    if (header->type != BPS_FRAME_RESULT || header->epoch != worker->job.epoch) {
        return BPS_ERR_PROTOCOL;
    }
    if (header->tensor >= BPS_ID_UNNAMED && header->group == 0) {
        bps_kept_release(&worker->shards->kept, bps_unnamed_kind(header->tensor), header->round & BPS_ID_NUMBER);
    }
    if (task == NULL && bps_task_is_late(worker, header)) {
        bps_sink_discard(&lane->sink);
        *sink = &lane->sink;
        return BPS_OK;
    }
    if (task == NULL || !is_pushed(task)) {
        return BPS_ERR_PROTOCOL;
    }
    struct bps_push *push = bps_push_of(task);
    if (header->offset % push->slice != 0 || (header->offset >= task->bytes && header->offset > 0)) {
        return BPS_ERR_PROTOCOL;
    }
    const struct bps_roles *roles = &task->roles;
    bool root = !bps_sums(roles) && bps_tensor_speaks_for(task->tensor, roles->from);
    bool other = bps_sums(roles) && !bps_gets(roles, worker->job.rank);
    bool alone = (root && push->copy == NULL) || other; /* it has the result, or it is another one's */
    uint32_t index = header->offset / push->slice;
    bool answers = bps_sums(roles) || root ? index < push->sent : push->sent > 0;
    if (!answers || push->got[index] || (alone && header->length > 0)) {
        return BPS_ERR_PROTOCOL;
    }
    push->answer = header->flags;
    bps_status status = alone ? BPS_OK : push->payload->expect(task, index, header->length);
    if (status != BPS_OK) {
        return status;
    }
    if (push->kept != NULL) {
        push->kept->now.slice[index].bytes = header->length;
    }
    bps_traced_slice(task, BPS_TRACE_RESULT, lane->remote->index, header->offset, header->length, false);
    if (header->length == 0) {
        bps_remote_answered(task, index);
        return BPS_OK;
    }
    push->outstanding++;
    lane->task = task;
    lane->index = index;
    lane->length = header->length;
    lane->sink = (struct bps_sink){.place = result_place, .take = result_take, .open = result_open};
    if (header->offset < task->direct) {
        bps_sink_discard(&lane->sink);
        lane->sink.open = result_open;
        lane->sink.take = refuse_take;
    }
    *sink = &lane->sink;
    return BPS_OK;
}

/* ---- messages ---- */

bps_status bps_receive_message(void *owner, struct bps_link *link, const struct bps_header *header,
                               struct bps_reader *payload)
{
    struct bps_remote_lane *lane = owner;
    struct bps_worker *worker = lane->remote->worker;
    char text[BPS_TEXT_LIMIT + 1];
    (void)link;
    if (header->type == BPS_FRAME_FEEDBACK && header->epoch == worker->job.epoch) {
        return worker->shards->feedback(worker, header, payload);
    }
    if (header->type == BPS_FRAME_WANT && header->epoch == worker->job.epoch) {
        bool keeps = (header->flags & BPS_FLAG_KEEPS) != 0;
        return keeps ? bps_value_copy_wanted(lane->remote, header) : bps_remote_wanted(lane->remote, header);
    }
    if ((header->type != BPS_FRAME_FAILED && header->type != BPS_FRAME_STALLED) || header->epoch != worker->job.epoch) {
        return BPS_ERR_PROTOCOL;
    }
    bps_get_text(payload, text, sizeof text);
    bool failed = header->type == BPS_FRAME_FAILED && header->group == 0; /* that others may have to know */
    if (failed) {
        bps_remote_failed(lane->remote, header, text);
    }
    return failed && worker->hooks != NULL ? worker->hooks->failed(worker, header, text)
                                           : bps_round_notice(worker, header, text);
}
