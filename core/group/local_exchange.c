/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local_exchange.c - the step of small tensors: they go from every worker of the group to all others, and
 * everybody sums for himself.
 *
 * Whether a tensor is small all must answer alike: so what counts is the size of the job's declaration. Who
 * cannot go on with a round tells the leader, who passes on to all what it hears, so that all end with the
 * same words; of what everybody sees for himself nobody has to be told (sum/exchange.h).
 */
#include <string.h>

#include "base/assert.h"
#include "base/report.h"
#include "flow/step.h"
#include "group/local.h"
#include "shards/shards.h"

_Static_assert(BPS_EXCHANGE_WORKERS <= BPS_LEADERS_LIMIT, "everybody has a link to everybody");

struct exchange {
    uint8_t header[BPS_HEADER_BYTES];
    struct bps_exchange_round *round;
    uint32_t owed; /* places of the group to which it is still to be sent, a bit each; and in each one's queue: */
    size_t place[BPS_EXCHANGE_WORKERS];
};

/* With more bytes to all others together the copies cost what one way less saves. */
static bool probe(const struct bps_tensor_entry *tensor, uint32_t partition)
{
    const struct bps_worker *worker = tensor->worker;
    const struct bps_local *local = worker->local;
    return bps_local_sums(tensor, partition) && local->exchanges && !tensor->named.unnamed && tensor->placed.n == 1 &&
           tensor->job.bytes <= BPS_EXCHANGE_BYTES / (local->size - 1);
}

static uint32_t bit_of(const struct bps_local_peer *peer)
{
    return 1u << (peer - peer->local->peer);
}

/* ---- our contribution ---- */

/* Who brings nothing only says what it wants. */
static uint32_t payload_of(const struct bps_task *task)
{
    const struct bps_operation *operation = &task->tensor->operation;
    return bps_brings(&operation->roles, task->tensor->worker->job.rank) ? task->bytes : 0;
}

/* All frames are out: the sum may overwrite what they came from. */
static void local_exchange_check(struct bps_task *task)
{
    const struct exchange *exchange = bps_task_context(task);
    if (exchange->owed == 0 && task->failed) {
        bps_task_done(task, BPS_OK, NULL);
    } else if (exchange->owed == 0) {
        bps_exchange_ready(exchange->round);
    }
}

static void local_exchange_send_to_all(struct bps_task *task)
{
    struct bps_local *local = task->tensor->worker->local;
    struct exchange *exchange = bps_task_context(task);
    for (uint32_t place = 0; place < local->size; place++) {
        struct bps_local_peer *peer = &local->peer[place];
        if (place == local->place || peer->link == NULL) {
            continue;
        }
        exchange->owed |= bit_of(peer);
        if (!bps_local_enqueue(peer, task, &exchange->place[place])) {
            return;
        }
    }
    local_exchange_check(task);
}

/* This worker's reducer cannot do it: so nobody's does. */
static void local_exchange_decline(struct bps_task *task, bps_status status, const char *why)
{
    const struct bps_tensor_entry *tensor = task->tensor;
    struct bps_report text;
    bps_fail(&text, status, "worker %u's %s", tensor->worker->job.rank, why);
    bps_tensor_refuse(task->tensor, task->partition, tensor->operation.bytes, status, text.text, true);
}

static bool local_exchange_start(struct bps_task *task)
{
    struct bps_worker *worker = task->tensor->worker;
    struct bps_local *local = worker->local;
    struct exchange *exchange = bps_task_context(task);
    struct bps_header header;
    struct bps_report report;
    bps_assert(exchange->owed == 0);
    exchange->round = NULL;
    if (local->dropped) {
        return false; /* it ends with the job */
    }
    bps_local_push_header(task, BPS_FLAG_EXCHANGE, &header);
    header.length = payload_of(task);
    bps_header_encode(&header, exchange->header);
    struct bps_contribution own;
    bps_status status = bps_frame_contribution(&header, &own);
    if (status == BPS_OK) {
        status = bps_exchange_enter(local->all.sum, &own, &exchange->round);
    }
    if (status == BPS_OK && exchange->round == NULL) {
        return false; /* the round has failed, and with it the task */
    }
    if (status != BPS_OK) {
        bps_worker_fail(worker, status, "could not contribute to the sum of this host");
        return false;
    }
    status = bps_exchange_contribute(exchange->round, task->src, task->dst, task, &report);
    if (status == BPS_OK) {
        local_exchange_send_to_all(task);
    } else {
        local_exchange_decline(task, status, report.text);
    }
    return false;
}

