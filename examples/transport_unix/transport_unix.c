/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport_unix.c - the transport "unix" for BytePS: frames over Unix sockets, between the processes of a host.
 *
 * It shows a whole transport: channels that begin, end in order and are dropped; frames that are sent only when bytes
 * can leave; payloads that arrive in the memory where they are to lie.
 *
 * An address is "host:port" as everywhere in BytePS, and stands for a socket with an abstract name, which is in no
 * file system and gone with its socket. All runs on the thread of one event loop. The core may drop a channel from any
 * callback; so whatever calls the core does so from unix_turn, which alone gives memory of channels back, and looks
 * after each callback whether the channel is still there.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <byteps/transport.h>

#define SCRATCH    (64u << 10)
#define TURN_BYTES (4u << 20) /* of one channel; then the others have their turn */
#define LINGER_NS  5000000000u
#define RETRY_NS   100000000u
#define BACKLOG    4096
#define FIRST_PORT 1024u
#define PORTS      (65536u - FIRST_PORT)
#define OWN_HOST   "localhost" /* where an address names none */

struct unix_listener {
    LIST_ENTRY(unix_listener) entry;
    struct unix_transport *transport;
    struct bps_watch *watch;
    struct bps_timer *retry;
    bps_accept_fn accept;
    void *arg;
    int fd;
};

struct bps_channel {
    LIST_ENTRY(bps_channel) entry;
    struct unix_transport *transport;
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

struct unix_transport {
    const struct bps_host *host;
    LIST_HEAD(, unix_listener) listeners;
    LIST_HEAD(, bps_channel) channels;
    uint64_t *frames_sent, *bytes_sent; /* counters */
    bool deferred;
    char scratch[BPS_SINK_GRAIN + SCRATCH];
};

static void unix_turn(void *arg);

static void unix_schedule(struct unix_transport *transport)
{
    if (!transport->deferred) {
        transport->deferred = true;
        transport->host->defer(transport->host, unix_turn, transport);
    }
}

/* ---- the life of a channel ---- */

static bool unix_gone(const struct bps_channel *channel)
{
    return channel->fd < 0;
}

static void unix_drop(struct bps_channel *channel)
{
    const struct bps_host *host = channel->transport->host;

    if (unix_gone(channel)) {
        return;
    }
    if (channel->linger) {
        host->cancel(host, channel->linger);
    }
    host->unwatch(host, channel->watch);
    close(channel->fd);
    channel->fd = -1;
    unix_schedule(channel->transport);
}

/* Called by unix_turn alone. */
static void unix_end(struct bps_channel *channel, bps_status status, const char *text)
{
    unix_drop(channel);
    channel->events->closed(channel->user, status, text);
}

static void unix_event(void *arg, uint32_t events)
{
    struct bps_channel *channel = arg;

    channel->readable |= (events & (BPS_READABLE | BPS_HANGUP)) != 0;
    channel->writable |= (events & (BPS_WRITABLE | BPS_HANGUP)) != 0;
    unix_schedule(channel->transport);
}

/* Takes the socket, or closes it: NULL then. */
static struct bps_channel *unix_adopt(struct unix_transport *transport, int fd, bool connecting)
{
    const struct bps_host *host = transport->host;
    struct bps_channel *channel = host->alloc(host, sizeof *channel, 8);

