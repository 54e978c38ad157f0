/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pair.c - queue pairs: how they are made, what both ends agree upon, and their end. A pair outlives its
 * channel until the device has returned its last work request: only then is the memory free that they use.
 */
#include "verbs.h"

#include <errno.h>
#include <string.h>

#define INLINE_BYTES   128u
#define RETRY_FOR_EVER 7  /* where the peer has no receive buffer, which credits prevent */
#define RETRY_SOON     12 /* after 0.64 ms; only keys that begin another queue pair have no credits */

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Reads of ours that may be under way at once. */
static uint32_t initiator_depth(const struct verbs_pair *pair)
{
    return smaller((uint32_t)pair->device->attr.max_qp_init_rd_atom, VERBS_READS);
}

/* The device may have less room for inline data. */
static bool create_queue_pair(struct verbs_pair *pair)
{
    struct verbs_device *device = pair->device;
    struct ibv_qp_init_attr attr;
    for (uint32_t bytes = INLINE_BYTES;; bytes /= 2) {
        attr = (struct ibv_qp_init_attr){
            .send_cq = device->cq,
            .recv_cq = device->cq,
            .srq = device->srq,
            .qp_type = IBV_QPT_RC,
            .cap = {.max_send_wr = pair->depth, .max_send_sge = 1, .max_inline_data = bytes},
        };
        pair->qp = ibv_create_qp(device->pd, &attr);
        if (pair->qp != NULL) {
            pair->inline_bytes = smaller(bytes, attr.cap.max_inline_data);
            return true;
        }
        if (bytes == 0) {
            return false;
        }
    }
}

/* The connection manager knows most attributes of a state; the others are the options'. */
static bool enter(struct verbs_pair *pair, enum ibv_qp_state state)
{
    const struct verbs_options *o = &pair->device->verbs->options;
    struct ibv_qp_attr attr = {.qp_state = state};
    int mask = 0;
    if (rdma_init_qp_attr(pair->id, &attr, &mask) != 0) {
        return false;
    }
    attr.max_dest_rd_atomic = (uint8_t)pair->own.reads;
    attr.max_rd_atomic = (uint8_t)initiator_depth(pair);
    attr.timeout = (uint8_t)o->ack_timeout;
    attr.retry_cnt = (uint8_t)o->retry_count;
    attr.min_rnr_timer = RETRY_SOON;
    if (o->service_level >= 0) {
        attr.ah_attr.sl = (uint8_t)o->service_level;
    }
    int error = ibv_modify_qp(pair->qp, &attr, mask);
    errno = error != 0 ? error : errno;
    return error == 0;
}

bool verbs_pair_ready(struct verbs_pair *pair)
{
    return enter(pair, IBV_QPS_INIT) && enter(pair, IBV_QPS_RTR) && enter(pair, IBV_QPS_RTS);
}

/* The device returns what it has not done. */
static bool stop(struct verbs_pair *pair)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    return ibv_modify_qp(pair->qp, &attr, IBV_QP_STATE) == 0;
}

/* What takes over from another queue pair begins with keys and messages, at worst all that there can be. */
static uint32_t times(const struct verbs_pair *pair)
{
    return pair->own.lasting ? 2 : 1;
}

static bool make_memory(struct verbs_pair *pair)
{
    const struct bps_host *host = pair->device->verbs->host;
    size_t bytes = (size_t)pair->own.credits * pair->slot_bytes * times(pair);
    pair->memory = host->alloc(host, bytes, 4096);
    pair->pieces = host->alloc(host, pair->own.credits * sizeof *pair->pieces, 8);
    if (pair->memory == NULL || pair->pieces == NULL) {
        errno = ENOMEM;
        return false;
    }
    pair->mr = ibv_reg_mr(pair->device->pd, pair->memory, bytes, 0);
    return pair->mr != NULL;
}

