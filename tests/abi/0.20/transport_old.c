/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport_old.c - the transport old for BytePS: frames over TCP, IPv4.
 *
 * A plugin includes the header of its kind and links to nothing of BytePS. All runs on the thread of one event loop.
 * The core may drop a channel from any callback; so whatever calls the core does so from old_turn, which alone gives
 * memory of channels back, and looks after each callback whether the channel is still there.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <arpa/inet.h>

#include <byteps/transport.h>

#define SCRATCH    (64u << 10)
#define TURN_BYTES (4u << 20) /* of one channel; then the others have their turn */
#define LINGER_NS  5000000000u
#define RETRY_NS   100000000u

/* From this table byteps reads and checks byteps.conf. Each option has a row, and a field in the struct. */
struct old_options {
    const char *host;
};

static const struct bps_option old_option_table[] = {
    BPS_OPTION(struct old_options, host, STRING, 0, "127.0.0.1", NULL,
               "The address of this host by which the others reach it."),
    {0},
};

struct old_listener {
    LIST_ENTRY(old_listener) entry;
    struct old_transport *transport;
    struct bps_watch *watch;
    struct bps_timer *retry;
    bps_accept_fn accept;
    void *arg;
    int fd;
};

struct bps_channel {
    LIST_ENTRY(bps_channel) entry;
    struct old_transport *transport;
    struct bps_watch *watch;
    struct bps_timer *linger;
    const struct bps_channel_events *events;
    void *user;
    int fd; /* -1: the channel has ended */
    bool connecting, readable, writable, kicked, finishing, shut, progress, late;
    /* The frame that is sent. */
    struct bps_frame frame;
    bool sending;
    uint64_t written;
    /* The frame that arrives. */
    uint8_t header[BPS_HEADER_BYTES], keep[BPS_SINK_GRAIN];
    struct bps_sink *sink;
    uint32_t have, length, offset, kept;
};

struct old_transport {
    const struct bps_host *host;
    const char *own_host; /* valid until close */
    LIST_HEAD(, old_listener) listeners;
    LIST_HEAD(, bps_channel) channels;
    bool deferred;
    char scratch[BPS_SINK_GRAIN + SCRATCH];
};

static void old_turn(void *arg);

static void old_schedule(struct old_transport *transport)
{
    if (!transport->deferred) {
        transport->deferred = true;
        transport->host->defer(transport->host, old_turn, transport);
    }
}

/* ---- the life of a channel ---- */

static bool old_gone(const struct bps_channel *channel)
{
    return channel->fd < 0;
}

static void old_drop(struct bps_channel *channel)
{
    const struct bps_host *host = channel->transport->host;

    if (old_gone(channel)) {
        return;
    }
    if (channel->linger) {
        host->cancel(host, channel->linger);
    }
    host->unwatch(host, channel->watch);
    close(channel->fd);
    channel->fd = -1;
    old_schedule(channel->transport);
}

/* Called by old_turn alone. */
static void old_end(struct bps_channel *channel, bps_status status, const char *text)
{
    old_drop(channel);
    channel->events->closed(channel->user, status, text);
}

static void old_event(void *arg, uint32_t events)
{
    struct bps_channel *channel = arg;

    channel->readable |= (events & (BPS_READABLE | BPS_HANGUP)) != 0;
    channel->writable |= (events & (BPS_WRITABLE | BPS_HANGUP)) != 0;
    old_schedule(channel->transport);
}

/* Takes the socket, or closes it: NULL then. */
static struct bps_channel *old_adopt(struct old_transport *transport, int fd, bool connecting)
{
    const struct bps_host *host = transport->host;
    struct bps_channel *channel = host->alloc(host, sizeof *channel, 8);
    int on = 1;

