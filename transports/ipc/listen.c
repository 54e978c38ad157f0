/* SPDX-License-Identifier: Apache-2.0 */
/* listen.c - listening sockets and the channels that peers open. */
#include "ipc.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 4096

/* ---- accepting ---- */

/* A channel with this socket; closes it if there is none. */
static struct bps_channel *adopt(void *instance, int fd)
{
    struct bps_channel *channel = ipc_channel_new(instance);
    if (channel == NULL || !ipc_channel_attach(channel, fd)) {
        close(fd);
        return channel;
    }
    return channel;
}

static void welcome(struct bps_util_listener *listener, struct bps_channel *channel, const struct sockaddr *peer)
{
    const struct bps_host *host = listener->host;
    uid_t uid;
    (void)peer; /* has no name */
    if (channel->fd < 0) {
        ipc_drop(channel);
        return;
    }
    if (!ipc_credentials(channel->fd, &channel->pid, &uid)) {
        host->log(host, BPS_LOG_WARN, "refused process %d of user %u: only processes of one user share memory",
                  (int)channel->pid, (unsigned)uid);
        ipc_drop(channel);
        return;
    }
    channel->accept = listener->accept;
    channel->accept_arg = listener->arg;
    channel->state = IPC_GREETING;
    snprintf(channel->peer, sizeof channel->peer, "process %d", (int)channel->pid);
    ipc_channel_hurry(channel);
}

static const struct bps_util_acceptor acceptor = {.adopt = adopt, .welcome = welcome};

/* ---- listening ---- */

static int bind_and_listen(const char *address)
{
    struct sockaddr_un bound;
    socklen_t length;
    int fd = ipc_address_parse(address, &bound, &length) ? ipc_socket() : -1;
    return fd >= 0 && bps_util_bind_and_listen(fd, (struct sockaddr *)&bound, length, BACKLOG) ? fd : -1;
}

bps_status ipc_listen(void *instance, const char *address, bps_accept_fn accept, void *arg, char *actual, size_t n,
                      struct bps_report *report)
{
    struct ipc *ipc = instance;
    char name[IPC_ADDRESS_TEXT];
    bps_status status = ipc_start(ipc, report);
    if (status != BPS_OK) {
        return status;
    }
    if (address[0] == '@' && strlen(address) >= sizeof name) {
        BPS_REPORT(report, "listen %.60s...: a name has at most %zu bytes", address, sizeof name - 1);
        return BPS_ERR_INVALID;
    }
    /* A host and a port mean nothing here. */
    snprintf(name, sizeof name, "%s", address);
    if (address[0] != '@' && !ipc_address_make(name, sizeof name)) {
        BPS_REPORT(report, "listen: cannot generate a random name: %s", strerror(errno));
        return BPS_ERR_IO;
    }
    struct bps_util_listener listener = {
        .host = ipc->host, .acceptor = &acceptor, .instance = ipc, .accept = accept, .arg = arg};
    bps_util_fork_hold();
    int fd = listener.fd = bind_and_listen(name), error = errno;
    bool listening = fd >= 0 && bps_util_listener_add(&ipc->listeners, &listener);
    if (fd >= 0 && !listening) {
        close(fd);
        error = ENOMEM;
    }
    bps_util_fork_release();
    if (!listening) {
        BPS_REPORT(report, "listen %s: %s", name, strerror(error));
        return error == ENOMEM ? BPS_ERR_NOMEM : BPS_ERR_IO;
    }
    snprintf(actual, n, "%s", name);
    return BPS_OK;
}
