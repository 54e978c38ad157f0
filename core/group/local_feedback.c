/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local_feedback.c - what coding has left of a partition, from a worker that has saved it to the one that leads it now.
 *
 * It goes before the contribution to the next round, over the same link: so the leader has it before it codes the sum.
 */
#include "coded/coded.h"
#include "group/local.h"

#define CHUNK ((size_t)1 << 20) /* of a message, at most */

/* ---- by the worker that has saved it ---- */

static bps_status send(struct bps_local_peer *leader, const struct bps_header *header, const void *data, size_t bytes)
{
    bps_status status = BPS_OK;
    for (size_t at = 0; at < bytes && status == BPS_OK; at += CHUNK) {
        size_t rest = bytes - at;
        status = bps_link_send(leader->link, header, (const char *)data + at, rest < CHUNK ? rest : CHUNK);
    }
    return status;
}

static bps_status give(struct bps_tensor_entry *tensor, const void *head, size_t head_bytes,
                       const struct bps_state_part *part)
{
    struct bps_local_peer *leader = bps_local_leader_of(tensor, part->index);
    const struct bps_header header = {.type = BPS_FRAME_FEEDBACK,
                                      .epoch = tensor->worker->job.epoch,
                                      .tensor = tensor->id,
                                      .partition = part->index,
                                      .round = tensor->round,
                                      .bytes = head_bytes + part->bytes};
    if (leader->link == NULL) {
        return BPS_AGAIN; /* it is this worker, or has left */
    }
    bps_status status = send(leader, &header, head, head_bytes);
    return status == BPS_OK ? send(leader, &header, part->at, part->bytes) : status;
}

void bps_local_hand_over(struct bps_tensor_entry *tensor)
{
    const struct bps_local *local = tensor->worker->local;
    if (tensor->saved == NULL || local->final || local->dropped || !bps_local_sums(tensor, 0)) {
        return;
    }
    bps_status status = bps_state_hand_over(tensor, give);
    if (status != BPS_OK) {
        bps_worker_fail(tensor->worker, status, "could not hand over the error feedback of a tensor");
    }
}

/* ---- by the leader ---- */

static bool goes_on(const struct bps_header *before, const struct bps_header *header)
{
    return header->tensor == before->tensor && header->partition == before->partition &&
           header->round == before->round && header->bytes == before->bytes;
}

/* Whether this worker leads the partition, as far as it knows the tensor yet. */
static bool may_lead(const struct bps_worker *worker, const struct bps_header *header)
{
    const struct bps_tensor_entry *tensor = bps_tensor_of(worker, header->tensor);
    return tensor == NULL || (header->partition < tensor->placed.n && bps_local_leads(tensor, header->partition));
}

bps_status bps_local_handed(struct bps_local_peer *peer, const struct bps_header *header, struct bps_reader *payload)
{
    struct bps_worker *worker = peer->local->worker;
    struct bps_writer *state = &peer->handed;
    size_t bytes = (size_t)(payload->end - payload->at);
    if (peer->local->dropped) {
        return BPS_OK;
    }
    if (state->size == 0) {
        peer->handing = *header;
    }
    if (header->epoch != worker->job.epoch || peer->local->final || header->bytes > bps_state_limit(worker) ||
        bytes == 0 || bytes > header->bytes - state->size || !goes_on(&peer->handing, header)) {
        return BPS_ERR_PROTOCOL;
    }
    bps_put_bytes(state, payload->at, bytes);
    if (!state->failed && state->size < header->bytes) {
        return BPS_OK;
    }
    bps_status status = state->failed              ? BPS_ERR_NOMEM
                        : may_lead(worker, header) ? bps_state_handed(worker, peer->rank, header, state)
                                                   : BPS_OK;
    bps_writer_fini(state);
    if (status == BPS_ERR_NOMEM) {
        bps_worker_fail(worker, status, "out of memory for the error feedback of a tensor");
        return BPS_OK;
    }
    return status;
}