    if (channel) {
        *channel = (struct bps_channel){.transport = transport, .fd = fd, .connecting = connecting};
        channel->watch = host->watch(host, fd, old_event, channel);
    }
    if (!channel || !channel->watch) {
        if (channel) {
            host->release(host, channel);
        }
        close(fd);
        return NULL;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    LIST_INSERT_HEAD(&transport->channels, channel, entry);
    return channel;
}

/* ---- receiving ---- */

static void old_begin_frame(struct bps_channel *channel)
{
    const uint8_t *h = channel->header;
    bps_status status;

    channel->length = (uint32_t)h[0] | (uint32_t)h[1] << 8 | (uint32_t)h[2] << 16 | (uint32_t)h[3] << 24;
    channel->offset = channel->kept = 0;
    channel->sink = NULL;
    status = channel->events->header(channel->user, h, &channel->sink);
    if (old_gone(channel)) {
        return;
    }
    if (status != BPS_OK || (channel->length > 0 && !channel->sink)) {
        old_end(channel, status < 0 ? status : BPS_ERR_PROTOCOL, "a frame was not accepted");
        return;
    }
    channel->have = channel->length > 0 ? BPS_HEADER_BYTES : 0;
}

/* The core takes whole elements; what is left of the last one comes again, in front of what follows. */
static void old_hand_over(struct bps_channel *channel, const char *data, uint32_t bytes)
{
    uint32_t taken = channel->sink->take(channel->sink, channel->offset, data, bytes);
    bool last = channel->offset + bytes == channel->length;

    if (old_gone(channel)) {
        return;
    }
    if (taken > bytes || bytes - taken >= BPS_SINK_GRAIN || (last && taken < bytes)) {
        old_end(channel, BPS_ERR_PROTOCOL, "a payload does not consist of whole elements");
        return;
    }
    channel->kept = bytes - taken;
    memcpy(channel->keep, data + taken, channel->kept);
    channel->offset += taken;
    channel->have = last ? 0 : channel->have;
}

/* Where the next bytes go, and how many. */
static char *old_place(struct bps_channel *channel, uint32_t *bytes)
{
    char *scratch = channel->transport->scratch, *place = NULL;
    uint32_t missing = channel->length - channel->offset - channel->kept;

    if (channel->finishing) {
        *bytes = SCRATCH;
        return scratch;
    }
    if (channel->have < BPS_HEADER_BYTES) {
        *bytes = BPS_HEADER_BYTES - channel->have;
        return (char *)channel->header + channel->have;
    }
    *bytes = missing;
    if (channel->kept == 0) {
        place = channel->sink->place(channel->sink, channel->offset, bytes);
    }
    if (place) {
        return place;
    }
    memcpy(scratch, channel->keep, channel->kept);
    *bytes = missing < SCRATCH ? missing : SCRATCH;
    return scratch + channel->kept;
}

static void old_received(struct bps_channel *channel, char *place, uint32_t bytes)
{
    if (channel->finishing) {
        return; /* it waits for the end alone */
    }
    if (channel->have == BPS_HEADER_BYTES) {
        old_hand_over(channel, place - channel->kept, channel->kept + bytes);
        return;
    }
    channel->have += bytes;
    if (channel->have == BPS_HEADER_BYTES) {
        old_begin_frame(channel);
    }
}

static void old_receive(struct bps_channel *channel)
{
    uint32_t bytes, all = 0;

    while (!old_gone(channel) && channel->readable && all < TURN_BYTES) {
        char *place = old_place(channel, &bytes);
        ssize_t got = old_gone(channel) ? -1 : recv(channel->fd, place, bytes, MSG_DONTWAIT);
        if (old_gone(channel)) {
            return;
        }
        if (got > 0) {
            all += (uint32_t)got;
            channel->progress = true;
            old_received(channel, place, (uint32_t)got);
        } else if (got == 0) {
            old_end(channel, channel->shut ? BPS_OK : BPS_ERR_LOST, channel->shut ? "closed" : "closed by the peer");
        } else if (errno == EAGAIN) {
            channel->readable = false;
        } else if (errno != EINTR) {
            old_end(channel, BPS_ERR_IO, strerror(errno));
        }
    }
}

/* ---- sending ---- */

/* The next frame is chosen only when bytes can leave, so that the most urgent one goes first. */
static bool old_next(struct bps_channel *channel)
{
    if (channel->sending || !channel->kicked) {
        return channel->sending;
    }
    channel->kicked = false; /* a kick from within `next` counts */
    channel->sending = channel->events->next(channel->user, &channel->frame) == BPS_OK && !old_gone(channel);
    channel->kicked |= channel->sending;
    channel->written = 0;
    return channel->sending;
}

static void old_send(struct bps_channel *channel)
{
    uint64_t all = 0;

    while (!old_gone(channel) && channel->writable && all < TURN_BYTES && old_next(channel)) {
        const struct bps_frame *frame = &channel->frame;
        uint64_t done = channel->written, body = done > BPS_HEADER_BYTES ? done - BPS_HEADER_BYTES : 0;
        uint64_t head = done < BPS_HEADER_BYTES ? done : BPS_HEADER_BYTES;
        struct iovec iov[2] = {{(uint8_t *)frame->header + head, BPS_HEADER_BYTES - head},
                               {(char *)frame->payload + body, frame->bytes - body}};
        struct msghdr message = {.msg_iov = iov, .msg_iovlen = frame->bytes > 0 ? 2 : 1};
        ssize_t put = sendmsg(channel->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (put < 0) {
            channel->writable = errno == EINTR;
            channel->readable |= errno != EAGAIN && errno != EINTR; /* recv tells why, after the last frame */
            continue;
        }
        all += (uint64_t)put;
        channel->progress = true;
        channel->written += (uint64_t)put;
        if (channel->written == BPS_HEADER_BYTES + (uint64_t)frame->bytes) {
            channel->sending = false;
            channel->events->sent(channel->user, frame->cookie);
        }
    }
}

/* ---- the end in order ---- */

static void old_linger(void *arg);

static void old_wait_for_peer(struct bps_channel *channel)
{
    const struct bps_host *host = channel->transport->host;

    channel->progress = false;
    channel->linger = host->timer(host, LINGER_NS, 0, old_linger, channel);
    channel->late |= !channel->linger;
}

/* It waits for a peer that goes on, but not for ever. */
static void old_linger(void *arg)
{
    struct bps_channel *channel = arg;

    channel->linger = NULL;
    channel->late = !channel->progress;
    if (!channel->late) {
        old_wait_for_peer(channel);
    }
    old_schedule(channel->transport);
}

static void old_finish(struct bps_channel *channel)
{
    if (!old_gone(channel) && !channel->finishing) {
        channel->finishing = channel->kicked = true;
        old_wait_for_peer(channel);
        old_schedule(channel->transport);
    }
}

static void old_kick(struct bps_channel *channel)
{
    channel->kicked = !channel->shut;
    old_schedule(channel->transport);
}

/* ---- the turn of all channels ---- */

static void old_connect_ends(struct bps_channel *channel)
{
    int error = 0;
    socklen_t length = sizeof error;

    if (!channel->writable) {
        return;
    }
    if (getsockopt(channel->fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0) {
        old_end(channel, BPS_ERR_IO, strerror(error ? error : errno));
        return;
    }
    channel->connecting = false;
    channel->events->connected(channel->user);
}

static void old_work(struct bps_channel *channel)
{
    if (channel->connecting) {
        old_connect_ends(channel);
    }
    if (old_gone(channel) || channel->connecting) {
        if (!old_gone(channel) && channel->late) {
            old_end(channel, BPS_ERR_TIMEOUT, "the peer does not answer");
        }
        return;
    }
    old_receive(channel);
    old_send(channel);
    if (old_gone(channel)) {
        return;
    }
    if (channel->finishing && !channel->sending && !channel->kicked && !channel->shut) {
        channel->shut = true;
        shutdown(channel->fd, SHUT_WR);
    }
    if (channel->late) {
        old_end(channel, BPS_ERR_TIMEOUT, "the peer has not taken what was left to send");
    } else if (channel->readable || (channel->writable && (channel->sending || channel->kicked))) {
        old_schedule(channel->transport);
    }
}

static void old_turn(void *arg)
{
    struct old_transport *transport = arg;
    const struct bps_host *host = transport->host;
    struct bps_channel *channel, *next;

    transport->deferred = false;
    LIST_FOREACH(channel, &transport->channels, entry) {
        if (!old_gone(channel)) {
            old_work(channel);
        }
    }
    for (channel = LIST_FIRST(&transport->channels); channel; channel = next) {
        next = LIST_NEXT(channel, entry);
        if (old_gone(channel)) {
            LIST_REMOVE(channel, entry);
            host->release(host, channel);
        }
    }
}

/* ---- listening and dialling ---- */

/* "host:port"; an empty host is our own. */
static bps_status old_resolve(const struct old_transport *transport, const char *address, struct sockaddr_in *out,
                              struct bps_report *report)
{
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    const char *colon = strrchr(address, ':');
    size_t n = colon ? (size_t)(colon - address) : 0;
    char host[256];
    struct addrinfo *found;
    int error;

    if (!colon || n >= sizeof host) {
        BPS_REPORT(report, "'%s' is no address; expected host:port", address);
        return BPS_ERR_INVALID;
    }
    snprintf(host, sizeof host, "%.*s", (int)n, address);
    error = getaddrinfo(n > 0 ? host : transport->own_host, colon + 1, &hints, &found);
    if (error != 0) {
        BPS_REPORT(report, "'%s': %s", address, gai_strerror(error));
        return BPS_ERR_IO;
    }
    memcpy(out, found->ai_addr, sizeof *out);
    freeaddrinfo(found);
    return BPS_OK;
}

static bps_status old_failed(const char *what, const char *address, int error, struct bps_report *report)
{
    BPS_REPORT(report, "%s %s: %s", what, address, strerror(error));
    return error == EADDRINUSE ? BPS_ERR_BUSY : BPS_ERR_IO;
}

static void old_address_text(const struct sockaddr_in *address, char *text, size_t n)
{
    char host[INET_ADDRSTRLEN] = "?";

    inet_ntop(AF_INET, &address->sin_addr, host, sizeof host);
    snprintf(text, n, "%s:%u", host, (unsigned)ntohs(address->sin_port));
}

static void old_welcome(struct old_listener *listener, int fd, const struct sockaddr_in *from)
{
    struct bps_channel *channel = old_adopt(listener->transport, fd, false);
    const struct bps_channel_key *key; /* of the job's secret; this transport has no use for it */
    char peer[64];

    if (!channel) {
        return;
    }
    old_address_text(from, peer, sizeof peer);
    channel->writable = channel->readable = true;
    channel->events = listener->accept(listener->arg, channel, peer, &channel->user, &key);
    if (!channel->events) {
        old_drop(channel);
    }
    old_schedule(listener->transport);
}

static void old_accept(void *arg);

static void old_on_listener(void *arg, uint32_t events)
{
    (void)events;
    old_accept(arg);
}

/* Where there is no descriptor left, it tries again in a while. */
static void old_accept(void *arg)
{
    struct old_listener *listener = arg;
    const struct bps_host *host = listener->transport->host;
    struct sockaddr_in from;
    socklen_t length = sizeof from;
    int fd;

    if (listener->retry) {
        host->cancel(host, listener->retry);
        listener->retry = NULL;
    }
    while ((fd = accept4(listener->fd, (struct sockaddr *)&from, &length, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        old_welcome(listener, fd, &from);
        length = sizeof from;
    }
    if (errno != EAGAIN) {
        listener->retry = host->timer(host, RETRY_NS, 0, old_accept, listener);
    }
}

static bps_status old_listen(void *instance, const char *address, bps_accept_fn accept, void *arg, char *actual,
                             size_t n, struct bps_report *report)
{
    struct old_transport *transport = instance;
    const struct bps_host *host = transport->host;
    struct sockaddr_in own;
    socklen_t length = sizeof own;
    struct old_listener *listener;
    int on = 1, fd;
    bps_status status = old_resolve(transport, address, &own, report);

    if (status != BPS_OK) {
        return status;
    }
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return old_failed("socket for", address, errno, report);
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&own, sizeof own) != 0 || listen(fd, 512) != 0 ||
        getsockname(fd, (struct sockaddr *)&own, &length) != 0) {
        status = old_failed("listen on", address, errno, report);
        close(fd);
        return status;
    }
    listener = host->alloc(host, sizeof *listener, 8);
    if (listener) {
        *listener = (struct old_listener){.transport = transport, .accept = accept, .arg = arg, .fd = fd};
        listener->watch = host->watch(host, fd, old_on_listener, listener);
    }
    if (!listener || !listener->watch) {
        BPS_REPORT(report, "out of memory");
        if (listener) {
            host->release(host, listener);
        }
        close(fd);
        return BPS_ERR_NOMEM;
    }
    LIST_INSERT_HEAD(&transport->listeners, listener, entry);
    old_address_text(&own, actual, n);
    return BPS_OK;
}

static bps_status old_dial(void *instance, const char *address, uint32_t lane, const struct bps_channel_key *key,
                           const struct bps_channel_events *events, void *user, struct bps_channel **out,
                           struct bps_report *report)
{
    struct old_transport *transport = instance;
    struct bps_channel *channel;
    struct sockaddr_in peer;
    bps_status status = old_resolve(transport, address, &peer, report);
    int fd;

    (void)lane;
    (void)key;
    if (status != BPS_OK) {
        return status;
    }
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return old_failed("socket for", address, errno, report);
    }
    if (connect(fd, (struct sockaddr *)&peer, sizeof peer) != 0 && errno != EINPROGRESS) {
        status = old_failed("connect to", address, errno, report);
        close(fd);
        return status;
    }
    channel = old_adopt(transport, fd, true);
    if (!channel) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    channel->events = events;
    channel->user = user;
    *out = channel;
    return BPS_OK;
}

/* ---- the instance ---- */

static bps_status old_open(const struct bps_host *host, const void *options, void **out, struct bps_report *report)
{
    const struct old_options *given = options;
    struct old_transport *transport = host->alloc(host, sizeof *transport, 8);

    if (!transport) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    *transport = (struct old_transport){.host = host, .own_host = given->host};
    *out = transport;
    return BPS_OK;
}

static void old_close(void *instance)
{
    struct old_transport *transport = instance;
    const struct bps_host *host = transport->host;
    struct old_listener *listener;

    while ((listener = LIST_FIRST(&transport->listeners)) != NULL) {
        LIST_REMOVE(listener, entry);
        if (listener->retry) {
            host->cancel(host, listener->retry);
        }
        host->unwatch(host, listener->watch);
        close(listener->fd);
        host->release(host, listener);
    }
    old_turn(transport); /* all channels have been dropped: this gives their memory back */
    host->release(host, transport);
}

static void old_query(void *instance, struct bps_transport_attr *out)
{
    (void)instance;
    *out = (struct bps_transport_attr){.lanes = 1};
}

static void old_local_host(struct bps_channel *channel, char *host, size_t n)
{
    snprintf(host, n, "%s", channel->transport->own_host);
}

/* One line for `byteps graph --explain`. */
static void old_describe(void *instance, char *text, size_t n)
{
    const struct old_transport *transport = instance;

    snprintf(text, n, "reached at %s", transport->own_host);
}

static const struct bps_transport_ops old_ops = {
    .size = sizeof old_ops,
    .open = old_open,
    .close = old_close,
    .query = old_query,
    .listen = old_listen,
    .dial = old_dial,
    .kick = old_kick,
    .finish = old_finish,
    .drop = old_drop,
    .local_host = old_local_host,
    .describe = old_describe,
};

/* Its kind, name, version and license. */
BPS_PLUGIN_MODULE(BPS_KIND_TRANSPORT, "old", "0.1.0", "Apache-2.0", .summary = "frames over TCP, IPv4",
                  .options = old_option_table, .options_size = sizeof(struct old_options), .ops = &old_ops);