    if (channel) {
        *channel = (struct bps_channel){.transport = transport, .fd = fd, .connecting = connecting};
        channel->watch = host->watch(host, fd, unix_event, channel);
    }
    if (!channel || !channel->watch) {
        if (channel) {
            host->release(host, channel);
        }
        close(fd);
        return NULL;
    }
    LIST_INSERT_HEAD(&transport->channels, channel, entry);
    return channel;
}

/* ---- receiving ---- */

static void unix_begin_frame(struct bps_channel *channel)
{
    const uint8_t *h = channel->header;
    bps_status status;

    channel->length = (uint32_t)h[0] | (uint32_t)h[1] << 8 | (uint32_t)h[2] << 16 | (uint32_t)h[3] << 24;
    channel->offset = channel->kept = 0;
    channel->sink = NULL;
    status = channel->events->header(channel->user, h, &channel->sink);
    if (unix_gone(channel)) {
        return;
    }
    if (status != BPS_OK || (channel->length > 0 && !channel->sink)) {
        unix_end(channel, status < 0 ? status : BPS_ERR_PROTOCOL, "a frame was not accepted");
        return;
    }
    channel->have = channel->length > 0 ? BPS_HEADER_BYTES : 0;
}

/* The core takes whole elements; what is left of the last one comes again, in front of what follows. */
static void unix_hand_over(struct bps_channel *channel, const char *data, uint32_t bytes)
{
    uint32_t taken = channel->sink->take(channel->sink, channel->offset, data, bytes);
    bool last = channel->offset + bytes == channel->length;

    if (unix_gone(channel)) {
        return;
    }
    if (taken > bytes || bytes - taken >= BPS_SINK_GRAIN || (last && taken < bytes)) {
        unix_end(channel, BPS_ERR_PROTOCOL, "a payload does not consist of whole elements");
        return;
    }
    channel->kept = bytes - taken;
    memcpy(channel->keep, data + taken, channel->kept);
    channel->offset += taken;
    channel->have = last ? 0 : channel->have;
}

/* Where the next bytes go, and how many. */
static char *unix_place(struct bps_channel *channel, uint32_t *bytes)
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

static void unix_received(struct bps_channel *channel, char *place, uint32_t bytes)
{
    if (channel->finishing) {
        return; /* it waits for the end alone */
    }
    if (channel->have == BPS_HEADER_BYTES) {
        unix_hand_over(channel, place - channel->kept, channel->kept + bytes);
        return;
    }
    channel->have += bytes;
    if (channel->have == BPS_HEADER_BYTES) {
        unix_begin_frame(channel);
    }
}

static void unix_receive(struct bps_channel *channel)
{
    uint32_t bytes, all = 0;

    while (!unix_gone(channel) && channel->readable && all < TURN_BYTES) {
        char *place = unix_place(channel, &bytes);
        ssize_t got = unix_gone(channel) ? -1 : recv(channel->fd, place, bytes, MSG_DONTWAIT);
        if (unix_gone(channel)) {
            return;
        }
        if (got > 0) {
            all += (uint32_t)got;
            channel->progress = true;
            unix_received(channel, place, (uint32_t)got);
        } else if (got == 0) {
            unix_end(channel, channel->shut ? BPS_OK : BPS_ERR_IO, channel->shut ? "closed" : "closed by the peer");
        } else if (errno == EAGAIN) {
            channel->readable = false;
        } else if (errno != EINTR) {
            unix_end(channel, BPS_ERR_IO, strerror(errno));
        }
    }
}

/* ---- sending ---- */

/* The next frame is chosen only when bytes can leave, so that the most urgent one goes first. */
static bool unix_next(struct bps_channel *channel)
{
    if (channel->sending || !channel->kicked) {
        return channel->sending;
    }
    channel->frame.size = sizeof channel->frame;
    channel->kicked = false; /* a kick from within `next` counts */
    channel->sending = channel->events->next(channel->user, &channel->frame) == BPS_OK && !unix_gone(channel);
    channel->kicked |= channel->sending;
    channel->written = 0;
    return channel->sending;
}

static void unix_send(struct bps_channel *channel)
{
    uint64_t all = 0;

    while (!unix_gone(channel) && channel->writable && all < TURN_BYTES && unix_next(channel)) {
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
            ++*channel->transport->frames_sent;
            *channel->transport->bytes_sent += channel->written;
            channel->events->sent(channel->user, frame->cookie);
        }
    }
}

/* ---- the end in order ---- */

static void unix_linger(void *arg);

static void unix_wait_for_peer(struct bps_channel *channel)
{
    const struct bps_host *host = channel->transport->host;

    channel->progress = false;
    channel->linger = host->timer(host, LINGER_NS, 0, unix_linger, channel);
    channel->late |= !channel->linger;
}

/* It waits for a peer that goes on, but not for ever. */
static void unix_linger(void *arg)
{
    struct bps_channel *channel = arg;

    channel->linger = NULL;
    channel->late = !channel->progress;
    if (!channel->late) {
        unix_wait_for_peer(channel);
    }
    unix_schedule(channel->transport);
}

static void unix_finish(struct bps_channel *channel)
{
    if (!unix_gone(channel) && !channel->finishing) {
        channel->finishing = channel->kicked = true;
        unix_wait_for_peer(channel);
        unix_schedule(channel->transport);
    }
}

static void unix_kick(struct bps_channel *channel)
{
    channel->kicked = !channel->shut;
    unix_schedule(channel->transport);
}

/* ---- the turn of all channels ---- */

static void unix_work(struct bps_channel *channel)
{
    if (channel->connecting) { /* not from within dial */
        channel->connecting = false;
        channel->events->connected(channel->user);
    }
    if (unix_gone(channel)) {
        return;
    }
    unix_receive(channel);
    unix_send(channel);
    if (unix_gone(channel)) {
        return;
    }
    if (channel->finishing && !channel->sending && !channel->kicked && !channel->shut) {
        channel->shut = true;
        shutdown(channel->fd, SHUT_WR);
    }
    if (channel->late) {
        unix_end(channel, BPS_ERR_TIMEOUT, "the peer has not taken what was left to send");
    } else if (channel->readable || (channel->writable && (channel->sending || channel->kicked))) {
        unix_schedule(channel->transport);
    }
}

