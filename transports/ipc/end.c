/* SPDX-License-Identifier: Apache-2.0 */
/*
 * end.c - the end in order. Who finishes sends what is left, waits until the peer has fetched what it has to
 * fetch, and closes its end of the socket; the peer then takes what is still in the ring, and closes as well.
 */
#include "ipc.h"

#include <poll.h>
#include <sys/socket.h>

static void linger(struct bps_channel *channel);

static uint64_t progress(const struct bps_channel *channel)
{
    return channel->ring.peer_head + channel->ring.head;
}

static void on_linger(void *arg)
{
    struct bps_channel *channel = arg;
    channel->timer = NULL;
    if (progress(channel) != channel->seen) {
        linger(channel);
        return;
    }
    ipc_channel_end(channel, BPS_ERR_TIMEOUT,
                    channel->shut ? "the peer has not closed the connection within 5 s"
                                  : "the peer has not taken what was left to send within 5 s");
    ipc_channel_queue(channel);
}

/* The end waits for the peer as long as that takes frames, but not for ever. */
static void linger(struct bps_channel *channel)
{
    const struct bps_host *host = channel->ipc->host;
    channel->seen = progress(channel);
    channel->timer = host->timer(host, IPC_LINGER, 0, on_linger, channel);
}

void ipc_finish(struct bps_channel *channel)
{
    if (channel->state == IPC_DEAD || channel->finishing) {
        return;
    }
    channel->finishing = true;
    if (channel->state == IPC_OPEN) {
        linger(channel);
    }
    ipc_kick(channel);
}

/* Not only its end of the stream: the socket itself is closed. */
static bool peer_is_gone(const struct bps_channel *channel)
{
    struct pollfd socket = {.fd = channel->fd};
    return poll(&socket, 1, 0) > 0 && (socket.revents & POLLHUP) != 0;
}

void ipc_end_continue(struct bps_channel *channel)
{
    bool sent = !channel->kicked && channel->stream.header == NULL && channel->tickets.first == IPC_NONE;
    if (!channel->finishing) {
        if (channel->eof && !ipc_ring_ready(&channel->ring)) {
            ipc_channel_end(channel, BPS_ERR_IO,
                            channel->sink != NULL ? "connection closed by peer in the middle of a frame"
                                                  : "connection closed by peer");
        }
        return;
    }
    bool gone = channel->eof && (channel->shut || peer_is_gone(channel));
    if (gone) {
        ipc_channel_end(channel, sent ? BPS_OK : BPS_ERR_IO, sent ? "closed" : "connection closed by peer");
    } else if (sent && !channel->shut) {
        channel->shut = true;
        shutdown(channel->fd, SHUT_WR);
        if (channel->eof) {
            ipc_channel_end(channel, BPS_OK, "closed");
        }
    }
}
