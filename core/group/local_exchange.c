/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local_exchange.c - small tensors go from every worker of the group to all others, and everybody sums for
 * himself.
 *
 * Whether a tensor is small all must answer alike: so what counts is the size of the job's declaration. Who
 * cannot go on with a round tells the leader, who passes on to all what it hears, so that all end with the
 * same words; of what everybody sees for himself nobody has to be told (sum/exchange.h).
 */
#include <string.h>

#include "flow/step.h"
#include "group/local.h"
#include "wire/sink.h"

/* With more bytes to all others together the copies cost what one way less saves. */
bool bps_local_exchanges(const struct bps_tensor_entry *tensor)
{
    const struct bps_worker *worker = tensor->worker;
    const struct bps_local *local = worker->local;
    return local != NULL && local->exchange != NULL && !tensor->unnamed &&
           tensor->job.bytes <= worker->partition &&
           tensor->job.bytes <= BPS_EXCHANGE_BYTES / (local->size - 1);
}

static uint32_t bit_of(const struct bps_local_peer *peer)
{
    return 1u << (peer - peer->local->peer);
}

/* ---- our contribution ---- */

/* Receivers of a broadcast only say what they want. */
static uint32_t payload_of(const struct bps_task *task)
{
    const struct bps_operation *operation = &task->tensor->operation;
    bool receiver = operation->op == BPS_WIRE_BROADCAST && operation->root != task->tensor->worker->rank;
    return receiver ? 0 : task->bytes;
}

/* A frame of the task is out, or will not be sent. */
static void let_go(struct bps_task *task, const struct bps_local_peer *peer)
{
    task->owed &= ~bit_of(peer);
    if (task->owed == 0) {
        task->held = 0;
        task->state = BPS_TASK_AWAITED;
    }
}

/* All frames are out: the sum may overwrite what they came from. */
static void check(struct bps_task *task)
{
    if (task->owed == 0 && task->failed) {
        bps_task_done(task, BPS_OK, NULL);
    } else if (task->owed == 0) {
        bps_exchange_ready(task->exchange);
    }
}

static void send_to_all(struct bps_task *task)
{
    struct bps_worker *worker = task->tensor->worker;
    struct bps_local *local = worker->local;
    int32_t priority = task->tensor->operation.request.priority;
    task->state = BPS_TASK_QUEUED;
    for (uint32_t place = 0; place < local->size; place++) {
        struct bps_local_peer *peer = &local->peer[place];
        if (place == local->place || peer->link == NULL) {
            continue;
        }
        if (!bps_heap_push(&peer->pushes, priority, worker->sequence++, task)) {
            bps_worker_fail(worker, BPS_ERR_NOMEM, "out of memory");
            return;
        }
        task->owed |= bit_of(peer);
        task->held = 1;
        bps_local_kick(peer);
    }
    check(task);
}

void bps_local_exchange(struct bps_task *task, struct bps_header *header)
{
    struct bps_worker *worker = task->tensor->worker;
    struct bps_local *local = worker->local;
    char text[160];
    task->state = BPS_TASK_AWAITED;
    task->owed = 0;
    if (local->dropped) {
        return; /* it ends with the job */
    }
    header->flags |= BPS_FLAG_EXCHANGE;
    header->length = payload_of(task);
    bps_header_encode(header, task->header[0]);
    bps_status status = bps_exchange_enter(local->exchange, header, &task->exchange);
    if (status == BPS_OK && task->exchange == NULL) {
        return; /* the round has failed, and with it the task */
    }
    if (status == BPS_OK) {
        status = bps_exchange_contribute(task->exchange, task->src, task->dst, task);
    }
    if (status == BPS_ERR_UNSUPPORTED) {
        snprintf(text, sizeof text, "worker %u's reducer '%s' has no %s of %s", worker->rank,
                 worker->reducer->name, bps_op_name(header->op), bps_dtype_name(header->dtype));
        bps_tensor_refuse(task->tensor, task->partition, header->bytes, status, text, true);
    } else if (status != BPS_OK) {
        bps_worker_fail(worker, status, "could not contribute to the sum of this host");
    } else {
        send_to_all(task);
    }
}

void bps_local_exchange_frame(struct bps_task *task, struct bps_frame *out)
{
    *out = (struct bps_frame){
        .header = task->header[0],
        .payload = task->src,
        .bytes = payload_of(task),
        .cookie = task,
    };
}

bool bps_local_exchange_sent(struct bps_local_peer *peer, struct bps_task *task)
{
    if ((task->owed & bit_of(peer)) == 0) {
        return false;
    }
    let_go(task, peer);
    check(task);
    return true;
}

void bps_local_exchange_unqueue(struct bps_task *task)
{
    struct bps_local *local = task->tensor->worker->local;
    for (uint32_t place = 0; place < local->size; place++) {
        struct bps_local_peer *peer = &local->peer[place];
        if ((task->owed & bit_of(peer)) != 0 && bps_heap_remove(&peer->pushes, task)) {
            let_go(task, peer);
        }
    }
}

/* A task with a frame for this peer. */
static struct bps_task *find_owing(const struct bps_local_peer *peer)
{
    struct bps_operation *operation;
    TAILQ_FOREACH(operation, &peer->local->worker->operations, entry) {
        struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
        if (operation->begun && tensor->tasks > 0 && bps_local_exchanges(tensor) &&
            (tensor->task[0].owed & bit_of(peer)) != 0) {
            return &tensor->task[0];
        }
    }
    return NULL;
}

