/* SPDX-License-Identifier: Apache-2.0 */
/*
 * turn.c - the life of a channel: its turns, its end, and what is freed with it.
 *
 * The core is called back within turns, or while a completion or an event of the channel is dealt with. It may drop the
 * channel then, and a part that finds that the channel must end notes that (verbs_channel_end). So whoever calls back
 * looks afterwards whether the channel is still open. What was noted is done when all of that is over (verbs_leave).
 */
#include "verbs.h"

#include <string.h>

/* ---- life ---- */

struct bps_channel *verbs_channel_new(struct verbs *verbs)
{
    struct bps_channel *channel = verbs->host->alloc(verbs->host, sizeof *channel, 64);
    if (channel == NULL) {
        return NULL;
    }
    *channel = (struct bps_channel){.turn.arg = channel, .verbs = verbs, .state = VERBS_DIALLING};
    LIST_INSERT_HEAD(&verbs->channels, channel, entry);
    return channel;
}

void verbs_hold(struct bps_channel *channel)
{
    channel->holders++;
}

static void release(struct bps_channel *channel)
{
    channel->holders--;
    if (channel->holders == 0 && channel->state == VERBS_DEAD) {
        verbs_connect_free(channel);
        channel->verbs->host->release(channel->verbs->host, channel);
    }
}

/* From here on nothing calls back. */
static void channel_kill(struct bps_channel *channel)
{
    channel->state = VERBS_DEAD;
    bps_util_cancel(channel->verbs->host, &channel->timer);
    LIST_REMOVE(channel, entry);
    bps_util_turn_remove(&channel->verbs->turns, &channel->turn);
    verbs_channel_disconnect(channel);
    if (channel->former != NULL) {
        verbs_pair_leave(channel->former);
        channel->former = NULL;
    }
}

void verbs_leave(struct bps_channel *channel)
{
    if (channel->state == VERBS_ENDING) {
        channel_kill(channel);
        if (channel->events != NULL) {
            channel->events->closed(channel->user, channel->status, channel->reason);
        }
    }
    release(channel);
}

void verbs_drop(struct bps_channel *channel)
{
    if (channel != NULL && channel->state != VERBS_DEAD) {
        verbs_hold(channel);
        channel_kill(channel);
        release(channel);
    }
}

/* ---- connections that stand, or are lost ---- */

void verbs_welcome(struct bps_channel *channel)
{
    char peer[BPS_UTIL_ADDRESS_TEXT];
    const struct bps_channel_key *key;
    bps_util_cancel(channel->verbs->host, &channel->timer);
    bps_util_address_text(rdma_get_peer_addr(channel->id), peer, sizeof peer);
    const struct bps_channel_events *events = channel->accept(channel->accept_arg, channel, peer, &channel->user, &key);
    if (channel->state != VERBS_DEAD) {
        channel->events = events;
        if (events != NULL) {
            verbs_channel_open(channel);
        } else {
            verbs_channel_end(channel, BPS_OK, "refused"); /* of which the core knows */
        }
    }
}

void verbs_channel_lost(struct bps_channel *channel, bps_status status, const char *text)
{
    channel->out.lost = true;
    while (verbs_receive(channel)) {
    }
    if (channel->state == VERBS_OPEN && channel->out.finished) {
        verbs_channel_end(channel, BPS_OK, "closed");
    } else {
        verbs_channel_end(channel, status, text);
    }
}

void verbs_channel_broken(struct bps_channel *channel, bps_status status, const char *text)
{
    if (!verbs_suspend(channel, text)) {
        verbs_channel_lost(channel, status, text);
    }
}

static bool is_within_frame(const struct bps_channel *channel)
{
    const struct verbs_incoming *in = &channel->in;
    const struct verbs_slot *slot = STAILQ_FIRST(&channel->pair->arrived);
    bool piece = slot != NULL && verbs_has_piece(slot);
    return in->announced > 0 || piece || !STAILQ_EMPTY(&channel->pair->reading);
}

void verbs_channel_closed(struct bps_channel *channel)
{
    verbs_channel_lost(channel, BPS_ERR_IO,
                       is_within_frame(channel) ? "connection closed by peer in the middle of a frame"
                                                : "connection closed by peer");
}

/* ---- turns ---- */

static void refused(struct bps_channel *channel)
{
    char text[128];
    snprintf(text, sizeof text, "the RDMA device has refused work: %s", strerror(channel->out.error));
    verbs_channel_broken(channel, BPS_ERR_IO, text);
}

static void work(void *arg)
{
    struct bps_channel *channel = arg;
    verbs_hold(channel);
    if (channel->state == VERBS_DIALLING && channel->dial->left == 0) {
        verbs_connect_lost(channel);
    }
    if (channel->state == VERBS_ACCEPTING) {
        verbs_welcome(channel); /* a message has overtaken the news that the connection stands */
    }
    if (channel->state == VERBS_OPEN && channel->out.error != 0) {
        refused(channel);
    }
    if (channel->state == VERBS_OPEN) {
        verbs_receive(channel);
    }
    if (channel->state == VERBS_OPEN) {
        /* Before the peer hears of its credits: else its messages may find no buffer, and wait. */
        verbs_slots_repost(channel->pair->device);
        verbs_send(channel);
    }
    verbs_leave(channel);
}

/* Receive buffers that those who had a turn have left behind. */
static void repost(void *arg)
{
    const struct verbs *verbs = arg;
    struct verbs_device *device;
    LIST_FOREACH(device, &verbs->devices, entry) {
        verbs_slots_repost(device);
    }
}

void verbs_turns_init(struct verbs *verbs)
{
    bps_util_turns_init(&verbs->turns, verbs->host, work, repost, verbs);
}
