/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local_stage.c - the stage local_reduce, and the way of a worker that does not lead: it lends its
 * contribution to the leader of the partition and waits for the result, wherever that comes from.
 */
#include <string.h>

#include "group/local.h"
#include "shards/shards.h"
#include "wire/sink.h"

/* ---- what is summed here, and who leads ---- */

/*
 * True if the group sums this tensor. In a job of several groups it does not sum unnamed tensors, whose type is not
 * agreed upon beforehand, and some types (bps_local_types()): each worker pushes these itself.
 */
static bool takes(const struct bps_tensor_entry *tensor)
{
    const struct bps_local *local = tensor->worker->local;
    if (!bps_local_is_grouped(local)) {
        return false;
    }
    return local->final || (!tensor->unnamed && (local->types & BPS_DTYPE_BIT(tensor->job.dtype)) != 0);
}

uint32_t bps_local_divisor(const struct bps_operation *operation)
{
    const struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    return bps_group_divisor(operation->op, operation->request.dtype, tensor->worker->local->size);
}

struct bps_local_peer *bps_local_leader_of(const struct bps_tensor_entry *tensor, uint32_t partition)
{
    struct bps_local *local = tensor->worker->local;
    uint64_t place =
        tensor->unnamed ? ((uint64_t)tensor->id + partition) % local->size : tensor->lead[partition];
    return &local->peer[place];
}

static bool is_self(const struct bps_local_peer *peer)
{
    return peer->rank == peer->local->worker->rank;
}

/* ---- leaders that have left ---- */

static void fail_left(struct bps_task *task, uint32_t rank)
{
    char text[80];
    snprintf(text, sizeof text, "worker %u has left the job", rank);
    task->held = 0;
    bps_task_done(task, BPS_ERR_LOST, text);
}

/* The first task that waits for this leader. */
static struct bps_task *find_waiting(const struct bps_local_peer *leader)
{
    const struct bps_worker *worker = leader->local->worker;
    struct bps_operation *operation;
    TAILQ_FOREACH(operation, &worker->operations, entry) {
        struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
        bool taken = operation->begun && takes(tensor) && !bps_local_exchanges(tensor);
        for (uint32_t i = 0; taken && i < tensor->tasks; i++) {
            struct bps_task *task = &tensor->task[i];
            if ((task->state == BPS_TASK_QUEUED || task->state == BPS_TASK_AWAITED) &&
                bps_local_leader_of(tensor, i) == leader) {
                return task;
            }
        }
    }
    return NULL;
}

void bps_local_left(struct bps_local_peer *peer)
{
    struct bps_task *task;
    bps_heap_fini(&peer->pushes);
    bps_local_exchange_left(peer);
    while ((task = find_waiting(peer)) != NULL) {
        fail_left(task, peer->rank);
    }
}

/* ---- contributing ---- */

static bool reduce(struct bps_task *task)
{
    struct bps_worker *worker = task->tensor->worker;
    if (task->grouped) {
        return true;
    }
    struct bps_local_peer *leader = bps_local_leader_of(task->tensor, task->partition);
    const struct bps_operation *operation = &task->tensor->operation;
    bool receiver = operation->op == BPS_WIRE_BROADCAST && operation->root != worker->rank;
    struct bps_header header;
    bps_push_header(task, 0, task->bytes, receiver ? BPS_FLAG_EMPTY : 0, &header);
    task->whole = worker->local->final || !is_self(leader);
    if (bps_local_exchanges(task->tensor)) {
        bps_local_exchange(task, &header);
        return false;
    }
    if (is_self(leader)) {
        bps_local_contribute(task, &header);
        return false;
    }
    if (leader->link == NULL && worker->local->dropped) {
        task->state = BPS_TASK_AWAITED; /* it ends with the job */
        return false;
    }
    if (leader->link == NULL) {
        fail_left(task, leader->rank);
        return false;
    }
    bps_header_encode(&header, task->header[0]);
    task->state = BPS_TASK_QUEUED;
    if (!bps_heap_push(&leader->pushes, operation->request.priority, worker->sequence++, task)) {
        bps_worker_fail(worker, BPS_ERR_NOMEM, "out of memory");
        return false;
    }
    bps_local_kick(leader);
    return false;
}

