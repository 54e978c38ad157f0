/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote.c - the shards as a worker sees them: connecting, sending the most urgent slice, leaving.
 *
 * Each shard has one queue of tasks, ordered by urgency, that all lanes to it draw from. The transport asks for the
 * next slice when it can really send one; so a more urgent tensor overtakes a larger one between two slices.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "worker/local.h"
#include "worker/worker.h"

#define LOG "worker"

static void kick(struct bps_remote *remote)
{
    for (uint32_t i = 0; i < remote->lanes; i++) {
        bps_link_kick(&remote->lane[i].link);
    }
}

static struct bps_remote *remote_of(struct bps_tensor_entry *tensor, uint32_t partition)
{
    struct bps_worker *worker = tensor->worker;
    uint16_t shard = tensor->unnamed ? bps_placement_unnamed(worker->book, tensor->id, partition)
                                     : tensor->shard[partition];
    return &worker->remote[shard];
}

void bps_remote_push(struct bps_task *task)
{
    struct bps_worker *worker = task->tensor->worker;
    if (worker->failure != BPS_OK) {
        bps_operation_error(&task->tensor->operation, worker->failure, worker->failure_text);
        bps_task_end(task);
        return;
    }
    struct bps_remote *remote = remote_of(task->tensor, task->partition);
    task->state = BPS_TASK_QUEUED;
    if (!bps_heap_push(&remote->queue, task->tensor->operation.request.priority, worker->sequence++, task)) {
        bps_worker_fail(worker, BPS_ERR_NOMEM, "out of memory");
        return;
    }
    kick(remote);
}

void bps_remote_unqueue(struct bps_task *task)
{
    bps_heap_remove(&remote_of(task->tensor, task->partition)->queue, task);
}

/* ---- poison ---- */

static void send_poison(struct bps_remote *remote, const struct bps_header *header, const char *text)
{
    bps_link_send(&remote->lane[0].link, header, text, strnlen(text, BPS_TEXT_LIMIT));
}

static struct bps_header poison_header(const struct bps_tensor_entry *tensor, uint32_t partition, uint64_t bytes,
                                       bps_status status, uint8_t flags)
{
    return (struct bps_header){
        .type = BPS_FRAME_POISON,
        .flags = flags,
        .epoch = tensor->worker->book->epoch,
        .tensor = tensor->id,
        .bytes = bytes,
        .partition = partition,
        .round = tensor->unnamed ? 0 : tensor->round,
        .root = (uint32_t)-status,
    };
}

void bps_remote_poison(struct bps_tensor_entry *tensor, uint32_t partition, uint64_t bytes, bps_status status,
                       const char *text, bool answer)
{
    const struct bps_header header =
        poison_header(tensor, partition, bytes, status, answer ? BPS_FLAG_ANSWER : 0);
    if (bps_local_takes(tensor)) {
        bps_local_poison(tensor, partition, &header, text);
    } else {
        send_poison(remote_of(tensor, partition), &header, text);
    }
}

void bps_remote_poison_group(struct bps_task *task, bps_status status, const char *text)
{
    struct bps_tensor_entry *tensor = task->tensor;
    const struct bps_header header = poison_header(tensor, task->partition, tensor->operation.bytes, status,
                                                   BPS_FLAG_GROUP | BPS_FLAG_ANSWER);
    send_poison(remote_of(tensor, task->partition), &header, text);
}

bool bps_remote_pass_poison(struct bps_worker *worker, const struct bps_header *header, const char *text)
{
    uint32_t shard;
    if (header->tensor >= BPS_ID_UNNAMED) {
        shard = bps_placement_unnamed(worker->book, header->tensor, header->partition);
    } else {
        const struct bps_tensor_entry *tensor =
            header->tensor < worker->named_room ? worker->named[header->tensor] : NULL;
        if (tensor == NULL) {
            return false;
        }
        shard = header->partition < tensor->partitions ? tensor->shard[header->partition] : 0;
    }
    send_poison(&worker->remote[shard], header, text);
    return true;
}

/* ---- sending ---- */

