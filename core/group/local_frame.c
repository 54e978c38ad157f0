/* SPDX-License-Identifier: Apache-2.0 */
/* local_frame.c - the frames between workers of one host: which step sends the next one, and whom they are for. */
#include "group/local.h"

#include "base/assert.h"

/* ---- sending ---- */

bps_status bps_local_next(void *owner, struct bps_link *link, struct bps_frame *out)
{
    struct bps_local_peer *peer = owner;
    (void)link;
    bps_status status = bps_local_next_result(peer, out); /* others wait for it */
    struct bps_task *task = status == BPS_AGAIN ? bps_heap_pop(&peer->pushes) : NULL;
    if (task != NULL) {
        bps_local_step_of(task)->frame(task, peer, out);
        status = BPS_OK;
    }
    return status;
}

void bps_local_sent(void *owner, struct bps_link *link, void *cookie)
{
    struct bps_local_peer *peer = owner;
    (void)link;
    if (!bps_local_result_sent(peer, cookie)) {
        struct bps_task *task = cookie;
        bps_local_step_of(task)->sent(task, peer);
    }
}

/* ---- receiving ---- */

bps_status bps_local_slice(void *owner, struct bps_link *link, const struct bps_header *header, struct bps_sink **sink)
{
    struct bps_local_peer *peer = owner;
    (void)link;
    bps_flow_settle(peer->local->worker);
    bps_check(bps_local_check(peer->local));
    if (header->epoch != peer->local->worker->job.epoch) {
        return BPS_ERR_PROTOCOL;
    }
    if (header->type == BPS_FRAME_RESULT) {
        return bps_local_result(peer, header, sink);
    }
    return bps_local_contribution(peer, header, sink);
}

/* True unless the frame is about a partition of this worker's that another one leads. */
static bool may_judge(const struct bps_local_peer *peer, const struct bps_header *header)
{
    const struct bps_task *task = bps_task_find(peer->local->worker, header);
    return task == NULL || bps_local_leader_of(task->tensor, task->partition) == peer;
}

/* POISON, FAILED, STALLED: of a round that is exchanged it is for the engine, else a leader's verdict is for us. */
static bps_status hear(struct bps_local_peer *peer, const struct bps_header *header, const char *text)
{
    struct bps_local *local = peer->local;
    if (header->epoch != local->worker->job.epoch) {
        return BPS_ERR_PROTOCOL;
    }
    if (header->type == BPS_FRAME_POISON) {
        struct bps_sum *sum = bps_local_engine(local, header->group);
        bps_status known = sum != NULL ? BPS_OK : BPS_ERR_PROTOCOL;
        return local->dropped ? BPS_OK : known != BPS_OK ? known : bps_frame_poison(sum, peer->rank, header, text);
    }
    if ((header->flags & BPS_FLAG_EXCHANGE) != 0) {
        return local->dropped ? BPS_OK : bps_local_fail(local, header, text);
    }
    return may_judge(peer, header) ? bps_round_notice(local->worker, header, text) : BPS_ERR_PROTOCOL;
}

bps_status bps_local_message(void *owner, struct bps_link *link, const struct bps_header *header,
                             struct bps_reader *payload)
{
    struct bps_local_peer *peer = owner;
    (void)link;
    struct bps_local *local = peer->local;
    char text[BPS_TEXT_LIMIT + 1];
    bool exchanged = (header->flags & BPS_FLAG_EXCHANGE) != 0;
    bps_flow_settle(local->worker);
    bps_check(bps_local_check(local));
    if (exchanged && header->type != BPS_FRAME_POISON && header->type != BPS_FRAME_FAILED) {
        return BPS_ERR_PROTOCOL;
    }
    switch (header->type) {
    case BPS_FRAME_LEAVE:
        peer->left = true;
        if (!local->dropped) {
            bps_local_each_engine(local, bps_sum_leave, peer->rank);
            local->device_ops->left(peer);
        }
        return BPS_OK;
    case BPS_FRAME_RETURNED:
        return BPS_OK; /* the loan was all */
    case BPS_FRAME_POISON:
    case BPS_FRAME_FAILED:
    case BPS_FRAME_STALLED:
        bps_get_text(payload, text, sizeof text);
        return hear(peer, header, text);
    case BPS_FRAME_GROUP:
        return bps_local_announced(local, peer->rank, header, payload);
    case BPS_FRAME_FEEDBACK:
        return bps_local_handed(peer, header, payload);
    default:
        return header->type >= BPS_FRAME_READY ? local->device_ops->message(peer, header, payload) : BPS_ERR_PROTOCOL;
    }
}
