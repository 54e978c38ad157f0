/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local_lend.c - the step of a worker that does not lead a partition: it lends its contribution to the leader, and
 * waits for the result, wherever that comes from.
 */
#include <string.h>

#include "base/assert.h"
#include "group/local.h"
#include "shards/shards.h"
#include "wire/sink.h"

struct lend {
    uint8_t header[BPS_HEADER_BYTES];
    bool sent, received;
    uint32_t outstanding; /* frames that the transport still reads, or is filling */
};

/* It is over when the result is there and the transport has let go of the contribution. */
static void lend_check(struct bps_task *task)
{
    const struct lend *lend = bps_task_context(task);
    if (lend->outstanding == 0 && (task->failed || lend->received)) {
        bps_task_done(task, BPS_OK, NULL);
    }
}

/* ---- contributing ---- */

static bool lend_start(struct bps_task *task)
{
    struct bps_worker *worker = task->tensor->worker;
    struct bps_local_peer *leader = bps_local_leader_of(task->tensor, task->partition);
    struct lend *lend = bps_task_context(task);
    struct bps_header header;
    bps_assert(lend->outstanding == 0 || leader->link == NULL);
    *lend = (struct lend){.sent = false};
    if (worker->local->dropped) {
        return false; /* it ends with the job */
    }
    if (leader->link == NULL) {
        bps_local_leader_left(task);
        return false;
    }
    if (!bps_local_announce(leader, task->tensor->operation.group)) {
        return false;
    }
    bps_local_push_header(task, 0, &header);
    bps_header_encode(&header, lend->header);
    bps_local_enqueue(leader, task, &task->place);
    return false;
}

static void lend_frame(struct bps_task *task, struct bps_local_peer *peer, struct bps_frame *out)
{
    struct lend *lend = bps_task_context(task);
    bool answered = task->bytes > 0 && bps_local_gets(task);
    (void)peer;
    lend->sent = true;
    lend->outstanding++;
    *out = (struct bps_frame){
        .header = lend->header,
        .payload = task->src,
        .bytes = task->bytes,
        .cookie = task,
        .answer = answered ? task->dst : NULL,
        .lends = task->bytes > 0 && !answered,
        .hints = bps_brings(&task->roles, task->tensor->worker->job.rank) ? 0 : BPS_HINT_BLANK,
    };
}

static void lend_sent(struct bps_task *task, struct bps_local_peer *peer)
{
    struct lend *lend = bps_task_context(task);
    (void)peer;
    bps_assert(lend->outstanding > 0);
    lend->outstanding--;
    lend_check(task);
}

static void lend_cancel(struct bps_task *task)
{
    bps_heap_remove(&bps_local_leader_of(task->tensor, task->partition)->pushes, &task->place);
    lend_check(task);
}

static void lend_left(struct bps_task *task, uint32_t rank)
{
    if (bps_local_leader_of(task->tensor, task->partition)->rank == rank) {
        bps_local_leader_left(task);
    }
}

static bool lend_refuse(struct bps_tensor_entry *tensor, uint32_t partition, uint64_t bytes, bps_status status,
                        const char *text, bool answer)
{
    struct bps_local_peer *leader = bps_local_leader_of(tensor, partition);
    const struct bps_header header = bps_poison_header(tensor, partition, bytes, status, answer ? BPS_FLAG_ANSWER : 0);
    if (leader->link == NULL) {
        return false; /* it has left, and ends no round any more */
    }
    if (bps_local_announce(leader, tensor->operation.group)) {
        bps_link_send(leader->link, &header, text, strnlen(text, BPS_TEXT_LIMIT));
    }
    return true;
}

const struct bps_local_step bps_local_lend = {
    .ops =
        {
            .name = "lend",
            .takes = "partitions that others lead",
            .crosses = true,
            .until = BPS_NODE_LOCAL_BROADCAST,
            .context = sizeof(struct lend),
            .probe = bps_local_sums,
            .start = lend_start,
            .cancel = lend_cancel,
            .left = lend_left,
            .refuse = lend_refuse,
        },
    .frame = lend_frame,
    .sent = lend_sent,
};

/* ---- the result ---- */

static void *lend_result_place(struct bps_sink *sink, uint32_t offset, uint32_t *bytes)
{
    const struct bps_local_peer *peer = bps_container(sink, struct bps_local_peer, result);
    *bytes = peer->task->bytes - offset;
    return peer->task->dst + offset;
}

static void receive(struct bps_task *task)
{
    struct lend *lend = bps_task_context(task);
    lend->received = true;
    lend_check(task);
}

static uint32_t lend_result_take(struct bps_sink *sink, uint32_t offset, const void *data, uint32_t bytes)
{
    struct bps_task *task = bps_container(sink, struct bps_local_peer, result)->task;
    struct lend *lend = bps_task_context(task);
    char *place = task->dst + offset;
    if (data != place) {
        memcpy(place, data, bytes);
    }
    if (offset + bytes == task->bytes) {
        bps_assert(lend->outstanding > 0);
        lend->outstanding--;
        receive(task);
    }
    return bytes;
}

bps_status bps_local_result(struct bps_local_peer *peer, const struct bps_header *header, struct bps_sink **sink)
{
    struct bps_worker *worker = peer->local->worker;
    struct bps_task *task = bps_task_find(worker, header);
    if (task == NULL && bps_task_is_late(worker, header)) {
        bps_sink_discard(&peer->result);
        *sink = &peer->result;
        return BPS_OK;
    }
    bool here = task != NULL && !task->refused && bps_task_step(task) == &bps_local_lend.ops;
    struct lend *lend = here ? bps_task_context(task) : NULL;
    if (lend == NULL || !lend->sent || lend->received || header->offset != 0 ||
        bps_local_leader_of(task->tensor, task->partition) != peer ||
        (header->length != 0 && (header->length != task->bytes || !bps_local_gets(task)))) {
        return BPS_ERR_PROTOCOL;
    }
    if (header->length == 0) { /* empty, or in its place already */
        receive(task);
        return BPS_OK;
    }
    lend->outstanding++;
    peer->task = task;
    peer->result = (struct bps_sink){.place = lend_result_place, .take = lend_result_take};
    *sink = &peer->result;
    return BPS_OK;
}
