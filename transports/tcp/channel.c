/* SPDX-License-Identifier: Apache-2.0 */
/* channel.c - the life of a channel: its socket, its turns, and its end. */
#include "tcp.h"

#include <errno.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ---- turns ---- */

void tcp_channel_work(void *arg)
{
    struct bps_channel *channel = arg;
    tcp_hold(channel);
    if (channel->state == TCP_DIALLING) {
        tcp_dial_continue(channel);
    }
    if (channel->state == TCP_OPEN && channel->readable) {
        tcp_receive(channel);
    }
    if (channel->state == TCP_OPEN) {
        tcp_send(channel);
    }
    tcp_release(channel);
}

void tcp_channel_queue(struct bps_channel *channel)
{
    if (channel->state != TCP_DEAD) {
        bps_util_turn_queue(&channel->tcp->turns, &channel->turn);
    }
}

static void on_event(void *arg, uint32_t events)
{
    struct bps_channel *channel = arg;
    tcp_hold(channel);
    if (channel->state == TCP_DIALLING) {
        tcp_dial_continue(channel);
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
    tcp_release(channel);
}

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

bool tcp_channel_attach(struct bps_channel *channel, int fd)
{
    const struct bps_host *host = channel->tcp->host;
    channel->watch = host->watch(host, fd, on_event, channel);
    if (channel->watch == NULL) {
        return false;
    }
    channel->fd = fd;
    return true;
}

void tcp_channel_detach(struct bps_channel *channel)
{
    const struct bps_host *host = channel->tcp->host;
    bps_util_cancel(host, &channel->timer);
    if (channel->fd >= 0) {
        bps_util_fork_hold();
        host->unwatch(host, channel->watch);
        close(channel->fd);
        bps_util_fork_release();
        channel->fd = -1;
    }
}

static void channel_free(struct bps_channel *channel)
{
    tcp_dial_free(channel);
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

void tcp_channel_end(struct bps_channel *channel, bps_status status, const char *text)
{
    if (channel->state == TCP_DEAD) {
        return;
    }
    tcp_hold(channel);
    channel_kill(channel);
    channel->events->closed(channel->user, status, text);
    tcp_release(channel);
}

void tcp_channel_fail(struct bps_channel *channel, const char *call, int error)
{
    char reason[100], text[160];
    tcp_reason(channel->tcp, error, reason, sizeof reason);
    if (error == ETIMEDOUT) {
        tcp_channel_end(channel, BPS_ERR_TIMEOUT, reason);
        return;
    }
    snprintf(text, sizeof text, "%s: %s", call, reason);
    tcp_channel_end(channel, BPS_ERR_IO, text);
}

void tcp_drop(struct bps_channel *channel)
{
    if (channel == NULL || channel->state == TCP_DEAD) {
        return;
    }
    tcp_hold(channel);
    channel_kill(channel);
    tcp_release(channel);
}

/* ---- the end in order ---- */

static void linger(struct bps_channel *channel);

static void on_linger(void *arg)
{
    struct bps_channel *channel = arg;
    int left = 0;
    channel->timer = NULL;
    (void)ioctl(channel->fd, SIOCOUTQ, &left);
    if (channel->progress || left != channel->left) {
        channel->left = left;
        linger(channel);
    } else {
        tcp_channel_end(channel, BPS_ERR_TIMEOUT,
                        channel->shut ? "the peer has not closed the connection within 5 s"
                                      : "the peer has not taken what was left to send within 5 s");
    }
}

/* The end waits for the peer as long as that takes bytes, but not for ever. */
static void linger(struct bps_channel *channel)
{
    const struct bps_host *host = channel->tcp->host;
    channel->progress = false;
    if (channel->timer == NULL) {
        channel->timer = host->timer(host, TCP_LINGER, 0, on_linger, channel);
    }
}

void tcp_channel_open(struct bps_channel *channel)
{
    channel->state = TCP_OPEN;
    bps_util_cancel(channel->tcp->host, &channel->timer);
    tcp_silence_watch(channel->tcp);
    tcp_send_room(channel);
    if (channel->finishing) {
        linger(channel);
    }
}

void tcp_finish(struct bps_channel *channel)
{
    if (channel->state == TCP_DEAD || channel->finishing) {
        return;
    }
    channel->finishing = true;
    if (channel->state == TCP_OPEN) {
        linger(channel);
    }
    tcp_kick(channel);
}

/* ---- what the core asks ---- */

void tcp_kick(struct bps_channel *channel)
{
    channel->out.kicked = true;
    if (channel->state == TCP_OPEN && channel->out.writable) {
        tcp_channel_queue(channel);
    }
}
