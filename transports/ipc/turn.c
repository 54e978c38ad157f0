/* SPDX-License-Identifier: Apache-2.0 */
/*
 * turn.c - the life of a channel: its socket, its turns, its end, and what is freed with it.
 *
 * The core is called back within turns only. It may drop the channel then, and a part that finds that the channel must
 * end notes that (ipc_channel_end); so whoever calls back looks afterwards whether the channel is still open. What was
 * noted is done when the turn is over.
 */
#include "ipc.h"

#include <string.h>
#include <unistd.h>

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

/* Tells the core, or the log where the core has not heard of the channel. */
static void tell(const struct bps_channel *channel)
{
    const struct bps_host *host = channel->ipc->host;
    bps_status status = channel->status;
    if (channel->events != NULL) {
        channel->events->closed(channel->user, status, channel->reason);
    } else if (channel->reason != NULL) {
        host->log(host, status == BPS_ERR_IO ? BPS_LOG_DEBUG : BPS_LOG_WARN, "refused %s: %s", channel->peer,
                  channel->reason);
    }
}

static void hold(struct bps_channel *channel)
{
    channel->holders++;
}

static void release(struct bps_channel *channel)
{
    channel->holders--;
    if (channel->holders == 0 && channel->state == IPC_DEAD) {
        channel_free(channel);
    }
}

/* A turn is over. */
static void leave(struct bps_channel *channel)
{
    if (channel->state == IPC_ENDING) {
        channel_kill(channel);
        tell(channel);
    }
    release(channel);
}

void ipc_drop(struct bps_channel *channel)
{
    if (channel != NULL && channel->state != IPC_DEAD) {
        hold(channel);
        channel_kill(channel);
        release(channel);
    }
}

/* ---- turns ---- */

/* How far the peer has come is asked only if something waits for that: the line travels from core to core. */
static bool reap_if_needed(struct bps_channel *channel)
{
    return !ipc_waits(channel) || ipc_reap(channel);
}

/* Does what there is to do for an open channel. */
static void exchange(struct bps_channel *channel)
{
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
}

void ipc_channel_turn(struct bps_channel *channel)
{
    hold(channel);
    exchange(channel);
    leave(channel);
}

void ipc_channel_work(void *arg)
{
    struct bps_channel *channel = arg;
    hold(channel);
    if (channel->state == IPC_DIALLING || channel->failure[0] != '\0') {
        ipc_connect_continue(channel);
    }
    if (channel->state == IPC_GREETING) {
        ipc_handshake_continue(channel);
    }
    if (channel->state == IPC_OPEN) {
        exchange(channel);
    }
    leave(channel);
}

/* The socket tells of messages, of the peer's end, and that there is room for messages that wait. */
static void on_event(void *arg, uint32_t events)
{
    struct bps_channel *channel = arg;
    if (channel->state == IPC_DIALLING) {
        return; /* not connected */
    }
    channel->readable = channel->readable || (events & BPS_READABLE) != 0;
    if ((events & BPS_WRITABLE) != 0 && channel->state == IPC_OPEN) {
        ipc_posts_flush(channel);
    }
    if (!channel->turn.queued) {
        ipc_channel_work(channel);
    }
}

/* ---- beginning ---- */

struct bps_channel *ipc_channel_new(struct ipc *ipc)
{
    struct bps_channel *channel = ipc->host->alloc(ipc->host, sizeof *channel, 64);
    if (channel == NULL) {
        return NULL;
    }
    *channel = (struct bps_channel){.turn.arg = channel, .ipc = ipc, .state = IPC_DIALLING, .fd = -1, .event = -1};
    channel->arena.fd = -1;
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
