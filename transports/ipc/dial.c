/* SPDX-License-Identifier: Apache-2.0 */
/* dial.c - channels to peers: each begins with a socket, whose first turn connects it. */
#include "ipc.h"

#include <errno.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

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

bps_status ipc_dial(void *instance, const char *address, uint32_t lane, const struct bps_channel_key *key,
                    const struct bps_channel_events *events, void *user, struct bps_channel **out,
                    struct bps_report *report)
{
    struct ipc *ipc = instance;
    struct sockaddr_un parsed;
    socklen_t length;
    (void)lane;
    (void)key;
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
