/* SPDX-License-Identifier: Apache-2.0 */
/* complete.c - completions: what the device has done, and whom it concerns. */
#include "verbs.h"

#include <string.h>

#define ROUNDS 4 /* calls that fetch completions in one turn, at most */

/* ---- errors ---- */

uint64_t verbs_patience(const struct verbs_options *o)
{
    return (4096ull << o->ack_timeout) * (uint64_t)(o->retry_count + 1);
}

static void failed(struct bps_channel *channel, enum ibv_wc_status status)
{
    char text[160];
    if (channel->state != VERBS_OPEN) {
        return; /* the connection manager will tell */
    }
    switch (status) {
    case IBV_WC_WR_FLUSH_ERR:
        if (!verbs_suspend(channel, ibv_wc_status_str(status))) {
            verbs_channel_closed(channel);
        }
        break;
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
        snprintf(text, sizeof text, "no answer for %llu ms or more (%s)",
                 (unsigned long long)(verbs_patience(&channel->verbs->options) / 1000000), ibv_wc_status_str(status));
        verbs_channel_broken(channel, BPS_ERR_TIMEOUT, text);
        break;
    default:
        snprintf(text, sizeof text, "RDMA: %s", ibv_wc_status_str(status));
        verbs_channel_lost(channel, BPS_ERR_IO, text);
    }
}

/* ---- one completion ---- */

static void work_completed(struct verbs_pair *pair, const struct ibv_wc *wc)
{
    struct bps_channel *channel = pair->channel;
    uint64_t kind = verbs_wr_kind(wc->wr_id);
    pair->reads -= kind == VERBS_PIECE_READ;
    pair->probing = pair->probing && kind != VERBS_PROBED;
    if (kind == VERBS_DRAINED) {
        verbs_pair_free(pair);
        return;
    }
    if (wc->status != IBV_WC_SUCCESS) {
        if (channel != NULL) {
            failed(channel, wc->status);
        }
        return;
    }
    pair->retired = verbs_wr_sequence(wc->wr_id);
    if (kind == VERBS_PIECE_READ) {
        verbs_receive_read(pair);
    }
    if (channel != NULL) {
        channel->progress = channel->progress || kind != VERBS_PROBED;
        channel->out.finish_done = channel->out.finish_done || kind == VERBS_FINISH_SENT;
        verbs_channel_queue(channel);
    }
}

static void message_came(struct bps_channel *channel, const struct ibv_wc *wc)
{
    struct verbs_slot *slot = (struct verbs_slot *)(uintptr_t)wc->wr_id;
    if (wc->status != IBV_WC_SUCCESS || channel == NULL) {
        verbs_slot_free(slot);
        if (channel != NULL) {
            failed(channel, wc->status);
        }
        return;
    }
    channel->progress = true;
    if (channel->state == VERBS_SUSPENDED) {
        verbs_resume(channel); /* the message has overtaken the news that the connection stands */
    }
    if (channel->state == VERBS_DEAD) {
        verbs_slot_free(slot);
        return;
    }
    verbs_receive_message(channel, slot, wc->byte_len);
}

static void dispatch(struct verbs_device *device, const struct ibv_wc *wc)
{
    struct verbs_pair *pair = verbs_pair_find(device, wc->qp_num);
    struct bps_channel *channel = pair != NULL ? pair->channel : NULL;
    if (channel != NULL) {
        verbs_hold(channel);
    }
    if (!verbs_wr_is_own(wc->wr_id)) {
        message_came(channel, wc);
    } else if (pair != NULL) {
        work_completed(pair, wc);
    }
    if (channel != NULL) {
        verbs_release(channel);
    }
}

/* ---- polling ---- */

static void fetch_more(struct verbs_device *device, int most)
{
    int n = ibv_poll_cq(device->cq, most, device->wc + device->nwc);
    device->nwc += n > 0 ? n : 0;
}