static void local_exchange_frame(struct bps_task *task, struct bps_local_peer *peer, struct bps_frame *out)
{
    struct exchange *exchange = bps_task_context(task);
    (void)peer;
    *out = (struct bps_frame){
        .header = exchange->header,
        .payload = task->src,
        .bytes = payload_of(task),
        .cookie = task,
    };
}

static void local_exchange_sent(struct bps_task *task, struct bps_local_peer *peer)
{
    struct exchange *exchange = bps_task_context(task);
    bps_assert((exchange->owed & bit_of(peer)) != 0);
    exchange->owed &= ~bit_of(peer);
    local_exchange_check(task);
}

static void local_exchange_cancel(struct bps_task *task)
{
    struct bps_local *local = task->tensor->worker->local;
    struct exchange *exchange = bps_task_context(task);
    for (uint32_t place = 0; place < local->size; place++) {
        struct bps_local_peer *peer = &local->peer[place];
        if ((exchange->owed & bit_of(peer)) != 0 && bps_heap_remove(&peer->pushes, &exchange->place[place])) {
            exchange->owed &= ~bit_of(peer);
        }
    }
    if (exchange->owed == 0) {
        bps_task_done(task, BPS_OK, NULL);
    }
}

/* What was for it is out. */
static void local_exchange_left(struct bps_task *task, uint32_t rank)
{
    const struct exchange *exchange = task->refused ? NULL : bps_task_context(task);
    struct bps_local_peer *peer = bps_local_peer_of(task->tensor->worker->local, rank);
    if (exchange != NULL && (exchange->owed & bit_of(peer)) != 0) {
        local_exchange_sent(task, peer);
    }
}

/* ---- words ---- */

/* Whoever has left has had a sum of all, so it is only we who wait; there is nobody to be told. */
static void local_exchange_speak(const struct bps_tensor_entry *tensor, const struct bps_notice *poison)
{
    struct bps_local *local = tensor->worker->local;
    struct bps_local_peer *leader = bps_local_leader_of(tensor, poison->id.partition);
    if (leader->rank == local->worker->job.rank) {
        bps_sum_poison(local->all.sum, leader->rank, poison);
    } else if (leader->link == NULL || leader->left) {
        bps_sum_fail(local->all.sum, poison);
    } else {
        struct bps_header header = bps_notice_header(poison, local->worker->job.epoch, 0);
        header.view = bps_tensor_view(tensor);
        bps_link_send(leader->link, &header, poison->text, strnlen(poison->text, BPS_TEXT_LIMIT));
    }
}

/* If we have told it ourselves, and do not wait, there is no task any more. */
void bps_local_exchange_poison(struct bps_local *local, const struct bps_notice *poison)
{
    const struct bps_header header = bps_notice_header(poison, local->worker->job.epoch, 0);
    const struct bps_task *task = bps_task_find(local->worker, &header);
    if (task != NULL) {
        local_exchange_speak(task->tensor, poison);
    }
}

static bool local_exchange_refuse(struct bps_tensor_entry *tensor, uint32_t partition, uint64_t bytes,
                                  bps_status status, const char *text, bool answer)
{
    const struct bps_round_id id = {tensor->id, partition, tensor->round, BPS_KEY_EXCHANGE};
    const struct bps_contribution own = {.id = id, .spec.bytes = bytes};
    const struct bps_notice poison = {
        .kind = BPS_NOTICE_POISON, .id = id, .bytes = bytes, .status = status, .text = text, .answer = answer};
    struct bps_exchange_round *round;
    bps_status entered = bps_exchange_enter(tensor->worker->local->all.sum, &own, &round);
    if (entered != BPS_OK) {
        bps_worker_fail(tensor->worker, entered, "could not fail the sum of this host");
    } else if (round != NULL) {
        local_exchange_speak(tensor, &poison);
    }
    return true;
}

const struct bps_local_step bps_local_exchange = {
    .ops =
        {
            .name = "exchange",
            .takes = "small tensors, where this host is the job",
            .crosses = true,
            .until = BPS_NODE_LOCAL_BROADCAST,
            .context = sizeof(struct exchange),
            .probe = probe,
            .start = local_exchange_start,
            .cancel = local_exchange_cancel,
            .left = local_exchange_left,
            .refuse = local_exchange_refuse,
        },
    .frame = local_exchange_frame,
    .sent = local_exchange_sent,
};

void bps_local_exchanged(void *owner, void *task)
{
    (void)owner;
    bps_task_done(task, BPS_OK, NULL);
}
