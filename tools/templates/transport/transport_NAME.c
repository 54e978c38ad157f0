/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport_NAME.c - the transport NAME for BytePS: frames over TCP, IPv4.
 *
 * A plugin includes the header of its kind and links to nothing of BytePS. All runs on the thread of one event loop.
 * The core may drop a channel from any callback; so whatever calls the core does so from NAME_turn, which alone gives
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
struct NAME_options {
    const char *host;
};

static const struct bps_option NAME_option_table[] = {
    BPS_OPTION(struct NAME_options, host, STRING, 0, "127.0.0.1", NULL,
               "The address of this host by which the others reach it."),
    {0},
};

struct NAME_listener {
    LIST_ENTRY(NAME_listener) entry;
    struct NAME_transport *transport;
    struct bps_watch *watch;
    struct bps_timer *retry;
    bps_accept_fn accept;
    void *arg;
    int fd;
};

struct bps_channel {
    LIST_ENTRY(bps_channel) entry;
    struct NAME_transport *transport;
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

struct NAME_transport {
    const struct bps_host *host;
    const char *own_host; /* valid until close */
    LIST_HEAD(, NAME_listener) listeners;
    LIST_HEAD(, bps_channel) channels;
    bool deferred;
    char scratch[BPS_SINK_GRAIN + SCRATCH];
};

static void NAME_turn(void *arg);

static void NAME_schedule(struct NAME_transport *transport)
{
    if (!transport->deferred) {
        transport->deferred = true;
        transport->host->defer(transport->host, NAME_turn, transport);
    }
}

/* ---- the life of a channel ---- */

static bool NAME_gone(const struct bps_channel *channel)
{
    return channel->fd < 0;
}

static void NAME_drop(struct bps_channel *channel)
{
    const struct bps_host *host = channel->transport->host;

    if (NAME_gone(channel)) {
        return;
    }
    if (channel->linger) {
        host->cancel(host, channel->linger);
    }
    host->unwatch(host, channel->watch);
    close(channel->fd);
    channel->fd = -1;
    NAME_schedule(channel->transport);
}

/* Called by NAME_turn alone. */
static void NAME_end(struct bps_channel *channel, bps_status status, const char *text)
{
    NAME_drop(channel);
    channel->events->closed(channel->user, status, text);
}

static void NAME_event(void *arg, uint32_t events)
{
    struct bps_channel *channel = arg;

    channel->readable |= (events & (BPS_READABLE | BPS_HANGUP)) != 0;
    channel->writable |= (events & (BPS_WRITABLE | BPS_HANGUP)) != 0;
    NAME_schedule(channel->transport);
}

/* Takes the socket, or closes it: NULL then. */
static struct bps_channel *NAME_adopt(struct NAME_transport *transport, int fd, bool connecting)
{
    const struct bps_host *host = transport->host;
    struct bps_channel *channel = host->alloc(host, sizeof *channel, 8);
    int on = 1;