bps_status bps_local_next(struct bps_local_peer *peer, struct bps_frame *out)
{
    bps_status status = bps_local_next_result(peer, out); /* others wait for it */
    if (status != BPS_AGAIN) {
        return status;
    }
    struct bps_task *task = bps_heap_pop(&peer->pushes);
    if (task == NULL) {
        return BPS_AGAIN;
    }
    if (task->owed != 0) {
        bps_local_exchange_frame(task, out);
        return BPS_OK;
    }
    task->state = BPS_TASK_AWAITED;
    task->held++;
    *out = (struct bps_frame){
        .header = task->header[0],
        .payload = task->src,
        .bytes = task->bytes,
        .cookie = task,
        .answer = task->bytes > 0 ? task->dst : NULL,
    };
    return BPS_OK;
}

/* It is over when the result is there and the transport has let go of the contribution. */
static void check(struct bps_task *task)
{
    if (task->held == 0 && (task->failed || task->received > 0)) {
        bps_task_done(task, BPS_OK, NULL);
    }
}

static void cancel(struct bps_task *task)
{
    if (bps_local_exchanges(task->tensor)) {
        bps_local_exchange_unqueue(task);
    } else {
        bps_heap_remove(&bps_local_leader_of(task->tensor, task->partition)->pushes, task);
    }
    check(task);
}

void bps_local_sent(struct bps_local_peer *peer, void *cookie)
{
    if (!bps_local_result_sent(peer, cookie) && !bps_local_exchange_sent(peer, cookie)) {
        struct bps_task *task = cookie;
        task->held--;
        check(task);
    }
}

/* ---- the result ---- */

static void *result_place(struct bps_sink *sink, uint32_t offset, uint32_t *bytes)
{
    const struct bps_local_peer *peer = bps_container(sink, struct bps_local_peer, result);
    *bytes = peer->task->bytes - offset;
    return peer->task->dst + offset;
}

static uint32_t result_take(struct bps_sink *sink, uint32_t offset, const void *data, uint32_t bytes)
{
    struct bps_task *task = bps_container(sink, struct bps_local_peer, result)->task;
    char *place = task->dst + offset;
    if (data != place) {
        memcpy(place, data, bytes);
    }
    if (offset + bytes == task->bytes) {
        task->held--;
        task->received = 1;
        check(task);
    }
    return bytes;
}

bps_status bps_local_result(struct bps_local_peer *peer, const struct bps_header *header,
                            struct bps_sink **sink)
{
    struct bps_worker *worker = peer->local->worker;
    struct bps_task *task = bps_task_find(worker, header);
    if (task == NULL && bps_task_is_late(worker, header)) {
        bps_sink_discard(&peer->result);
        *sink = &peer->result;
        return BPS_OK;
    }
    if (task == NULL || task->state != BPS_TASK_AWAITED || task->grouped || task->received > 0 ||
        header->offset != 0 || bps_local_leader_of(task->tensor, task->partition) != peer ||
        (header->length != 0 && header->length != task->bytes)) {
        return BPS_ERR_PROTOCOL;
    }
    if (header->length == 0) { /* empty, or in its place already */
        task->received = 1;
        check(task);
        return BPS_OK;
    }
    task->held++;
    peer->task = task;
    peer->result = (struct bps_sink){.place = result_place, .take = result_take};
    *sink = &peer->result;
    return BPS_OK;
}

/* ---- messages ---- */

