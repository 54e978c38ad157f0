/* SPDX-License-Identifier: Apache-2.0 */
/* listen.c - listening sockets and the channels that peers open. */
#include "ipc.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG         4096
#define ACCEPT_PER_TURN 64
#define ACCEPT_PAUSE    100000000ull /* ns without accepting when there is no descriptor left */

struct ipc_listener {
    LIST_ENTRY(ipc_listener) entry;
    struct ipc *ipc;
    int fd;
    struct bps_watch *watch;
    struct bps_timer *pause;
    bool deferred; /* a turn of accepting is coming */
    bool starved;  /* has warned that there are no descriptors */
    bps_accept_fn accept;
    void *arg;
};

/* ---- accepting ---- */

/* A channel with this socket; closes it if there is none. */
static struct bps_channel *adopt(struct ipc *ipc, int fd)
{
    struct bps_channel *channel = ipc_channel_new(ipc);
    if (channel == NULL || !ipc_channel_attach(channel, fd)) {
        close(fd);
        return channel;
    }
    return channel;
}

/*
 * The descriptor, or -1 and errno. *out: its channel; NULL, or without a descriptor, where there was no
 * memory.
 */
static int accept_one(struct ipc_listener *listener, struct bps_channel **out)
{
    ipc_fork_hold();
    int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int error = errno;
    *out = fd >= 0 ? adopt(listener->ipc, fd) : NULL;
    ipc_fork_release();
    errno = error;
    return fd;
}

static void welcome(struct ipc_listener *listener, struct bps_channel *channel)
{
    const struct bps_host *host = listener->ipc->host;
    uid_t uid;
    if (channel == NULL || channel->fd < 0) {
        ipc_drop(channel);
        return;
    }
    if (!ipc_credentials(channel->fd, &channel->pid, &uid)) {
        host->log(host, BPS_LOG_WARN,
                  "refused process %d of user %u: only processes of one user share memory", (int)channel->pid,
                  (unsigned)uid);
        ipc_drop(channel);
        return;
    }
    channel->accept = listener->accept;
    channel->accept_arg = listener->arg;
    channel->state = IPC_GREETING;
    snprintf(channel->peer, sizeof channel->peer, "process %d", (int)channel->pid);
    ipc_channel_hurry(channel);
}

static void accept_some(struct ipc_listener *listener);

static void accept_later(void *arg)
{
    struct ipc_listener *listener = arg;
    listener->deferred = false;
    accept_some(listener);
}

static void accept_again(void *arg)
{
    struct ipc_listener *listener = arg;
    listener->pause = NULL;
    accept_some(listener);
}

/* No descriptor or memory is left: trying at once again would spin. */
static void take_a_pause(struct ipc_listener *listener, int error)
{
    const struct bps_host *host = listener->ipc->host;
    if (!listener->starved) {
        listener->starved = true;
        host->log(host, BPS_LOG_WARN,
                  "accept: %s; peers wait until there is room again (see ulimit -n of this process)",
                  strerror(error));
    }
    listener->pause = host->timer(host, ACCEPT_PAUSE, 0, accept_again, listener);
}

static void accept_some(struct ipc_listener *listener)
{
    const struct bps_host *host = listener->ipc->host;
    if (listener->pause != NULL || listener->deferred) {
        return;
    }
    for (int i = 0; i < ACCEPT_PER_TURN; i++) {
        struct bps_channel *channel;
        if (accept_one(listener, &channel) >= 0) {
            listener->starved = false;
            welcome(listener, channel);
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            take_a_pause(listener, errno);
            return;
        }
    }
    listener->deferred = true;
    host->defer(host, accept_later, listener);
}

static void on_event(void *arg, uint32_t events)
{
    (void)events;
    accept_some(arg);
}

/* ---- listening ---- */

static int bind_and_listen(const char *address)
{
    struct sockaddr_un bound;
    socklen_t length;
    int fd = ipc_address_parse(address, &bound, &length) ? ipc_socket() : -1;
    if (fd >= 0 && (bind(fd, (struct sockaddr *)&bound, length) != 0 || listen(fd, BACKLOG) != 0)) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

static struct ipc_listener *listener_new(struct ipc *ipc, int fd, bps_accept_fn accept, void *arg)
{
    const struct bps_host *host = ipc->host;
    struct ipc_listener *listener = host->alloc(host, sizeof *listener, 8);
    if (listener == NULL) {
        return NULL;
    }
    *listener = (struct ipc_listener){.ipc = ipc, .fd = fd, .accept = accept, .arg = arg};
    listener->watch = host->watch(host, fd, on_event, listener);
    if (listener->watch == NULL) {
        host->release(host, listener);
        return NULL;
    }
    LIST_INSERT_HEAD(&ipc->listeners, listener, entry);
    return listener;
}

bps_status ipc_listen(void *instance, const char *address, bps_accept_fn accept, void *arg, char *actual,
                      size_t n, struct bps_report *report)
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
        BPS_REPORT(report, "listen: there is no random number for a name: %s", strerror(errno));
        return BPS_ERR_IO;
    }
    ipc_fork_hold();
    int fd = bind_and_listen(name), error = errno;
    bool listening = fd >= 0 && listener_new(ipc, fd, accept, arg) != NULL;
    if (fd >= 0 && !listening) {
        close(fd);
        error = ENOMEM;
    }
    ipc_fork_release();
    if (!listening) {
        BPS_REPORT(report, "listen %s: %s", name, strerror(error));
        return error == ENOMEM ? BPS_ERR_NOMEM : BPS_ERR_IO;
    }
    snprintf(actual, n, "%s", name);
    return BPS_OK;
}

void ipc_listeners_close(struct ipc *ipc)
{
    const struct bps_host *host = ipc->host;
    while (!LIST_EMPTY(&ipc->listeners)) {
        struct ipc_listener *listener = LIST_FIRST(&ipc->listeners);
        LIST_REMOVE(listener, entry);
        if (listener->pause != NULL) {
            host->cancel(host, listener->pause);
        }
        ipc_fork_hold();
        host->unwatch(host, listener->watch);
        close(listener->fd);
        ipc_fork_release();
        host->release(host, listener);
    }
}
