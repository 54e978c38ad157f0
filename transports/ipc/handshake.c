/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handshake.c - how a channel begins: hello (rings, eventfd), welcome (eventfd), ready.
 *
 * Each side tries whether it can read the other's memory and tells the other, since it is the sender of a
 * payload who has to know whether its receiver can fetch it.
 */
#include "ipc.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#define RING_MIN (16u << 10)
#define RING_MAX (16u << 20)

/* ---- what both sides do ---- */

static uint64_t nonce_address(const struct ipc *ipc)
{
    return (uintptr_t)&ipc->nonce;
}

/* Whether memory of the peer can be read here. */
static uint32_t try_peer(struct bps_channel *channel, const struct ipc_message *message)
{
    channel->nonce_at = message->nonce_at;
    channel->nonce = message->nonce;
    uint32_t copy = channel->ipc->options.copy;
    if (copy != IPC_COPY_AUTO && copy != IPC_COPY_REMOTE) {
        return IPC_NONE;
    }
    return ipc_remote_try(channel->pid, message->nonce_at, message->nonce);
}

/*
 * The kernel shows no type for what has no file: the peer cannot make us write to a file, a socket or a pipe.
 */
static bool take_event(struct bps_channel *channel, int *fd)
{
    struct stat file;
    if (channel->event >= 0 || *fd < 0 || fstat(*fd, &file) != 0 || (file.st_mode & S_IFMT) != 0 ||
        !bps_util_nonblock(*fd)) {
        return false;
    }
    bps_util_fork_hold();
    channel->event = *fd;
    *fd = -1;
    bps_util_fork_release();
    return true;
}

static void use_ring(struct bps_channel *channel, void *shared, uint32_t bytes)
{
    const struct ipc_options *options = &channel->ipc->options;
    uint32_t quarter = bytes / 4 - IPC_HEAD;
    ipc_ring_init(&channel->ring, shared, bytes, channel->accept == NULL);
    channel->inline_max = options->inline_bytes < quarter ? (uint32_t)options->inline_bytes : quarter;
    channel->piece = quarter;
}

/* Both ends are ready: frames may travel. */
static void open_channel(struct bps_channel *channel)
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

/* ---- the dialler ---- */

int ipc_handshake_begin(struct bps_channel *channel)
{
    struct ipc *ipc = channel->ipc;
    uint32_t ring = (uint32_t)ipc->options.ring;
    const struct ipc_message hello = {
        .type = IPC_HELLO, .ring = ring, .nonce = ipc->nonce, .nonce_at = nonce_address(ipc)};
    void *memory;
    if (!ipc_memory_make("byteps-ring", ipc_ring_size(ring), &channel->fds[0], &memory)) {
        return errno;
    }
    use_ring(channel, memory, ring);
    int error = ipc_message_send(channel->fd, &hello, (int[]){channel->fds[0], ipc->event}, 2);
    ipc_fork_close(&channel->fds[0]);
    channel->state = IPC_GREETING;
    return error;
}

static bool on_welcome(struct bps_channel *channel, const struct ipc_message *message)
{
    struct ipc_message ready = {.type = IPC_READY};
    if (message->type != IPC_WELCOME || channel->fds[1] >= 0 || !take_event(channel, &channel->fds[0])) {
        return false;
    }
    channel->reach = message->reach;
    ready.reach = try_peer(channel, message);
    if (ipc_message_send(channel->fd, &ready, NULL, 0) != 0) {
        return true; /* the peer has gone, as will be read soon */
    }
    open_channel(channel);
    channel->events->connected(channel->user);
    return true;
}

/* ---- the acceptor ---- */

static bool on_hello(struct bps_channel *channel, const struct ipc_message *message)
{
    struct ipc *ipc = channel->ipc;
    int *fds = channel->fds;
    struct ipc_message welcome = {.type = IPC_WELCOME, .nonce = ipc->nonce, .nonce_at = nonce_address(ipc)};
    uint32_t ring = message->ring;
    bool allocated;
    if (message->type != IPC_HELLO || ring < RING_MIN || ring > RING_MAX || (ring & (ring - 1)) != 0 || fds[0] < 0 ||
        !take_event(channel, &fds[1])) {
        return false;
    }
    void *memory = ipc_memory_map(fds[0], ipc_ring_size(ring), 0, &allocated);
    if (memory == NULL) {
        return false;
    }
    use_ring(channel, memory, ring);
    welcome.reach = try_peer(channel, message);
    (void)ipc_message_send(channel->fd, &welcome, &ipc->event, 1);
    return true;
}

static bool on_ready(struct bps_channel *channel, const struct ipc_message *message)
{
    bps_accept_fn accept = channel->accept;
    const struct bps_channel_key *key;
    if (message->type != IPC_READY || channel->fds[0] >= 0) {
        return false;
    }
    channel->reach = message->reach;
    const struct bps_channel_events *events = accept(channel->accept_arg, channel, channel->peer, &channel->user, &key);
    if (channel->state == IPC_DEAD) {
        return true;
    }
    channel->events = events;
    if (events == NULL) {
        ipc_channel_end(channel, BPS_OK, NULL);
        return true;
    }
    channel->accept = NULL;
    open_channel(channel);
    return true;
}

/* ---- turns ---- */

static bool greet(struct bps_channel *channel, const struct ipc_message *message)
{
    if (channel->accept == NULL) {
        return on_welcome(channel, message);
    }
    return channel->ring.shared == NULL ? on_hello(channel, message) : on_ready(channel, message);
}

static const char *reason(bps_status status)
{
    switch (status) {
    case BPS_ERR_IO:
        return "connection closed by peer";
    case BPS_ERR_NOMEM:
        return "out of file descriptors (see ulimit -n of this process)";
    default:
        return "it is not a peer of this transport, or has another version";
    }
}

void ipc_handshake_continue(struct bps_channel *channel)
{
    while (channel->state == IPC_GREETING && channel->readable) {
        struct ipc_message message;
        bps_status status = ipc_channel_receive(channel, &message);
        if (status == BPS_AGAIN) {
            channel->readable = false;
            return;
        }
        if (status == BPS_OK && !greet(channel, &message)) {
            status = BPS_ERR_PROTOCOL;
        }
        ipc_channel_close_fds(channel);
        if (status != BPS_OK) {
            ipc_channel_end(channel, status, reason(status));
        }
    }
}
