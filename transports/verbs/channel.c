/* SPDX-License-Identifier: Apache-2.0 */
/* channel.c - what every part may do with a channel: open it, give it a turn, note that it is to end. */
#include "verbs.h"

/* ---- turns ---- */

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

void verbs_kick(struct bps_channel *channel)
{
    channel->out.kicked = !channel->out.finished; /* after its last BPS_AGAIN `next` is not asked again */
    if (channel->state == VERBS_OPEN) {
        verbs_channel_queue(channel);
    }
}

/* ---- the end ---- */

void verbs_channel_end(struct bps_channel *channel, bps_status status, const char *reason)
{
    if (!verbs_is_over(channel)) {
        channel->state = VERBS_ENDING;
        channel->status = status;
        snprintf(channel->reason, sizeof channel->reason, "%s", reason);
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
        verbs_channel_queue(channel);
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
