/* SPDX-License-Identifier: Apache-2.0 */
/* complete.c - completions: what the device has done, and whom it concerns. */
#include "verbs.h"

#define ROUNDS 4 /* calls that fetch completions in one turn, at most */

/* ---- errors ---- */

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
    if (verbs_is_over(channel)) {
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
        verbs_leave(channel);
    }
}

/* ---- polling ---- */

static bool poll_device(struct verbs_device *device)
{
    int round;
    for (round = 0; round < ROUNDS && verbs_fetch(device); round++) {
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
        if (device->first < device->nwc || ibv_req_notify_cq(device->cq, 0) != 0 || verbs_fetch(device)) {
            return false;
        }
    }
    return verbs->turns.nready == 0;
}