void bps_local_exchange_left(struct bps_local_peer *peer)
{
    struct bps_task *task;
    while ((task = find_owing(peer)) != NULL) {
        bps_local_exchange_sent(peer, task);
    }
}

/* ---- those of others ---- */

static void *contribution_place(struct bps_sink *sink, uint32_t offset, uint32_t *bytes)
{
    return bps_exchange_place(&bps_container(sink, struct bps_local_peer, contribution)->exchange, offset,
                              bytes);
}

static uint32_t contribution_take(struct bps_sink *sink, uint32_t offset, const void *data, uint32_t bytes)
{
    return bps_exchange_take(&bps_container(sink, struct bps_local_peer, contribution)->exchange, offset,
                             data, bytes);
}

bps_status bps_local_exchanged(struct bps_local_peer *peer, const struct bps_header *header,
                               struct bps_sink **sink)
{
    struct bps_local *local = peer->local;
    *sink = &peer->contribution;
    if (local->exchange == NULL) {
        return BPS_ERR_PROTOCOL;
    }
    if (local->dropped) {
        bps_sink_discard(&peer->contribution);
        return BPS_OK;
    }
    peer->contribution = (struct bps_sink){.place = contribution_place, .take = contribution_take};
    return bps_exchange_push(local->exchange, peer->rank, header, &peer->exchange);
}

/* ---- words ---- */

/* Whoever has left has had a sum of all, so it is only we who wait; there is nobody to be told. */
static void speak(struct bps_local_peer *leader, const struct bps_header *header, const char *text)
{
    struct bps_local *local = leader->local;
    struct bps_header poison = *header;
    poison.flags = BPS_FLAG_EXCHANGE;
    if (leader->rank == local->worker->rank) {
        bps_exchange_poison(local->exchange, &poison, text);
    } else if (leader->link == NULL || leader->left) {
        bps_exchange_fail(local->exchange, &poison, text);
    } else {
        bps_link_send(leader->link, &poison, text, strnlen(text, BPS_TEXT_LIMIT));
    }
}

void bps_local_exchange_poison(struct bps_local_peer *leader, const struct bps_header *header,
                               const char *text)
{
    struct bps_exchange_round *round;
    bps_status status = bps_exchange_enter(leader->local->exchange, header, &round);
    if (status != BPS_OK) {
        bps_worker_fail(leader->local->worker, status, "could not fail the sum of this host");
    } else if (round != NULL) {
        speak(leader, header, text);
    }
}

bps_status bps_local_exchange_word(struct bps_local *local, const struct bps_header *header, const char *text)
{
    bool known = header->type == BPS_FRAME_POISON || header->type == BPS_FRAME_FAILED;
    if (local->exchange == NULL || !known || header->epoch != local->worker->book->epoch) {
        return BPS_ERR_PROTOCOL;
    }
    if (local->dropped) {
        return BPS_OK;
    }
    return header->type == BPS_FRAME_POISON ? bps_exchange_poison(local->exchange, header, text)
                                            : bps_exchange_fail(local->exchange, header, text);
}

/* ---- events ---- */

static void on_done(void *owner, void *task)
{
    (void)owner;
    bps_task_done(task, BPS_OK, NULL);
}

/* If we have told it ourselves, and do not wait, there is no task any more. */
static void on_notice(void *owner, const struct bps_header *header, const char *text)
{
    struct bps_local *local = owner;
    const struct bps_task *task = local->dropped ? NULL : bps_task_find(local->worker, header);
    if (task != NULL && header->type == BPS_FRAME_POISON) {
        speak(bps_local_leader_of(task->tensor, task->partition), header, text);
    } else if (task != NULL) {
        bps_round_notice(local->worker, header, text);
    }
}

static void tell(struct bps_local_peer *peer, const struct bps_header *header, const char *text)
{
    if (peer->link != NULL) {
        bps_link_send(peer->link, header, text, strnlen(text, BPS_TEXT_LIMIT));
    }
}

/* Others may have joined, and have begun, while we still wait for the link to one of them. */
static void on_poisoned(void *owner, const struct bps_header *header, const char *text)
{
    struct bps_local *local = owner;
    for (uint32_t place = 0; place < local->size; place++) {
        struct bps_local_peer *peer = &local->peer[place];
        if (place != local->place && peer->reached) {
            tell(peer, header, text);
        } else if (place != local->place) {
            bps_local_keep(local, &peer->words, header, text);
        }
    }
}

void bps_local_exchange_reached(struct bps_local_peer *peer)
{
    const struct bps_unsent *unsent;
    STAILQ_FOREACH(unsent, &peer->words, entry) {
        tell(peer, &unsent->header, unsent->text);
    }
    bps_local_forget(&peer->words);
}

static const struct bps_exchange_events events = {
    .done = on_done,
    .notice = on_notice,
    .poisoned = on_poisoned,
};

bps_status bps_local_exchange_open(struct bps_local *local)
{
    const struct bps_worker *worker = local->worker;
    const struct bps_exchange_config config = {
        .workers = local->size,
        .rank = worker->rank,
        .epoch = worker->book->epoch,
        .reducer = worker->reducer,
        .events = &events,
        .owner = local,
    };
    if (!local->final || local->size > BPS_EXCHANGE_WORKERS) {
        return BPS_OK;
    }
    local->exchange = bps_exchange_new(&config);
    return local->exchange != NULL ? BPS_OK : BPS_ERR_NOMEM;
}
