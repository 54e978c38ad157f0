/* SPDX-License-Identifier: Apache-2.0 */
/* stream.c - see stream.h. */
#include "util/stream.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Until the descriptor is ready for `events`. */
static bps_status wait_for(const struct launcher_stream *stream, short events, struct bps_report *report)
{
    struct pollfd ready = {.fd = stream->fd, .events = events};
    uint64_t now;
    while ((now = launcher_now()) < stream->until) {
        int n = poll(&ready, 1, (int)((stream->until - now) / LAUNCHER_MS) + 1);
        if (n > 0) {
            return BPS_OK;
        }
        if (n < 0 && errno != EINTR) {
            return launcher_fail(report, BPS_ERR_IO, "poll: %s", strerror(errno));
        }
    }
    return launcher_fail(report, BPS_ERR_TIMEOUT, "it does not answer");
}

static bps_status connect_to(struct launcher_stream *stream, const struct addrinfo *at, struct bps_report *report)
{
    int error = 0;
    socklen_t size = sizeof error;
    stream->fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (stream->fd < 0) {
        return launcher_fail(report, BPS_ERR_IO, "socket: %s", strerror(errno));
    }
    if (connect(stream->fd, at->ai_addr, at->ai_addrlen) != 0) {
        error = errno;
    }
    bps_status status = error == EINPROGRESS ? wait_for(stream, POLLOUT, report) : BPS_OK;
    if (status == BPS_OK && error == EINPROGRESS && getsockopt(stream->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
        error = errno;
    }
    if (status == BPS_OK && error != 0) {
        status = launcher_fail(report, BPS_ERR_IO, "connect: %s", strerror(error));
    }
    if (status != BPS_OK) {
        launcher_stream_close(stream);
    }
    return status;
}

bps_status launcher_stream_open(struct launcher_stream *stream, const char *host, const char *port, uint64_t until,
                                struct bps_report *report)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    *stream = (struct launcher_stream){.fd = -1, .until = until};
    int error = getaddrinfo(host, port, &hints, &found);
    if (error != 0) {
        return launcher_fail(report, BPS_ERR_IO, "%s", gai_strerror(error));
    }
    bps_status status = BPS_ERR_IO;
    for (const struct addrinfo *at = found; at != NULL && status == BPS_ERR_IO; at = at->ai_next) {
        status = connect_to(stream, at, report);
    }
    freeaddrinfo(found);
    return status;
}

void launcher_stream_close(struct launcher_stream *stream)
{
    if (stream->fd >= 0) {
        close(stream->fd);
        stream->fd = -1;
    }
}

bps_status launcher_stream_send(struct launcher_stream *stream, const void *data, size_t n, struct bps_report *report)
{
    for (size_t sent = 0; sent < n;) {
        ssize_t more = send(stream->fd, (const char *)data + sent, n - sent, MSG_NOSIGNAL);
        bool full = more < 0 && (errno == EAGAIN || errno == EINTR);
        bps_status status = full ? wait_for(stream, POLLOUT, report) : BPS_OK;
        if (status != BPS_OK) {
            return status;
        }
        if (more < 0 && !full) {
            return launcher_fail(report, BPS_ERR_IO, "send: %s", strerror(errno));
        }
        sent += more > 0 ? (size_t)more : 0;
    }
    return BPS_OK;
}

bps_status launcher_stream_receive(struct launcher_stream *stream, void *data, size_t n, struct bps_report *report)
{
    for (size_t got = 0; got < n;) {
        bps_status status = wait_for(stream, POLLIN, report);
        if (status != BPS_OK) {
            return status;
        }
        ssize_t more = recv(stream->fd, (char *)data + got, n - got, 0);
        if (more == 0 || (more < 0 && errno == ECONNRESET)) {
            return launcher_fail(report, BPS_ERR_IO, "it has closed the connection");
        }
        if (more < 0 && errno != EAGAIN && errno != EINTR) {
            return launcher_fail(report, BPS_ERR_IO, "receive: %s", strerror(errno));
        }
        got += more > 0 ? (size_t)more : 0;
    }
    return BPS_OK;
}
