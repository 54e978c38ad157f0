/* SPDX-License-Identifier: Apache-2.0 */
/* dial.c - connecting to a peer. It succeeds or fails at once, unless too many others are connecting. */
#include "ipc.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define RETRY 5000000ull /* ns */

static void fail(struct bps_channel *channel, const char *call, int error)
{
    snprintf(channel->failure, sizeof channel->failure, "%s %s: %s", call, channel->address, strerror(error));
    ipc_channel_queue(channel);
}

static void on_timer(void *arg)
{
    struct bps_channel *channel = arg;
    channel->timer = NULL;
    ipc_channel_queue(channel);
}

/* False: the listener's queue is full. */
static bool connect_now(struct bps_channel *channel)
{
    struct sockaddr_un address;
    socklen_t length;
    uid_t uid;
    ipc_address_parse(channel->address, &address, &length);
    if (connect(channel->fd, (struct sockaddr *)&address, length) != 0) {
        if (errno == EAGAIN) {
            return false;
        }
        fail(channel, "connect", errno);
    } else if (!ipc_credentials(channel->fd, &channel->pid, &uid)) {
        snprintf(channel->failure, sizeof channel->failure, "connect %s: it belongs to another user (uid %u)",
                 channel->address, (unsigned)uid);
        ipc_channel_queue(channel);
    } else {
        int error = ipc_handshake_begin(channel);
        snprintf(channel->peer, sizeof channel->peer, "process %d", (int)channel->pid);
        ipc_channel_hurry(channel);
        if (error != 0) {
            fail(channel, "hello", error);
        }
    }
    return true;
}

void ipc_dial_continue(struct bps_channel *channel)
{
    const struct bps_host *host = channel->ipc->host;
    if (channel->failure[0] != '\0') {
        ipc_channel_end(channel, BPS_ERR_IO, channel->failure);
    } else if (channel->state == IPC_DIALLING && channel->timer == NULL && !connect_now(channel)) {
        if (host->now() > channel->deadline) {
            fail(channel, "connect", ETIMEDOUT);
            return;
        }
        channel->timer = host->timer(host, RETRY, 0, on_timer, channel);
        if (channel->timer == NULL) {
            fail(channel, "connect", ENOMEM);
        }
    }
}

/* A channel with a socket that is watched; NULL and an errno. */
static struct bps_channel *new_channel(struct ipc *ipc, int *error)
{
    bps_util_fork_hold();
    int fd = ipc_socket();
    *error = fd < 0 ? errno : ENOMEM;
    struct bps_channel *channel = fd >= 0 ? ipc_channel_new(ipc) : NULL;
    bool attached = channel != NULL && ipc_channel_attach(channel, fd);
    if (fd >= 0 && !attached) {
        close(fd);
    }
    bps_util_fork_release();
    if (channel != NULL && !attached) {
        ipc_drop(channel);
        return NULL;
    }
    return channel;
}

bps_status ipc_dial(void *instance, const char *address, uint32_t lane, const struct bps_channel_events *events,
                    void *user, struct bps_channel **out, struct bps_report *report)
{
    struct ipc *ipc = instance;
    struct sockaddr_un parsed;
    socklen_t length;
    (void)lane;
    if (!ipc_address_parse(address, &parsed, &length)) {
        BPS_REPORT(report, "'%.200s' cannot be dialled; expected the address of a process on this host, as '@name'",
                   address);
        return BPS_ERR_INVALID;
    }
    bps_status status = ipc_start(ipc, report);
    if (status != BPS_OK) {
        return status;
    }
    int error;
    struct bps_channel *channel = new_channel(ipc, &error);
    if (channel == NULL) {
        BPS_REPORT(report, "dial %.200s: %s", address, strerror(error));
        return error == ENOMEM ? BPS_ERR_NOMEM : BPS_ERR_IO;
    }
    snprintf(channel->address, sizeof channel->address, "%s", address);
    channel->deadline = ipc->host->now() + ipc->options.timeout;
    channel->events = events;
    channel->user = user;
    ipc_channel_queue(channel);
    *out = channel;
    return BPS_OK;
}