static void set_terms(struct verbs_pair *pair)
{
    const struct bps_channel *channel = pair->channel;
    const struct verbs_options *o = &pair->device->verbs->options;
    pair->own = (struct verbs_terms){
        .credits = (uint32_t)o->credits,
        .eager = (uint32_t)o->eager,
        .block = (uint32_t)o->block,
        .reads = smaller((uint32_t)pair->device->attr.max_qp_rd_atom, VERBS_READS),
        .token = channel->token,
        .received = channel->received,
        .lasting = channel->lasting,
    };
    pair->slot_bytes = verbs_slot_bytes(o);
    pair->depth = pair->own.credits * times(pair) + VERBS_READS + 2;
}

struct verbs_pair *verbs_pair_new(struct bps_channel *channel, struct bps_report *report)
{
    struct verbs *verbs = channel->verbs;
    struct verbs_device *device = verbs_device_of(verbs, channel->id->verbs, report);
    struct verbs_pair *pair = device != NULL ? verbs->host->alloc(verbs->host, sizeof *pair, 64) : NULL;
    if (pair == NULL) {
        return NULL;
    }
    *pair = (struct verbs_pair){.device = device, .id = channel->id, .channel = channel};
    STAILQ_INIT(&pair->arrived);
    STAILQ_INIT(&pair->reading);
    set_terms(pair);
    if (verbs_device_reserve(device, pair->depth, report) != BPS_OK) {
        verbs->host->release(verbs->host, pair);
        return NULL;
    }
    if (!make_memory(pair)) {
        verbs_register_failed((uint64_t)pair->own.credits * pair->slot_bytes, errno, report);
    } else if (!create_queue_pair(pair)) {
        BPS_REPORT(report, "a queue pair cannot be made: %s", strerror(errno));
    } else {
        pair->number = pair->qp->qp_num;
        LIST_INSERT_HEAD(&device->pairs[pair->number % VERBS_BUCKETS], pair, entry);
        channel->pair = pair;
        return pair;
    }
    pair->id = NULL; /* stays the channel's */
    verbs_pair_free(pair);
    return NULL;
}

void verbs_pair_agree(struct verbs_pair *pair, const struct verbs_terms *peer)
{
    pair->peer = (struct verbs_terms){
        .credits = smaller(peer->credits, pair->own.credits),
        .eager = smaller(peer->eager, pair->own.eager),
        .block = smaller(peer->block, pair->own.block),
        .reads = peer->reads,
        .received = peer->received,
    };
    pair->reads_room = smaller(initiator_depth(pair), peer->reads);
    /* A peer that has died keeps the blocks of its reads for a while: it must not keep all of them. */
    pair->reads_room = smaller(pair->reads_room, (pair->device->verbs->receive.count + 3) / 4);
    if (pair->channel->former == NULL) {
        pair->channel->out.credits = pair->peer.credits;
    }
}

void verbs_pair_parameters(const struct verbs_pair *pair, uint8_t *terms, struct rdma_conn_param *out)
{
    verbs_terms_put(&pair->own, terms);
    *out = (struct rdma_conn_param){
        .private_data = terms,
        .private_data_len = VERBS_TERMS_BYTES,
        .responder_resources = (uint8_t)pair->own.reads,
        .initiator_depth = (uint8_t)initiator_depth(pair),
        .retry_count = (uint8_t)pair->device->verbs->options.retry_count,
        .rnr_retry_count = RETRY_FOR_EVER,
        .qp_num = pair->number,
        .srq = 1,
    };
}

struct verbs_pair *verbs_pair_find(const struct verbs_device *device, uint32_t number)
{
    struct verbs_pair *pair;
    LIST_FOREACH(pair, &device->pairs[number % VERBS_BUCKETS], entry) {
        if (pair->number == number) {
            return pair;
        }
    }
    return NULL;
}