void bps_push_header(const struct bps_task *task, uint32_t offset, uint32_t bytes, uint8_t flags,
                     struct bps_header *out)
{
    const struct bps_tensor_entry *tensor = task->tensor;
    const struct bps_operation *operation = &tensor->operation;
    *out = (struct bps_header){
        .length = bytes,
        .type = BPS_FRAME_PUSH,
        .flags = flags,
        .dtype = (uint8_t)operation->request.dtype,
        .op = (uint8_t)operation->op,
        .epoch = tensor->worker->book->epoch,
        .tensor = tensor->id,
        .bytes = operation->bytes,
        .partition = task->partition,
        .round = tensor->unnamed ? 0 : tensor->round,
        .offset = offset,
        .root = operation->root,
        .prescale = operation->request.prescale,
        .postscale = operation->request.postscale,
        .priority = operation->request.priority,
    };
}

/* For a group its sum is pushed, in which the scales of its members are already. */
static void slice_header(const struct bps_task *task, uint32_t index, uint32_t bytes, uint8_t flags, uint8_t *out)
{
    const struct bps_worker *worker = task->tensor->worker;
    struct bps_header header;
    bps_push_header(task, index * (uint32_t)worker->slice, bytes, flags, &header);
    if (bps_local_takes(task->tensor)) {
        header.flags |= BPS_FLAG_GROUP;
        header.prescale = 1.0;
    }
    bps_header_encode(&header, out);
}

static bps_status on_next(void *owner, struct bps_link *link, struct bps_frame *out)
{
    struct bps_remote_lane *lane = owner;
    struct bps_task *task = bps_heap_top(&lane->remote->queue);
    (void)link;
    if (task == NULL) {
        return BPS_AGAIN;
    }
    const struct bps_worker *worker = task->tensor->worker;
    const struct bps_operation *operation = &task->tensor->operation;
    bool receiver = operation->op == BPS_WIRE_BROADCAST && !bps_tensor_speaks_for(task->tensor, operation->root);
    uint32_t slices = receiver ? 1 : bps_partitions(task->bytes, worker->slice);
    uint32_t index = task->sent++;
    uint32_t bytes = receiver ? 0 : bps_partition_bytes(task->bytes, worker->slice, index);
    slice_header(task, index, bytes, receiver ? BPS_FLAG_EMPTY : 0, task->header[index]);
    if (task->sent == slices) {
        bps_heap_pop(&lane->remote->queue);
        task->state = BPS_TASK_AWAITED;
    }
    task->held++;
    *out = (struct bps_frame){
        .header = task->header[index],
        .payload = task->src + (size_t)index * worker->slice,
        .bytes = bytes,
        .cookie = task,
    };
    return BPS_OK;
}

static void on_sent(void *owner, struct bps_link *link, void *cookie)
{
    struct bps_task *task = cookie;
    (void)owner;
    (void)link;
    task->held--;
    bps_remote_check(task);
}

void bps_remote_check(struct bps_task *task)
{
    const struct bps_tensor_entry *tensor = task->tensor;
    const struct bps_worker *worker = tensor->worker;
    const struct bps_operation *operation = &tensor->operation;
    if (task->held > 0) {
        return;
    }
    if (task->failed) {
        bps_task_end(task);
    } else if (task->state == BPS_TASK_AWAITED && task->received == bps_partitions(task->bytes, worker->slice)) {
        bool root = operation->op == BPS_WIRE_BROADCAST && bps_tensor_speaks_for(task->tensor, operation->root);
        if (root && task->src != task->dst && task->bytes > 0) {
            memcpy(task->dst, task->src, task->bytes);
        }
        task->src = task->dst;
        task->step++;
        bps_task_advance(task);
    }
}

/* ---- receiving ---- */

static bps_status on_message(void *owner, struct bps_link *link, const struct bps_header *header,
                             struct bps_reader *payload)
{
    (void)link;
    return bps_receive_message(owner, header, payload);
}

static bps_status on_slice(void *owner, struct bps_link *link, const struct bps_header *header,
                           struct bps_sink **sink)
{
    (void)link;
    return bps_receive_slice(owner, header, sink);
}

/* ---- connecting ---- */

