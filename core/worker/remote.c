/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote.c - the shards as a worker sees them: connecting, saying that it cannot contribute, leaving.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "worker/local.h"
#include "worker/worker.h"

#define LOG "worker"

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
        send_poison(bps_remote_of(tensor, partition), &header, text);
    }
}

void bps_remote_poison_group(struct bps_task *task, bps_status status, const char *text)
{
    struct bps_tensor_entry *tensor = task->tensor;
    const struct bps_header header = poison_header(tensor, task->partition, tensor->operation.bytes, status,
                                                   BPS_FLAG_GROUP | BPS_FLAG_ANSWER);
    send_poison(bps_remote_of(tensor, task->partition), &header, text);
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
    .next = bps_remote_next,
    .sent = bps_remote_sent,
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
