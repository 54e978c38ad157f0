/* SPDX-License-Identifier: Apache-2.0 */
/* channel.c - the life of a channel: its socket, its turns, and what is freed with it. */
#include "ipc.h"

#include <string.h>
#include <unistd.h>

/* ---- turns ---- */

/* How far the peer has come is asked only if something waits for that: the line travels from core to core. */
static bool reap_if_needed(struct bps_channel *channel)
{
    return !ipc_waits(channel) || ipc_reap(channel);
}

void ipc_channel_turn(struct bps_channel *channel)
{
    ipc_hold(channel);
    if (channel->readable) {
        ipc_messages_receive(channel);
    }
    channel->sends = true;
    if (channel->state == IPC_OPEN && reap_if_needed(channel) && ipc_receive(channel)) {
        ipc_send(channel);
    }
    channel->sends = false;
    if (channel->state == IPC_OPEN) {
        ipc_end_continue(channel);
    }
    ipc_release(channel);
}

void ipc_channel_work(void *arg)
{
    struct bps_channel *channel = arg;
    ipc_hold(channel);
    if (channel->state == IPC_DIALLING || channel->failure[0] != '\0') {
        ipc_dial_continue(channel);
    }
    if (channel->state == IPC_GREETING) {
        ipc_handshake_continue(channel);
    }
    if (channel->state == IPC_OPEN) {
        ipc_channel_turn(channel);
    }
    ipc_release(channel);
}

void ipc_channel_queue(struct bps_channel *channel)
{
    if (channel->state != IPC_DEAD) {
        bps_util_turn_queue(&channel->ipc->turns, &channel->turn);
    }
}

/* The socket tells of messages, of the peer's end, and that there is room for messages that wait. */
static void on_event(void *arg, uint32_t events)
{
    struct bps_channel *channel = arg;
    if (channel->state == IPC_DIALLING) {
        return; /* not connected */
    }
    channel->readable = channel->readable || (events & BPS_READABLE) != 0;
    ipc_hold(channel);
    if ((events & BPS_WRITABLE) != 0 && channel->state == IPC_OPEN) {
        ipc_posts_flush(channel);
    }
    if (!channel->turn.queued) {
        ipc_channel_work(channel);
    }
    ipc_release(channel);
}

/* ---- beginning ---- */

struct bps_channel *ipc_channel_new(struct ipc *ipc)
{
    struct bps_channel *channel = ipc->host->alloc(ipc->host, sizeof *channel, 64);
    if (channel == NULL) {
        return NULL;
    }
    *channel = (struct bps_channel){.turn.arg = channel, .ipc = ipc, .state = IPC_DIALLING, .fd = -1, .event = -1};
    memset(channel->fds, -1, sizeof channel->fds);
    channel->tickets.free = channel->tickets.first = channel->tickets.last = IPC_NONE;
    STAILQ_INIT(&channel->posts);
    LIST_INIT(&channel->loans);
    LIST_INSERT_HEAD(&ipc->channels, channel, entry);
    ipc_fork_add(channel);
    return channel;
}

bool ipc_channel_attach(struct bps_channel *channel, int fd)
{
    const struct bps_host *host = channel->ipc->host;
    channel->watch = host->watch(host, fd, on_event, channel);
    if (channel->watch == NULL) {
        return false;
    }
    channel->fd = fd;
    return true;
}

static void on_hurry(void *arg)
{
    struct bps_channel *channel = arg;
    channel->timer = NULL;
    ipc_channel_end(channel, BPS_ERR_TIMEOUT, "the peer has not answered in time");
}

void ipc_channel_hurry(struct bps_channel *channel)
{
    const struct ipc *ipc = channel->ipc;
    channel->timer = ipc->host->timer(ipc->host, ipc->options.timeout, 0, on_hurry, channel);
}

void ipc_channel_open(struct bps_channel *channel)
{
    channel->state = IPC_OPEN;
    bps_util_cancel(channel->ipc->host, &channel->timer);
    ipc_regions_announce(channel);
    ipc_channel_queue(channel);
    if (channel->finishing) {
        channel->finishing = false;
        ipc_finish(channel);
    }
}

/* ---- messages ---- */

bps_status ipc_channel_receive(struct bps_channel *channel, struct ipc_message *message)
{
    bps_util_fork_hold();
    bps_status status = ipc_message_receive(channel->fd, message, channel->fds);
    bps_util_fork_release();
    return status;
}

void ipc_channel_close_fds(struct bps_channel *channel)
{
    for (unsigned i = 0; i < IPC_FDS_MAX; i++) {
        ipc_fork_close(&channel->fds[i]);
    }
}

/* ---- end ---- */

static void channel_free(struct bps_channel *channel)
{
    const struct bps_host *host = channel->ipc->host;
    ipc_loans_free(channel);
    ipc_peer_regions_free(channel);
    ipc_arena_free(channel);
    ipc_tickets_free(channel);
    ipc_posts_free(channel);
    bps_util_fork_hold();
    bps_util_fork_remove(&channel->forked);
    bps_util_fork_release();
    if (channel->ring.shared != NULL) {
        ipc_memory_unmap(channel->ring.shared, ipc_ring_size(channel->ring.bytes));
    }
    host->release(host, channel);
}

void ipc_hold(struct bps_channel *channel)
{
    channel->holders++;
}

void ipc_release(struct bps_channel *channel)
{
    channel->holders--;
    if (channel->holders == 0 && channel->state == IPC_DEAD) {
        channel_free(channel);
    }
}

/* From here on nothing calls back. */
static void channel_kill(struct bps_channel *channel)
{
    struct ipc *ipc = channel->ipc;
    channel->state = IPC_DEAD;
    bps_util_cancel(ipc->host, &channel->timer);
    if (channel->ring.shared != NULL) {
        ipc_remote_end(channel);
    }
    if (channel->fd >= 0) {
        bps_util_fork_hold();
        ipc->host->unwatch(ipc->host, channel->watch);
        close(channel->fd);
        bps_util_fork_release();
        channel->fd = -1;
    }
    ipc_fork_close(&channel->event);
    if (ipc->cursor == channel) {
        ipc->cursor = LIST_NEXT(channel, entry);
    }
    LIST_REMOVE(channel, entry);
    bps_util_turn_remove(&ipc->turns, &channel->turn);
}

void ipc_channel_end(struct bps_channel *channel, bps_status status, const char *text)
{
    const struct bps_host *host = channel->ipc->host;
    if (channel->state == IPC_DEAD) {
        return;
    }
    ipc_hold(channel);
    channel_kill(channel);
    if (channel->events != NULL) {
        channel->events->closed(channel->user, status, text);
    } else {
        host->log(host, status == BPS_ERR_IO ? BPS_LOG_DEBUG : BPS_LOG_WARN, "%s has not become a peer: %s",
                  channel->peer, text);
    }
    ipc_release(channel);
}

void ipc_drop(struct bps_channel *channel)
{
    if (channel == NULL || channel->state == IPC_DEAD) {
        return;
    }
    ipc_hold(channel);
    channel_kill(channel);
    ipc_release(channel);
}

/* ---- what the core asks ---- */

void ipc_kick(struct bps_channel *channel)
{
    channel->kicked = true;
    if (channel->state == IPC_OPEN && !channel->starved && !channel->sends) {
        ipc_channel_queue(channel);
    }
}

/* No address: peers on this host are found by the name of the socket. */
void ipc_local_host(struct bps_channel *channel, char *host, size_t n)
{
    (void)channel;
    snprintf(host, n, "%s", "");
}
