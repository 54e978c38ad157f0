/* SPDX-License-Identifier: Apache-2.0 */
/* channel.c - what every part may do with a channel: its socket, its next turn, noting that it is to end. */
#include "tcp.h"

#include <errno.h>
#include <unistd.h>

/* ---- socket ---- */

bool tcp_channel_attach(struct bps_channel *channel, int fd)
{
    const struct bps_host *host = channel->tcp->host;
    channel->watch = host->watch(host, fd, channel->tcp->on_event, channel);
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

/* ---- turns ---- */

void tcp_channel_queue(struct bps_channel *channel)
{
    if (channel->state != TCP_DEAD) {
        bps_util_turn_queue(&channel->tcp->turns, &channel->turn);
    }
}

void tcp_kick(struct bps_channel *channel)
{
    channel->out.kicked = true;
    if (channel->state == TCP_OPEN && channel->out.writable) {
        tcp_channel_queue(channel);
    }
}

/* ---- end ---- */

void tcp_channel_end(struct bps_channel *channel, bps_status status, const char *reason)
{
    if (channel->state != TCP_ENDING && channel->state != TCP_DEAD) {
        channel->state = TCP_ENDING;
        channel->status = status;
        snprintf(channel->reason, sizeof channel->reason, "%s", reason);
    }
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
