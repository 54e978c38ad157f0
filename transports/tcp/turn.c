/* SPDX-License-Identifier: Apache-2.0 */
/*
 * turn.c - the life of a channel: its turns, its end, and what is freed with it.
 *
 * The core is called back within turns, and may drop the channel then; a part that finds that the channel must end
 * notes that (tcp_channel_end). So whoever calls back looks afterwards whether the channel is still open. What was
 * noted is done when the turn is over.
 */
#include "tcp.h"

/* ---- life ---- */

struct bps_channel *tcp_channel_new(struct tcp *tcp)
{
    struct bps_channel *channel = tcp->host->alloc(tcp->host, sizeof *channel, 64);
    if (channel == NULL) {
        return NULL;
    }
    *channel = (struct bps_channel){.turn.arg = channel, .tcp = tcp, .state = TCP_DIALLING, .fd = -1};
    LIST_INSERT_HEAD(&tcp->channels, channel, entry);
    return channel;
}

static void channel_free(struct bps_channel *channel)
{
    tcp_connect_free(channel);
    channel->tcp->host->release(channel->tcp->host, channel);
}

void tcp_hold(struct bps_channel *channel)
{
    channel->holders++;
}

void tcp_release(struct bps_channel *channel)
{
    channel->holders--;
    if (channel->holders == 0 && channel->state == TCP_DEAD) {
        channel_free(channel);
    }
}

/* From here on nothing calls back. */
static void channel_kill(struct bps_channel *channel)
{
    channel->state = TCP_DEAD;
    tcp_channel_detach(channel);
    LIST_REMOVE(channel, entry);
    bps_util_turn_remove(&channel->tcp->turns, &channel->turn);
}

/* A turn is over. */
static void leave(struct bps_channel *channel)
{
    if (channel->state == TCP_ENDING) {
        channel_kill(channel);
        channel->events->closed(channel->user, channel->status, channel->reason);
    }
    tcp_release(channel);
}

void tcp_drop(struct bps_channel *channel)
{
    if (channel != NULL && channel->state != TCP_DEAD) {
        tcp_hold(channel);
        channel_kill(channel);
        tcp_release(channel);
    }
}

/* ---- turns ---- */

void tcp_channel_work(void *arg)
{
    struct bps_channel *channel = arg;
    tcp_hold(channel);
    if (channel->state == TCP_DIALLING) {
        tcp_connect_continue(channel);
    }
    if (channel->state == TCP_OPEN && channel->readable) {
        tcp_receive(channel);
    }
    if (channel->state == TCP_OPEN) {
        tcp_send(channel);
    }
    leave(channel);
}

void tcp_channel_event(void *arg, uint32_t events)
{
    struct bps_channel *channel = arg;
    tcp_hold(channel);
    if (channel->state == TCP_DIALLING) {
        tcp_connect_continue(channel);
    }
    channel->hangup = channel->hangup || (events & BPS_HANGUP) != 0;
    if (channel->state == TCP_OPEN && (events & BPS_WRITABLE) != 0) {
        tcp_send_room(channel);
    }
    /* A channel that waits for its next turn has used up this one. */
    if (channel->state == TCP_OPEN && (events & BPS_READABLE) != 0 && !channel->readable) {
        channel->readable = true;
        tcp_receive(channel);
    }
    leave(channel);
}