static void introduce(void *owner, struct bps_link *link, const uint8_t *nonce, struct bps_writer *hello)
{
    const struct bps_remote_lane *lane = owner;
    const struct bps_worker *worker = lane->remote->worker;
    uint8_t proof[BPS_PROOF_BYTES];
    (void)link;
    if (bps_book_proof(worker->book, nonce, worker->rank, lane->number, proof) != BPS_OK) {
        hello->failed = true;
        return;
    }
    bps_put_u8(hello, BPS_HELLO_DATA);
    bps_put_u32(hello, worker->rank);
    bps_put_u32(hello, lane->number);
    bps_put_u32(hello, worker->book->epoch);
    bps_put_bytes(hello, proof, sizeof proof);
}

static void welcome(void *owner, struct bps_link *link)
{
    (void)link;
    bps_worker_link_opened(((struct bps_remote_lane *)owner)->remote->worker);
}

static void on_closed(void *owner, struct bps_link *link, bps_status status, const char *text)
{
    struct bps_remote_lane *lane = owner;
    struct bps_worker *worker = lane->remote->worker;
    char why[400];
    if (worker->phase != BPS_WORKER_LEAVING) {
        uint32_t member = worker->book->shard[lane->remote->index].member;
        bool hosted = member < worker->size;
        snprintf(why, sizeof why, "%s %u at %s was lost: %s", hosted ? "the server of worker" : "server",
                 hosted ? member : member - worker->size, link->peer, text);
        bps_worker_suspect(worker, status, why);
    }
    bps_worker_link_closed(worker);
}

static const struct bps_link_handler handler = {
    .introduce = introduce,
    .welcome = welcome,
    .message = on_message,
    .slice = on_slice,
    .next = on_next,
    .sent = on_sent,
    .closed = on_closed,
};

static bps_status dial_lanes(struct bps_remote *remote, struct bps_report *report)
{
    struct bps_worker *worker = remote->worker;
    for (uint32_t i = 0; i < remote->lanes; i++) {
        struct bps_remote_lane *lane = &remote->lane[i];
        lane->remote = remote;
        lane->number = i;
        bps_status status = bps_link_dial(&lane->link, &handler, lane, worker->net->ops, worker->net->self,
                                          worker->book->shard[remote->index].address, i, report);
        if (status != BPS_OK) {
            return status;
        }
    }
    return BPS_OK;
}

bps_status bps_remotes_connect(struct bps_worker *worker, struct bps_report *report)
{
    const struct bps_transport_ops *transport = worker->net->ops;
    struct bps_transport_attr attr = {.lanes = 1};
    transport->query(worker->net->self, &attr);
    worker->remotes = worker->book->shards;
    worker->remote = calloc(worker->remotes, sizeof *worker->remote);
    if (worker->remote == NULL) {
        return BPS_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < worker->remotes; i++) {
        struct bps_remote *remote = &worker->remote[i];
        remote->worker = worker;
        remote->index = i;
        remote->lanes = attr.lanes < 1 ? 1 : attr.lanes > BPS_LANES_LIMIT ? BPS_LANES_LIMIT : attr.lanes;
        bps_status status = dial_lanes(remote, report);
        if (status != BPS_OK) {
            return status;
        }
    }
    return BPS_OK;
}

uint32_t bps_remotes_links(const struct bps_worker *worker)
{
    return worker->remotes > 0 ? worker->remotes * worker->remote[0].lanes : 0;
}

void bps_remotes_leave(struct bps_worker *worker)
{
    const struct bps_header header = {.type = BPS_FRAME_LEAVE, .epoch = worker->book->epoch};
    for (uint32_t r = 0; r < worker->remotes; r++) {
        struct bps_remote *remote = &worker->remote[r];
        bps_link_send(&remote->lane[0].link, &header, NULL, 0);
        for (uint32_t i = 0; i < remote->lanes; i++) {
            bps_link_finish(&remote->lane[i].link);
        }
    }
}

void bps_remotes_drop(struct bps_worker *worker)
{
    for (uint32_t r = 0; r < worker->remotes && worker->remote != NULL; r++) {
        struct bps_remote *remote = &worker->remote[r];
        for (uint32_t i = 0; i < remote->lanes; i++) {
            bps_link_drop(&remote->lane[i].link);
        }
        bps_heap_fini(&remote->queue);
    }
}