/* True unless the frame is about a partition of this worker's that another one leads. */
static bool may_judge(const struct bps_local_peer *peer, const struct bps_header *header)
{
    struct bps_worker *worker = peer->local->worker;
    const struct bps_task *task = bps_task_grouped(worker, header);
    if (task == NULL) {
        task = bps_task_find(worker, header);
    }
    return task == NULL || bps_local_leader_of(task->tensor, task->partition) == peer;
}

bps_status bps_local_message(struct bps_local_peer *peer, const struct bps_header *header,
                             struct bps_reader *payload)
{
    struct bps_local *local = peer->local;
    char text[BPS_TEXT_LIMIT + 1];
    if ((header->flags & BPS_FLAG_EXCHANGE) != 0) {
        bps_get_text(payload, text, sizeof text);
        return bps_local_exchange_word(local, header, text);
    }
    switch (header->type) {
    case BPS_FRAME_LEAVE:
        peer->left = true;
        if (!local->dropped) {
            bps_sum_leave(local->sum, peer->rank);
            if (local->exchange != NULL) {
                bps_exchange_leave(local->exchange, peer->rank);
            }
            local->device_ops->left(peer);
        }
        return BPS_OK;
    case BPS_FRAME_RETURNED:
        return BPS_OK; /* the loan was all */
    case BPS_FRAME_POISON:
        bps_get_text(payload, text, sizeof text);
        if (header->epoch != local->worker->book->epoch) {
            return BPS_ERR_PROTOCOL;
        }
        return local->dropped ? BPS_OK : bps_sum_poison(local->sum, peer->rank, header, text);
    case BPS_FRAME_FAILED:
    case BPS_FRAME_STALLED:
        bps_get_text(payload, text, sizeof text);
        if (!may_judge(peer, header)) {
            return BPS_ERR_PROTOCOL;
        }
        return header->type == BPS_FRAME_FAILED && local->device_ops->failed(local->worker, header, text)
                   ? BPS_OK
                   : bps_round_notice(local->worker, header, text);
    default:
        return header->type >= BPS_FRAME_READY ? local->device_ops->message(peer, header, payload)
                                               : BPS_ERR_PROTOCOL;
    }
}

/* ---- refusals, and the steps ---- */

static bool refuse(struct bps_tensor_entry *tensor, uint32_t partition, uint64_t bytes, bps_status status,
                   const char *text, bool answer)
{
    struct bps_local_peer *leader = bps_local_leader_of(tensor, partition);
    const struct bps_header header =
        bps_poison_header(tensor, partition, bytes, status, answer ? BPS_FLAG_ANSWER : 0);
    if (bps_local_exchanges(tensor)) {
        bps_local_exchange_poison(leader, &header, text);
    } else if (is_self(leader)) {
        bps_sum_poison(leader->local->sum, leader->rank, &header, text);
    } else if (leader->link != NULL) {
        bps_link_send(leader->link, &header, text, strnlen(text, BPS_TEXT_LIMIT));
    }
    return true;
}

/* The others of the group wait for a result that does not come. Of this worker it is the end as well. */
static bool refuse_result(struct bps_tensor_entry *tensor, uint32_t partition, uint64_t bytes,
                          bps_status status, const char *text, bool answer)
{
    struct bps_task *task = &tensor->task[partition];
    struct bps_header header;
    (void)bytes;
    (void)answer;
    bps_push_header(task, 0, 0, 0, &header);
    header.type = BPS_FRAME_FAILED;
    header.root = (uint32_t)-status;
    task->failed = true; /* it need not hear it */
    bps_local_fail(tensor->worker->local, &header, text);
    return false;
}

static bool broadcast(struct bps_task *task)
{
    return task->grouped || bps_local_broadcast(task);
}

const struct bps_step_ops bps_step_local_reduce = {
    .crosses = true,
    .probe = takes,
    .start = reduce,
    .cancel = cancel,
    .refuse = refuse,
};

const struct bps_step_ops bps_step_local_broadcast = {
    .crosses = true,
    .probe = takes,
    .start = broadcast,
    .cancel = check,
    .refuse = refuse_result,
};
