/* SPDX-License-Identifier: Apache-2.0 */
/* listen.c - listening sockets. Accepting takes turns, and a pause when there is no descriptor left. */
#include "util.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define ACCEPT_PER_TURN 64
#define ACCEPT_PAUSE    100000000ull /* ns */

/* ---- accepting ---- */

/* The descriptor, or -1 and errno. *out: its channel, NULL where there was no memory for one. */
static int accept_one(struct bps_util_listener *listener, struct sockaddr_storage *peer, struct bps_channel **out)
{
    socklen_t length = sizeof *peer;
    bps_util_fork_hold();
    int fd = accept4(listener->fd, (struct sockaddr *)peer, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int error = errno;
    *out = fd >= 0 ? listener->acceptor->adopt(listener->instance, fd) : NULL;
    bps_util_fork_release();
    errno = error;
    return fd;
}

static void accept_some(struct bps_util_listener *listener);

static void accept_later(void *arg)
{
    struct bps_util_listener *listener = arg;
    listener->deferred = false;
    accept_some(listener);
}

static void accept_again(void *arg)
{
    struct bps_util_listener *listener = arg;
    listener->pause = NULL;
    accept_some(listener);
}

/* No descriptor or memory is left: trying at once again would spin. */
static void take_a_pause(struct bps_util_listener *listener, int error)
{
    const struct bps_host *host = listener->host;
    if (!listener->starved) {
        listener->starved = true;
        host->log(host, BPS_LOG_WARN,
                  "accept: %s; peers wait until there is room again (see ulimit -n of this process)", strerror(error));
    }
    listener->pause = host->timer(host, ACCEPT_PAUSE, 0, accept_again, listener);
    if (listener->pause == NULL) { /* no event comes again for those who wait already */
        listener->deferred = true;
        host->defer(host, accept_later, listener);
    }
}

/* Errors that belong to the connection that was to be accepted, not to the listener. */
static bool is_of_connection(int error)
{
    switch (error) {
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case ENOPROTOOPT:
    case EPERM:
    case EOPNOTSUPP:
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENONET:
    case ETIMEDOUT:
        return true;
    default:
        return false;
    }
}

static void accept_some(struct bps_util_listener *listener)
{
    const struct bps_host *host = listener->host;
    if (listener->pause != NULL || listener->deferred) {
        return;
    }
    for (int i = 0; i < ACCEPT_PER_TURN; i++) {
        struct sockaddr_storage peer;
        struct bps_channel *channel;
        int fd = accept_one(listener, &peer, &channel);
        if (fd >= 0) {
            listener->starved = false;
            if (channel != NULL) {
                listener->acceptor->welcome(listener, channel, (struct sockaddr *)&peer);
            }
        } else if (errno == EAGAIN) {
            return;
        } else if (!is_of_connection(errno)) {
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

bool bps_util_bind_and_listen(int fd, const struct sockaddr *address, socklen_t length, int backlog)
{
    if (bind(fd, address, length) != 0 || listen(fd, backlog) != 0) {
        int error = errno;
        close(fd);
        errno = error;
        return false;
    }
    return true;
}

bool bps_util_listener_add(struct bps_util_listeners *listeners, const struct bps_util_listener *like)
{
    const struct bps_host *host = like->host;
    struct bps_util_listener *listener = host->alloc(host, sizeof *listener, 8);
    if (listener == NULL) {
        return false;
    }
    *listener = *like;
    listener->watch = host->watch(host, listener->fd, on_event, listener);
    if (listener->watch == NULL) {
        host->release(host, listener);
        return false;
    }
    LIST_INSERT_HEAD(listeners, listener, entry);
    return true;
}

void bps_util_listeners_close_until(struct bps_util_listeners *listeners, const struct bps_util_listener *first)
{
    while (LIST_FIRST(listeners) != first) {
        struct bps_util_listener *listener = LIST_FIRST(listeners);
        const struct bps_host *host = listener->host;
        LIST_REMOVE(listener, entry);
        bps_util_cancel(host, &listener->pause);
        bps_util_fork_hold();
        host->unwatch(host, listener->watch);
        close(listener->fd);
        bps_util_fork_release();
        host->release(host, listener);
    }
}

void bps_util_listeners_close(struct bps_util_listeners *listeners)
{
    bps_util_listeners_close_until(listeners, NULL);
}

bps_status bps_util_listen_failed(const struct sockaddr *address, int error, const char *elsewhere,
                                  struct bps_report *report)
{
    const char *remedy = "";
    char text[BPS_UTIL_ADDRESS_TEXT];
    if (error == EADDRINUSE) {
        remedy = "another process has this port: choose a different one, or 0 for any free one";
    } else if (error == EADDRNOTAVAIL || error == ENODEV) {
        remedy = elsewhere;
    } else if (error == EACCES) {
        remedy = "ports below 1024 are for privileged processes";
    }
    bps_util_address_text(address, text, sizeof text);
    BPS_REPORT(report, "listen %s: %s%s%s", text, strerror(error), *remedy != '\0' ? "; " : "", remedy);
    return error == EADDRINUSE ? BPS_ERR_BUSY : BPS_ERR_IO;
}