    if (channel) {
        *channel = (struct bps_channel){.transport = transport, .fd = fd, .connecting = connecting};
        channel->watch = host->watch(host, fd, NAME_event, channel);
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

static void NAME_begin_frame(struct bps_channel *channel)
{
    const uint8_t *h = channel->header;
    bps_status status;

    channel->length = (uint32_t)h[0] | (uint32_t)h[1] << 8 | (uint32_t)h[2] << 16 | (uint32_t)h[3] << 24;
    channel->offset = channel->kept = 0;
    channel->sink = NULL;
    status = channel->events->header(channel->user, h, &channel->sink);
    if (NAME_gone(channel)) {
        return;
    }
    if (status != BPS_OK || (channel->length > 0 && !channel->sink)) {
        NAME_end(channel, status < 0 ? status : BPS_ERR_PROTOCOL, "a frame was not accepted");
        return;
    }
    channel->have = channel->length > 0 ? BPS_HEADER_BYTES : 0;
}

/* The core takes whole elements; what is left of the last one comes again, in front of what follows. */
static void NAME_hand_over(struct bps_channel *channel, const char *data, uint32_t bytes)
{
    uint32_t taken = channel->sink->take(channel->sink, channel->offset, data, bytes);
    bool last = channel->offset + bytes == channel->length;

    if (NAME_gone(channel)) {
        return;
    }
    if (taken > bytes || bytes - taken >= BPS_SINK_GRAIN || (last && taken < bytes)) {
        NAME_end(channel, BPS_ERR_PROTOCOL, "a payload does not consist of whole elements");
        return;
    }
    channel->kept = bytes - taken;
    memcpy(channel->keep, data + taken, channel->kept);
    channel->offset += taken;
    channel->have = last ? 0 : channel->have;
}

/* Where the next bytes go, and how many. */
static char *NAME_place(struct bps_channel *channel, uint32_t *bytes)
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

static void NAME_received(struct bps_channel *channel, char *place, uint32_t bytes)
{
    if (channel->finishing) {
        return; /* it waits for the end alone */
    }
    if (channel->have == BPS_HEADER_BYTES) {
        NAME_hand_over(channel, place - channel->kept, channel->kept + bytes);
        return;
    }
    channel->have += bytes;
    if (channel->have == BPS_HEADER_BYTES) {
        NAME_begin_frame(channel);
    }
}

static void NAME_receive(struct bps_channel *channel)
{
    uint32_t bytes, all = 0;

    while (!NAME_gone(channel) && channel->readable && all < TURN_BYTES) {
        char *place = NAME_place(channel, &bytes);
        ssize_t got = NAME_gone(channel) ? -1 : recv(channel->fd, place, bytes, MSG_DONTWAIT);
        if (NAME_gone(channel)) {
            return;
        }
        if (got > 0) {
            all += (uint32_t)got;
            channel->progress = true;
            NAME_received(channel, place, (uint32_t)got);
        } else if (got == 0) {
            NAME_end(channel, channel->shut ? BPS_OK : BPS_ERR_IO, channel->shut ? "closed" : "closed by the peer");
        } else if (errno == EAGAIN) {
            channel->readable = false;
        } else if (errno != EINTR) {
            NAME_end(channel, BPS_ERR_IO, strerror(errno));
        }
    }
}

/* ---- sending ---- */

/* The next frame is chosen only when bytes can leave, so that the most urgent one goes first. */
static bool NAME_next(struct bps_channel *channel)
{
    if (channel->sending || !channel->kicked) {
        return channel->sending;
    }
    channel->frame.size = sizeof channel->frame;
    channel->kicked = false; /* a kick from within `next` counts */
    channel->sending = channel->events->next(channel->user, &channel->frame) == BPS_OK && !NAME_gone(channel);
    channel->kicked |= channel->sending;
    channel->written = 0;
    return channel->sending;
}

static void NAME_send(struct bps_channel *channel)
{
    uint64_t all = 0;

    while (!NAME_gone(channel) && channel->writable && all < TURN_BYTES && NAME_next(channel)) {
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

static void NAME_linger(void *arg);

static void NAME_wait_for_peer(struct bps_channel *channel)
{
    const struct bps_host *host = channel->transport->host;

    channel->progress = false;
    channel->linger = host->timer(host, LINGER_NS, 0, NAME_linger, channel);
    channel->late |= !channel->linger;
}

/* It waits for a peer that goes on, but not for ever. */
static void NAME_linger(void *arg)
{
    struct bps_channel *channel = arg;

    channel->linger = NULL;
    channel->late = !channel->progress;
    if (!channel->late) {
        NAME_wait_for_peer(channel);
    }
    NAME_schedule(channel->transport);
}

static void NAME_finish(struct bps_channel *channel)
{
    if (!NAME_gone(channel) && !channel->finishing) {
        channel->finishing = channel->kicked = true;
        NAME_wait_for_peer(channel);
        NAME_schedule(channel->transport);
    }
}

static void NAME_kick(struct bps_channel *channel)
{
    channel->kicked = !channel->shut;
    NAME_schedule(channel->transport);
}

/* ---- the turn of all channels ---- */

static void NAME_connect_ends(struct bps_channel *channel)
{
    int error = 0;
    socklen_t length = sizeof error;

    if (!channel->writable) {
        return;
    }
    if (getsockopt(channel->fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0) {
        NAME_end(channel, BPS_ERR_IO, strerror(error ? error : errno));
        return;
    }
    channel->connecting = false;
    channel->events->connected(channel->user);
}

static void NAME_work(struct bps_channel *channel)
{
    if (channel->connecting) {
        NAME_connect_ends(channel);
    }
    if (NAME_gone(channel) || channel->connecting) {
        if (!NAME_gone(channel) && channel->late) {
            NAME_end(channel, BPS_ERR_TIMEOUT, "the peer does not answer");
        }
        return;
    }
    NAME_receive(channel);
    NAME_send(channel);
    if (NAME_gone(channel)) {
        return;
    }
    if (channel->finishing && !channel->sending && !channel->kicked && !channel->shut) {
        channel->shut = true;
        shutdown(channel->fd, SHUT_WR);
    }
    if (channel->late) {
        NAME_end(channel, BPS_ERR_TIMEOUT, "the peer has not taken what was left to send");
    } else if (channel->readable || (channel->writable && (channel->sending || channel->kicked))) {
        NAME_schedule(channel->transport);
    }
}

static void NAME_turn(void *arg)
{
    struct NAME_transport *transport = arg;
    const struct bps_host *host = transport->host;
    struct bps_channel *channel, *next;

    transport->deferred = false;
    LIST_FOREACH(channel, &transport->channels, entry) {
        if (!NAME_gone(channel)) {
            NAME_work(channel);
        }
    }
    for (channel = LIST_FIRST(&transport->channels); channel; channel = next) {
        next = LIST_NEXT(channel, entry);
        if (NAME_gone(channel)) {
            LIST_REMOVE(channel, entry);
            host->release(host, channel);
        }
    }
}

/* ---- listening and dialling ---- */

/* "host:port"; an empty host is our own. */
static bps_status NAME_resolve(const struct NAME_transport *transport, const char *address, struct sockaddr_in *out,
                               struct bps_report *report)
{
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    const char *colon = strrchr(address, ':');
    size_t n = colon ? (size_t)(colon - address) : 0;
    char host[256];
    struct addrinfo *found;
    int error;

    if (!colon || n >= sizeof host) {
        BPS_REPORT(report, "'%s' is not an address; expected host:port", address);
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

static bps_status NAME_failed(const char *what, const char *address, int error, struct bps_report *report)
{
    BPS_REPORT(report, "%s %s: %s", what, address, strerror(error));
    return error == EADDRINUSE ? BPS_ERR_BUSY : BPS_ERR_IO;
}

static void NAME_address_text(const struct sockaddr_in *address, char *text, size_t n)
{
    char host[INET_ADDRSTRLEN] = "?";

    inet_ntop(AF_INET, &address->sin_addr, host, sizeof host);
    snprintf(text, n, "%s:%u", host, (unsigned)ntohs(address->sin_port));
}

static void NAME_welcome(struct NAME_listener *listener, int fd, const struct sockaddr_in *from)
{
    struct bps_channel *channel = NAME_adopt(listener->transport, fd, false);
    const struct bps_channel_key *key; /* of the job's secret; this transport has no use for it */
    char peer[64];

    if (!channel) {
        return;
    }
    NAME_address_text(from, peer, sizeof peer);
    channel->writable = channel->readable = true;
    channel->events = listener->accept(listener->arg, channel, peer, &channel->user, &key);
    if (!channel->events) {
        NAME_drop(channel);
    }
    NAME_schedule(listener->transport);
}

static void NAME_accept(void *arg);

static void NAME_on_listener(void *arg, uint32_t events)
{
    (void)events;
    NAME_accept(arg);
}

/* Where there is no descriptor left, it tries again in a while. */
static void NAME_accept(void *arg)
{
    struct NAME_listener *listener = arg;
    const struct bps_host *host = listener->transport->host;
    struct sockaddr_in from;
    socklen_t length = sizeof from;
    int fd;

    if (listener->retry) {
        host->cancel(host, listener->retry);
        listener->retry = NULL;
    }
    while ((fd = accept4(listener->fd, (struct sockaddr *)&from, &length, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        NAME_welcome(listener, fd, &from);
        length = sizeof from;
    }
    if (errno != EAGAIN) {
        listener->retry = host->timer(host, RETRY_NS, 0, NAME_accept, listener);
    }
}

static bps_status NAME_listen(void *instance, const char *address, bps_accept_fn accept, void *arg, char *actual,
                              size_t n, struct bps_report *report)
{
    struct NAME_transport *transport = instance;
    const struct bps_host *host = transport->host;
    struct sockaddr_in own;
    socklen_t length = sizeof own;
    struct NAME_listener *listener;
    int on = 1, fd;
    bps_status status = NAME_resolve(transport, address, &own, report);

    if (status != BPS_OK) {
        return status;
    }
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return NAME_failed("socket for", address, errno, report);
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&own, sizeof own) != 0 || listen(fd, 512) != 0 ||
        getsockname(fd, (struct sockaddr *)&own, &length) != 0) {
        status = NAME_failed("listen on", address, errno, report);
        close(fd);
        return status;
    }
    listener = host->alloc(host, sizeof *listener, 8);
    if (listener) {
        *listener = (struct NAME_listener){.transport = transport, .accept = accept, .arg = arg, .fd = fd};
        listener->watch = host->watch(host, fd, NAME_on_listener, listener);
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
    NAME_address_text(&own, actual, n);
    return BPS_OK;
}

static bps_status NAME_dial(void *instance, const char *address, uint32_t lane, const struct bps_channel_key *key,
                            const struct bps_channel_events *events, void *user, struct bps_channel **out,
                            struct bps_report *report)
{
    struct NAME_transport *transport = instance;
    struct bps_channel *channel;
    struct sockaddr_in peer;
    bps_status status = NAME_resolve(transport, address, &peer, report);
    int fd;

    (void)lane;
    (void)key;
    if (status != BPS_OK) {
        return status;
    }
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return NAME_failed("socket for", address, errno, report);
    }
    if (connect(fd, (struct sockaddr *)&peer, sizeof peer) != 0 && errno != EINPROGRESS) {
        status = NAME_failed("connect to", address, errno, report);
        close(fd);
        return status;
    }
    channel = NAME_adopt(transport, fd, true);
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

static bps_status NAME_open(const struct bps_host *host, const void *options, void **out, struct bps_report *report)
{
    const struct NAME_options *given = options;
    struct NAME_transport *transport = host->alloc(host, sizeof *transport, 8);

    if (!transport) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    *transport = (struct NAME_transport){.host = host, .own_host = given->host};
    *out = transport;
    return BPS_OK;
}

static void NAME_close(void *instance)
{
    struct NAME_transport *transport = instance;
    const struct bps_host *host = transport->host;
    struct NAME_listener *listener;

    while ((listener = LIST_FIRST(&transport->listeners)) != NULL) {
        LIST_REMOVE(listener, entry);
        if (listener->retry) {
            host->cancel(host, listener->retry);
        }
        host->unwatch(host, listener->watch);
        close(listener->fd);
        host->release(host, listener);
    }
    NAME_turn(transport); /* all channels have been dropped: this gives their memory back */
    host->release(host, transport);
}

static void NAME_query(void *instance, struct bps_transport_attr *out)
{
    (void)instance;
    *out = (struct bps_transport_attr){.lanes = 1};
}

static void NAME_local_host(struct bps_channel *channel, char *host, size_t n)
{
    snprintf(host, n, "%s", channel->transport->own_host);
}

/* One line for `byteps graph --explain`. */
static void NAME_describe(void *instance, char *text, size_t n)
{
    const struct NAME_transport *transport = instance;

    snprintf(text, n, "reached at %s", transport->own_host);
}

static const struct bps_transport_ops NAME_ops = {
    .size = sizeof NAME_ops,
    .open = NAME_open,
    .close = NAME_close,
    .query = NAME_query,
    .listen = NAME_listen,
    .dial = NAME_dial,
    .kick = NAME_kick,
    .finish = NAME_finish,
    .drop = NAME_drop,
    .local_host = NAME_local_host,
    .describe = NAME_describe,
};

/* Its kind, name, version and license. */
BPS_PLUGIN_MODULE(BPS_KIND_TRANSPORT, "NAME", "0.1.0", "Apache-2.0", .summary = "frames over TCP, IPv4",
                  .options = NAME_option_table, .options_size = sizeof(struct NAME_options), .ops = &NAME_ops);