static void unix_turn(void *arg)
{
    struct unix_transport *transport = arg;
    const struct bps_host *host = transport->host;
    struct bps_channel *channel, *next;

    transport->deferred = false;
    LIST_FOREACH(channel, &transport->channels, entry) {
        if (!unix_gone(channel)) {
            unix_work(channel);
        }
    }
    for (channel = LIST_FIRST(&transport->channels); channel; channel = next) {
        next = LIST_NEXT(channel, entry);
        if (unix_gone(channel)) {
            LIST_REMOVE(channel, entry);
            host->release(host, channel);
        }
    }
}

/* ---- listening and dialling ---- */

/* A name in the abstract namespace begins with a zero and has no end but its length. */
struct unix_name {
    struct sockaddr_un address;
    socklen_t length;
};

static bps_status unix_resolve(const char *address, struct unix_name *out, struct bps_report *report)
{
    char *text = out->address.sun_path + 1;
    int room = sizeof out->address.sun_path - 1, n;

    *out = (struct unix_name){.address.sun_family = AF_UNIX};
    n = snprintf(text, (size_t)room, "byteps/%s%s", address[0] == ':' ? OWN_HOST : "", address);
    if (n >= room || !strchr(address, ':')) {
        BPS_REPORT(report, "'%s' is not an address; expected host:port, at most %d characters", address, room - 8);
        return BPS_ERR_INVALID;
    }
    out->length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    return BPS_OK;
}

static bps_status unix_failed(const char *what, const char *address, int error, struct bps_report *report)
{
    BPS_REPORT(report, "%s %s: %s", what, address, strerror(error));
    return error == EADDRINUSE ? BPS_ERR_BUSY : BPS_ERR_IO;
}

/* Everybody on this host can connect to an abstract name, or may have taken it: the kernel says who is there. */
static bool unix_is_ours(int fd)
{
    struct ucred peer;
    socklen_t length = sizeof peer;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && (peer.uid == geteuid() || peer.uid == 0);
}

static void unix_welcome(struct unix_listener *listener, int fd)
{
    const struct bps_host *host = listener->transport->host;
    const struct bps_channel_key *key; /* of the job's secret; this transport has no use for it */
    struct bps_channel *channel;

    if (!unix_is_ours(fd)) {
        host->log(host, BPS_LOG_WARN, "refused a process of another user");
        close(fd);
        return;
    }
    channel = unix_adopt(listener->transport, fd, false);
    if (!channel) {
        return;
    }
    channel->writable = channel->readable = true;
    channel->events = listener->accept(listener->arg, channel, "a process of this host", &channel->user, &key);
    if (!channel->events) {
        unix_drop(channel);
    }
    unix_schedule(listener->transport);
}

static void unix_accept(void *arg);

static void unix_on_listener(void *arg, uint32_t events)
{
    (void)events;
    unix_accept(arg);
}

/* Where there is no descriptor left, it tries again in a while. */
static void unix_accept(void *arg)
{
    struct unix_listener *listener = arg;
    const struct bps_host *host = listener->transport->host;
    int fd;

    if (listener->retry) {
        host->cancel(host, listener->retry);
        listener->retry = NULL;
    }
    while ((fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        unix_welcome(listener, fd);
    }
    if (errno != EAGAIN) {
        listener->retry = host->timer(host, RETRY_NS, 0, unix_accept, listener);
    }
}

/* A socket that listens on the address, or -1 and errno. */
static int unix_bind(const struct unix_name *name)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), error;

    if (fd < 0 || (bind(fd, (const struct sockaddr *)&name->address, name->length) == 0 && listen(fd, BACKLOG) == 0)) {
        return fd;
    }
    error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* Port 0 is any that is free, for which it tries them in turn: not all processes begin with the same one. */
static int unix_bind_any(const char *host, char *actual, size_t n, struct bps_report *report)
{
    unsigned begin = (unsigned)getpid() * 16;
    struct unix_name name;
    int fd = -1;

    for (unsigned i = 0; i < PORTS && fd < 0; i++) {
        snprintf(actual, n, "%s:%u", host, FIRST_PORT + (begin + i) % PORTS);
        if (unix_resolve(actual, &name, report) != BPS_OK) {
            errno = EINVAL;
            return -1;
        }
        fd = unix_bind(&name);
        if (fd < 0 && errno != EADDRINUSE) {
            return -1;
        }
    }
    return fd;
}

