/* SPDX-License-Identifier: Apache-2.0 */
/* connect.c - connecting to a peer. It succeeds or fails at once, unless too many others are connecting. */
#include "ipc.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

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

void ipc_connect_continue(struct bps_channel *channel)
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
