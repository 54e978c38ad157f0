/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resume.c - a channel that outlives its queue pair, where there are several ways to the peer.
 *
 * When a way is lost, the channel is suspended; the side that has dialled connects again, over the next rail
 * or to the next address. Both say how many messages they have received, and the new queue pair takes over
 * from the former one: messages that were lost are sent again, they lie in their slots until the peer has
 * dealt with them, and pieces that have not been read are read again. Each device has its own keys, so the
 * peer is told new ones first. Only who has something under way notices a loss: so the side that dials probes
 * once a second. It leaves an own port that is down at once.
 */
#include "verbs.h"

#include <string.h>

#define PROBE_PERIOD 1000000000ull /* ns */
#define DETECTION    4u            /* devices give up after up to so many times what they were asked for */

/* ---- suspended ---- */

/* Who has said all may not learn whether the peer has heard it. */
bps_status verbs_status_of_loss(const struct bps_channel *channel)
{
    return channel->out.finished ? BPS_OK : BPS_ERR_TIMEOUT;
}

static void on_timeout(void *arg)
{
    struct bps_channel *channel = arg;
    channel->timer = NULL;
    verbs_channel_end(channel, verbs_status_of_loss(channel), channel->lost);
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
        verbs_dial_again(channel);
    } else {
        await_peer(channel);
    }
    return true;
}

/* ---- resumed ---- */

static bool fits(const struct verbs_pair *pair, const struct verbs_pair *former)
{
    const struct verbs_terms *a = &pair->peer, *b = &former->peer;
    return former->slot - a->received <= b->credits && a->credits == b->credits && a->eager == b->eager &&
           a->block == b->block;
}

void verbs_resume(struct bps_channel *channel)
{
    struct verbs_pair *pair = channel->pair, *former = channel->former;
    if (!fits(pair, former)) {
        verbs_channel_end(channel, BPS_ERR_PROTOCOL, "the peer has resumed a different connection");
        return;
    }
    uint32_t missing = former->slot - pair->peer.received;
    verbs_pair_inherit(pair, former);
    channel->former = NULL;
    verbs_pair_leave(former);
    bps_util_cancel(channel->verbs->host, &channel->timer);
    channel->out.finish_done = channel->out.finished && missing == 0;
    if (!verbs_send_again(channel, missing)) {
        verbs_channel_end(channel, BPS_ERR_IO, "another RDMA device does not know the memory of a frame");
        return;
    }
    verbs_channel_open(channel);
}

struct bps_channel *verbs_channel_of(const struct verbs *verbs, uint64_t token)
{
    struct bps_channel *channel;
    LIST_FOREACH(channel, &verbs->channels, entry) {
        if (channel->token == token && channel->dial == NULL &&
            (channel->state == VERBS_OPEN || channel->state == VERBS_SUSPENDED)) {
            return channel;
        }
    }
    return NULL;
}

/* ---- ports that are down ---- */

static void leave_port(struct verbs *verbs, const struct verbs_rail *rail)
{
    struct bps_channel *channel;
    char text[32];
    snprintf(text, sizeof text, "port %u is down", rail->port);
    LIST_FOREACH(channel, &verbs->channels, entry) {
        if (channel->state == VERBS_OPEN && channel->dial != NULL && channel->pair->device == rail->device &&
            channel->id->port_num == rail->port) {
            (void)verbs_suspend(channel, text); /* false: it has nothing more to send or to receive */
        }
    }
}

void verbs_leave_ports(struct verbs *verbs)
{
    bool active[VERBS_RAILS], any = false;
    for (uint32_t i = 0; i < verbs->nrails; i++) {
        active[i] = verbs_port_is_active(verbs->rails[i].device->context, verbs->rails[i].port);
        any = any || active[i];
    }
    for (uint32_t i = 0; i < verbs->nrails && any; i++) {
        if (!active[i]) {
            leave_port(verbs, &verbs->rails[i]);
        }
    }
}

/* ---- probes ---- */

/* Only one instance of a process reads an event of a device: the others see here that a port is down. */
static void probe_all(void *arg)
{
    struct verbs *verbs = arg;
    struct bps_channel *channel;
    verbs_leave_ports(verbs);
    LIST_FOREACH(channel, &verbs->channels, entry) {
        struct verbs_pair *pair = channel->pair;
        if (channel->state == VERBS_OPEN && channel->token != 0 && channel->dial != NULL && !pair->probing &&
            verbs_post_room(pair)) {
            verbs_post_probe(pair);
        }
    }
}

void verbs_probe_start(struct verbs *verbs)
{
    if (verbs->probe == NULL) {
        verbs->probe = verbs->host->timer(verbs->host, PROBE_PERIOD, PROBE_PERIOD, probe_all, verbs);
    }
}

void verbs_probe_stop(struct verbs *verbs)
{
    bps_util_cancel(verbs->host, &verbs->probe);
}