/* Listens, and writes the address that peers can dial. */
static bps_status unix_begin(const char *address, char *actual, size_t n, int *fd, struct bps_report *report)
{
    const char *colon = strrchr(address, ':');
    char host[sizeof((struct sockaddr_un *)NULL)->sun_path] = OWN_HOST;
    struct unix_name name;
    bps_status status;

    if (colon && colon > address) {
        snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
    }
    if (!colon || atoi(colon + 1) == 0) {
        *fd = unix_bind_any(host, actual, n, report);
    } else {
        snprintf(actual, n, "%s%s", host, colon);
        status = unix_resolve(actual, &name, report);
        if (status != BPS_OK) {
            return status;
        }
        *fd = unix_bind(&name);
    }
    return *fd >= 0 ? BPS_OK : unix_failed("listen on", actual, errno, report);
}

static bps_status unix_listen(void *instance, const char *address, bps_accept_fn accept, void *arg, char *actual,
                              size_t n, struct bps_report *report)
{
    struct unix_transport *transport = instance;
    const struct bps_host *host = transport->host;
    struct unix_listener *listener;
    int fd = -1;
    bps_status status = unix_begin(address, actual, n, &fd, report);

    if (status != BPS_OK) {
        return status;
    }
    listener = host->alloc(host, sizeof *listener, 8);
    if (listener) {
        *listener = (struct unix_listener){.transport = transport, .accept = accept, .arg = arg, .fd = fd};
        listener->watch = host->watch(host, fd, unix_on_listener, listener);
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
    return BPS_OK;
}

/* A Unix socket connects at once, or not at all. */
static bps_status unix_connect(const char *address, int *out, struct bps_report *report)
{
    struct unix_name name;
    bps_status status = unix_resolve(address, &name, report);
    int fd;

    if (status != BPS_OK) {
        return status;
    }
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return unix_failed("socket for", address, errno, report);
    }
    if (connect(fd, (struct sockaddr *)&name.address, name.length) != 0) {
        status = unix_failed("connect to", address, errno, report);
        close(fd);
        return status;
    }
    if (!unix_is_ours(fd)) {
        BPS_REPORT(report, "connect to %s: a process of another user listens there", address);
        close(fd);
        return BPS_ERR_IO;
    }
    *out = fd;
    return BPS_OK;
}

static bps_status unix_dial(void *instance, const char *address, uint32_t lane, const struct bps_channel_key *key,
                            const struct bps_channel_events *events, void *user, struct bps_channel **out,
                            struct bps_report *report)
{
    struct unix_transport *transport = instance;
    struct bps_channel *channel;
    int fd = -1;
    bps_status status = unix_connect(address, &fd, report);

    (void)lane;
    (void)key;
    if (status != BPS_OK) {
        return status;
    }
    channel = unix_adopt(transport, fd, true);
    if (!channel) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    channel->readable = channel->writable = true;
    channel->events = events;
    channel->user = user;
    *out = channel;
    unix_schedule(transport);
    return BPS_OK;
}

/* ---- the instance ---- */

static bps_status unix_open(const struct bps_host *host, const void *options, void **out, struct bps_report *report)
{
    struct unix_transport *transport = host->alloc(host, sizeof *transport, 8);

    (void)options;
    if (!transport) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    *transport = (struct unix_transport){
        .host = host,
        .frames_sent = host->counter(host, "frames_sent", "frames that the kernel has taken"),
        .bytes_sent = host->counter(host, "bytes_sent", "their bytes"),
    };
    *out = transport;
    return BPS_OK;
}

static void unix_close(void *instance)
{
    struct unix_transport *transport = instance;
    const struct bps_host *host = transport->host;
    struct unix_listener *listener;

    while ((listener = LIST_FIRST(&transport->listeners)) != NULL) {
        LIST_REMOVE(listener, entry);
        if (listener->retry) {
            host->cancel(host, listener->retry);
        }
        host->unwatch(host, listener->watch);
        close(listener->fd);
        host->release(host, listener);
    }
    unix_turn(transport); /* all channels have been dropped: this gives their memory back */
    host->release(host, transport);
}

static void unix_query(void *instance, struct bps_transport_attr *out)
{
    (void)instance;
    *out = (struct bps_transport_attr){.lanes = 1, .local = true};
}

static void unix_local_host(struct bps_channel *channel, char *host, size_t n)
{
    (void)channel;
    snprintf(host, n, "%s", OWN_HOST);
}

static const struct bps_transport_ops unix_ops = {
    .size = sizeof unix_ops,
    .open = unix_open,
    .close = unix_close,
    .query = unix_query,
    .listen = unix_listen,
    .dial = unix_dial,
    .kick = unix_kick,
    .finish = unix_finish,
    .drop = unix_drop,
    .local_host = unix_local_host,
};

BPS_PLUGIN_MODULE(BPS_KIND_TRANSPORT, "unix", "1.0", "Apache-2.0", .summary = "frames over Unix sockets",
                  .ops = &unix_ops);
