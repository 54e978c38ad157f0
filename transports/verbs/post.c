/* SPDX-License-Identifier: Apache-2.0 */
/*
 * post.c - work requests. What a channel has to post in its turn is gathered and posted by one call. A
 * completion stands for all work requests before it, so that only some are asked for.
 */
#include "verbs.h"

#define SILENT 8u /* work requests in a row without a completion */

static uint32_t in_use(const struct verbs_pair *pair)
{
    return pair->posted - pair->retired;
}

bool verbs_post_room(const struct verbs_pair *pair)
{
    return in_use(pair) + 1 < pair->depth; /* one is kept for the end */
}

void verbs_post_flush(struct verbs_pair *pair)
{
    struct verbs_batch *batch = &pair->device->batch;
    const struct verbs *verbs = pair->device->verbs;
    struct ibv_send_wr *bad;
    if (batch->count == 0) {
        return;
    }
    batch->wr[batch->count - 1].next = NULL;
    *verbs->count.work_requests += batch->count;
    ++*verbs->count.doorbells;
    int error = ibv_post_send(pair->qp, batch->wr, &bad);
    batch->count = 0;
    for (; error != 0 && bad != NULL; bad = bad->next) {
        pair->reads -= bad->opcode == IBV_WR_RDMA_READ;
    }
    if (error != 0 && pair->channel != NULL && pair->channel->out.error == 0) {
        pair->channel->out.error = error; /* its next turn ends it */
        verbs_channel_queue(pair->channel);
    }
}

static struct ibv_send_wr *add(struct verbs_pair *pair, uint64_t kind, const void *memory, uint32_t bytes,
                               uint32_t lkey)
{
    struct verbs_batch *batch = &pair->device->batch;
    if (batch->count == VERBS_BATCH) {
        verbs_post_flush(pair);
    }
    struct ibv_send_wr *wr = &batch->wr[batch->count];
    struct ibv_sge *sge = &batch->sge[batch->count];
    batch->count++;
    batch->pair = pair;
    *sge = (struct ibv_sge){.addr = (uintptr_t)memory, .length = bytes, .lkey = lkey};
    *wr =
        (struct ibv_send_wr){.wr_id = verbs_wr_id(kind, ++pair->posted), .next = wr + 1, .sg_list = sge, .num_sge = 1};
    if (kind != VERBS_MESSAGE_SENT || ++pair->silent >= SILENT) {
        pair->silent = 0;
        wr->send_flags = IBV_SEND_SIGNALED;
    }
    return wr;
}

void verbs_post_message(struct verbs_pair *pair, const uint8_t *data, uint32_t bytes, uint64_t kind)
{
    struct ibv_send_wr *wr = add(pair, kind, data, bytes, pair->mr->lkey);
    wr->opcode = IBV_WR_SEND;
    if (bytes <= pair->inline_bytes) {
        wr->send_flags |= IBV_SEND_INLINE;
    }
}

void verbs_post_read(struct verbs_pair *pair, uint8_t *to, uint32_t lkey, const struct verbs_message *from)
{
    struct ibv_send_wr *wr = add(pair, VERBS_PIECE_READ, to, from->bytes, lkey);
    pair->reads++;
    wr->opcode = IBV_WR_RDMA_READ;
    wr->wr.rdma.remote_addr = from->address;
    wr->wr.rdma.rkey = from->rkey;
}

void verbs_post_probe(struct verbs_pair *pair)
{
    struct ibv_send_wr *wr = add(pair, VERBS_PROBED, NULL, 0, 0);
    pair->probing = true;
    wr->opcode = IBV_WR_RDMA_WRITE;
    wr->num_sge = 0;
    verbs_post_flush(pair);
}

void verbs_post_forget(struct verbs_pair *pair)
{
    struct verbs_batch *batch = &pair->device->batch;
    if (batch->pair != pair) {
        return;
    }
    for (; batch->count > 0; batch->count--) {
        pair->reads -= batch->wr[batch->count - 1].opcode == IBV_WR_RDMA_READ;
    }
}

bool verbs_post_drain(struct verbs_pair *pair)
{
    struct ibv_send_wr *bad, wr = {.wr_id = verbs_wr_id(VERBS_DRAINED, ++pair->posted),
                                   .opcode = IBV_WR_SEND,
                                   .send_flags = IBV_SEND_SIGNALED};
    return ibv_post_send(pair->qp, &wr, &bad) == 0;
}
