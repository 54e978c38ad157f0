/* SPDX-License-Identifier: Apache-2.0 */
/* channel.c - the life of a channel: its turns, and its end. */
#include "verbs.h"

#include <string.h>

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
        verbs_dial_lost(channel);
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
    verbs_release(channel);
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

void verbs_channel_queue(struct bps_channel *channel)
{
    if (channel->state != VERBS_DEAD) {
        bps_util_turn_queue(&channel->verbs->turns, &channel->turn);
    }
}

void verbs_channel_wait(struct bps_channel *channel)
{
    if (!channel->starved) {
        channel->starved = true;
        TAILQ_INSERT_TAIL(&channel->verbs->starved, channel, starving);
    }
}

void verbs_wake_starved(struct verbs *verbs)
{
    while (!TAILQ_EMPTY(&verbs->starved)) {
        struct bps_channel *channel = TAILQ_FIRST(&verbs->starved);
        TAILQ_REMOVE(&verbs->starved, channel, starving);
        channel->starved = false;
        verbs_channel_queue(channel);
    }
}

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

void verbs_release(struct bps_channel *channel)
{
    channel->holders--;
    if (channel->holders == 0 && channel->state == VERBS_DEAD) {
        verbs_dial_free(channel);
        channel->verbs->host->release(channel->verbs->host, channel);
    }
}

void verbs_channel_detach(struct bps_channel *channel)
{
    if (channel->starved) {
        TAILQ_REMOVE(&channel->verbs->starved, channel, starving);
        channel->starved = false;
    }
    if (channel->id != NULL) {
        channel->id->context = NULL;
    }
    if (channel->pair != NULL) {
        channel->pair->channel = NULL;
    }
    channel->pair = NULL;
    channel->id = NULL;
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

void verbs_channel_end(struct bps_channel *channel, bps_status status, const char *text)
{
    if (channel->state == VERBS_DEAD) {
        return;
    }
    verbs_hold(channel);
    channel_kill(channel);
    if (channel->events != NULL) {
        channel->events->closed(channel->user, status, text);
    }
    verbs_release(channel);
}

void verbs_drop(struct bps_channel *channel)
{
    if (channel == NULL || channel->state == VERBS_DEAD) {
        return;
    }
    verbs_hold(channel);
    channel_kill(channel);
    verbs_release(channel);
}

void verbs_channel_lost(struct bps_channel *channel, bps_status status, const char *text)
{
    verbs_hold(channel);
    channel->out.lost = true;
    while (verbs_receive(channel)) {
    }
    if (channel->state == VERBS_OPEN && channel->out.finished) {
        verbs_channel_end(channel, BPS_OK, "closed");
    } else {
        verbs_channel_end(channel, status, text);
    }
    verbs_release(channel);
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

/* ---- the end in order ---- */

static void linger(struct bps_channel *channel);

static void on_linger(void *arg)
{
    struct bps_channel *channel = arg;
    channel->timer = NULL;
    if (channel->progress) {
        linger(channel);
    } else {
        verbs_channel_end(channel, BPS_ERR_TIMEOUT,
                          channel->out.finish_done ? "the peer has not closed the connection within 5 s"
                                                   : "the peer has not taken what was left to send within 5 s");
    }
}

/* The end waits for the peer as long as that takes bytes, but not for ever. */
static void linger(struct bps_channel *channel)
{
    const struct bps_host *host = channel->verbs->host;
    channel->progress = false;
    if (channel->timer == NULL) {
        channel->timer = host->timer(host, VERBS_LINGER, 0, on_linger, channel);
    }
}

void verbs_channel_open(struct bps_channel *channel)
{
    channel->state = VERBS_OPEN;
    verbs_channel_queue(channel);
    if (channel->finishing) {
        linger(channel);
    }
}

void verbs_finish(struct bps_channel *channel)
{
    if (channel->state == VERBS_DEAD || channel->finishing) {
        return;
    }
    channel->finishing = true;
    if (channel->state == VERBS_OPEN) {
        linger(channel);
    }
    verbs_kick(channel);
}

/* ---- what the core asks ---- */

void verbs_kick(struct bps_channel *channel)
{
    channel->out.kicked = true;
    if (channel->state == VERBS_OPEN) {
        verbs_channel_queue(channel);
    }
}

void verbs_local_host(struct bps_channel *channel, char *host, size_t n)
{
    snprintf(host, n, "%s", "");
    if (channel->id != NULL) {
        bps_util_host_text(rdma_get_local_addr(channel->id), host, n);
    }
}