static bool fetch(struct verbs_device *device)
{
    if (device->first == device->nwc) {
        device->first = device->nwc = 0;
        fetch_more(device, VERBS_POLL);
    }
    return device->nwc > device->first;
}

static bool poll_device(struct verbs_device *device)
{
    int round;
    for (round = 0; round < ROUNDS && fetch(device); round++) {
        while (device->first < device->nwc) {
            const struct ibv_wc wc = device->wc[device->first++];
            dispatch(device, &wc);
        }
    }
    return round > 0;
}

bool verbs_poll(void *instance)
{
    struct verbs *verbs = instance;
    struct verbs_device *device;
    bool worked = false;
    LIST_FOREACH(device, &verbs->devices, entry) {
        worked = poll_device(device) || worked;
    }
    if (worked) {
        bps_util_turns_run(&verbs->turns);
    }
    return worked;
}

bool verbs_arm(void *instance)
{
    struct verbs *verbs = instance;
    struct verbs_device *device;
    LIST_FOREACH(device, &verbs->devices, entry) {
        if (device->first < device->nwc || ibv_req_notify_cq(device->cq, 0) != 0 || fetch(device)) {
            return false;
        }
    }
    return verbs->turns.nready == 0;
}

/* ---- waiting ---- */

/* Reads of the pair among the completions that have been fetched. */
static uint32_t returned_reads(const struct verbs_pair *pair)
{
    const struct verbs_device *device = pair->device;
    uint32_t reads = 0;
    for (int i = device->first; i < device->nwc; i++) {
        const struct ibv_wc *wc = &device->wc[i];
        reads +=
            wc->qp_num == pair->number && verbs_wr_is_own(wc->wr_id) && verbs_wr_kind(wc->wr_id) == VERBS_PIECE_READ;
    }
    return reads;
}

/* Nobody may be called back here: what is fetched meanwhile is dealt with later. */
bool verbs_await_reads(struct verbs_pair *pair)
{
    struct verbs_device *device = pair->device;
    const struct bps_host *host = device->verbs->host;
    uint64_t limit = host->now() + VERBS_FLUSH;
    device->nwc -= device->first;
    memmove(device->wc, device->wc + device->first, (size_t)device->nwc * sizeof *device->wc);
    device->first = 0;
    while (returned_reads(pair) < pair->reads) {
        if (device->nwc == (int)device->cq_room || host->now() > limit) {
            return false;
        }
        fetch_more(device, (int)device->cq_room - device->nwc);
    }
    return true;
}

/* ---- receive buffers ---- */

void verbs_slot_free(struct verbs_slot *slot)
{
    if (slot->block != NULL) {
        verbs_arena_give(&slot->device->verbs->receive, slot->block);
        slot->block = NULL;
    }
    STAILQ_INSERT_TAIL(&slot->device->reposts, slot, entry);
}

void verbs_slots_repost(struct verbs_device *device)
{
    struct ibv_recv_wr wr[VERBS_BATCH], *bad;
    struct ibv_sge sge[VERBS_BATCH];
    uint32_t bytes = verbs_slot_bytes(&device->verbs->options);
    while (!STAILQ_EMPTY(&device->reposts)) {
        unsigned n = 0;
        for (; n < VERBS_BATCH && !STAILQ_EMPTY(&device->reposts); n++) {
            struct verbs_slot *slot = STAILQ_FIRST(&device->reposts);
            STAILQ_REMOVE_HEAD(&device->reposts, entry);
            sge[n] = (struct ibv_sge){.addr = (uintptr_t)slot->data, .length = bytes, .lkey = slot->lkey};
            wr[n] =
                (struct ibv_recv_wr){.wr_id = (uintptr_t)slot, .next = &wr[n + 1], .sg_list = &sge[n], .num_sge = 1};
        }
        wr[n - 1].next = NULL;
        if (ibv_post_srq_recv(device->srq, wr, &bad) != 0) {
            device->verbs->host->log(device->verbs->host, BPS_LOG_ERROR, "the shared receive queue refuses buffers");
        }
    }
}
