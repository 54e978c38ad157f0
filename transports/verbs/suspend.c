/* SPDX-License-Identifier: Apache-2.0 */
/*
 * suspend.c - a channel that outlives its queue pair, where there are several ways to the peer.
 *
 * When a way is lost, the channel is suspended; the side that has dialled connects again, over the next rail
 * or to the next address. Both say how many messages they have received, and the new queue pair takes over
 * from the former one: messages that were lost are sent again, they lie in their slots until the peer has
 * dealt with them, and pieces that have not been read are read again. Each device has its own keys, so the
 * peer is told new ones first.
 */
#include "verbs.h"

#define DETECTION 4u /* devices give up after up to so many times what they were asked for */

uint64_t verbs_patience(const struct verbs_options *o)
{
    return (4096ull << o->ack_timeout) * (uint64_t)(o->retry_count + 1);
}

static void on_timeout(void *arg)
{
    struct bps_channel *channel = arg;
    channel->timer = NULL;
    verbs_channel_end(channel, verbs_status_of_loss(channel), channel->lost);
    verbs_channel_queue(channel);
}

/* So long the peer may take to notice, and to try all ways. */
static uint64_t longest_wait(const struct verbs *verbs)
{
    return DETECTION * verbs_patience(&verbs->options) + VERBS_RAILS * verbs->options.timeout;
}

static void await_peer(struct bps_channel *channel)
{
    struct verbs *verbs = channel->verbs;
    channel->state = VERBS_SUSPENDED;
    channel->timer = verbs->host->timer(verbs->host, longest_wait(verbs), 0, on_timeout, channel);
}

bool verbs_suspend(struct bps_channel *channel, const char *text)
{
    struct verbs_pair *pair = channel->pair;
    const struct bps_host *host = channel->verbs->host;
    bool over = channel->out.finished && channel->eof;
    if (channel->token == 0 || channel->state != VERBS_OPEN || over) {
        return false;
    }
    verbs_pair_halt(pair);
    host->log(host, BPS_LOG_WARN, "device %s: %s; going on over other ways to the peer",
              ibv_get_device_name(pair->device->context->device), text);
    snprintf(channel->lost, sizeof channel->lost, "%s", text);
    verbs_channel_detach(channel);
    channel->former = pair;
    channel->out.error = 0;
    bps_util_cancel(channel->verbs->host, &channel->timer);
    if (channel->dial != NULL) {
        channel->state = VERBS_DIALLING;
        verbs_connect_again(channel);
    } else {
        await_peer(channel);
    }
    return true;
}