/* What has not been read is read elsewhere: here nothing may write to its place any more. */
void verbs_pair_halt(struct verbs_pair *pair)
{
    verbs_post_forget(pair);
    if (!stop(pair) || !verbs_await_reads(pair)) {
        ibv_destroy_qp(pair->qp);
        pair->qp = NULL;
    }
}

/* The keys of these pieces are another device's; those that have been read need none. */
static void make_stale(struct verbs_slots *slots)
{
    struct verbs_slot *slot;
    STAILQ_FOREACH(slot, slots, entry) {
        slot->stale = verbs_has_piece(slot) && !slot->ready;
    }
}

void verbs_pair_inherit(struct verbs_pair *pair, struct verbs_pair *former)
{
    struct verbs_piece *pieces = pair->pieces;
    STAILQ_CONCAT(&pair->arrived, &former->arrived);
    STAILQ_CONCAT(&pair->reading, &former->reading);
    make_stale(&pair->arrived);
    make_stale(&pair->reading);
    pair->narrived = former->narrived;
    memcpy(pair->memory, former->memory, (size_t)pair->own.credits * pair->slot_bytes);
    pair->slot = former->slot;
    pair->pieces = former->pieces;
    pair->first_piece = former->first_piece;
    pair->npieces = former->npieces;
    former->pieces = pieces;
    former->npieces = 0;
}

void verbs_pair_leave(struct verbs_pair *pair)
{
    pair->channel = NULL;
    pair->id->context = NULL;
    verbs_post_forget(pair);
    /* Places are the core's again when this returns: no read is under way, or there is no queue pair. */
    if (!pair->connected || pair->qp == NULL || !stop(pair) || rdma_disconnect(pair->id) != 0 ||
        !verbs_post_drain(pair) || !verbs_await_reads(pair)) {
        verbs_pair_free(pair);
    }
}

static void free_arrived(struct verbs_pair *pair)
{
    STAILQ_CONCAT(&pair->arrived, &pair->reading);
    while (!STAILQ_EMPTY(&pair->arrived)) {
        struct verbs_slot *slot = STAILQ_FIRST(&pair->arrived);
        STAILQ_REMOVE_HEAD(&pair->arrived, entry);
        verbs_slot_free(slot);
    }
    while (pair->npieces > 0) {
        struct verbs_piece *piece = verbs_piece_take(pair);
        if (piece->block != NULL) {
            verbs_arena_give(&pair->device->verbs->send, piece->block);
        }
    }
    verbs_wake_starved(pair->device->verbs);
}

void verbs_pair_free(struct verbs_pair *pair)
{
    struct verbs_device *device = pair->device;
    const struct bps_host *host = device->verbs->host;
    if (pair->number != 0) {
        LIST_REMOVE(pair, entry);
    }
    if (pair->qp != NULL) {
        ibv_destroy_qp(pair->qp);
    }
    if (pair->id != NULL) {
        rdma_destroy_id(pair->id);
    }
    free_arrived(pair);
    if (pair->mr != NULL) {
        ibv_dereg_mr(pair->mr);
    }
    host->release(host, pair->memory);
    host->release(host, pair->pieces);
    verbs_device_unreserve(device, pair->depth);
    host->release(host, pair);
}

void verbs_pairs_free(struct verbs *verbs)
{
    const struct verbs_device *device;
    LIST_FOREACH(device, &verbs->devices, entry) {
        for (uint32_t i = 0; i < VERBS_BUCKETS; i++) {
            while (!LIST_EMPTY(&device->pairs[i])) {
                verbs_pair_free(LIST_FIRST(&device->pairs[i]));
            }
        }
    }
}

void verbs_channel_disconnect(struct bps_channel *channel)
{
    struct verbs_pair *pair = channel->pair;
    struct rdma_cm_id *id = channel->id;
    verbs_channel_detach(channel);
    if (pair != NULL) {
        verbs_pair_leave(pair);
    } else if (id != NULL) {
        rdma_destroy_id(id);
    }
}
