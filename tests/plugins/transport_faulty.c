/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport_faulty.c - the transport that `byteps plugin new` writes, frames over TCP, with one fault of those that
 * `byteps plugin check` must find: the one that -DFAULT=NAME chooses, or none. Where both ends of a channel are in this
 * process it lends the payloads that are answered.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
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
#define LOANS      8 /* of one end at once; further frames are sent */

enum fault {
    NONE,
    QUERY_NO_LANES,
    QUERY_DIFFERS,
    LISTEN_SAYS_NOTHING,
    LISTEN_SHARES,
    LISTEN_OTHER_STATUS,
    LOCAL_HOST_SAYS_NOTHING,
    DIAL_CONNECTS_AT_ONCE,
    DIAL_SAYS_NOTHING,
    DIAL_CLOSES_AT_ONCE,
    DIAL_IN_VAIN_IS_OK,
    DIAL_WITHOUT_CHANNEL,
    ACCEPT_WITHOUT_PEER,
    ACCEPT_KEEPS_REFUSED,
    CONNECTED_NEVER,
    CONNECTED_TWICE,
    NEXT_TOO_EARLY,
    NEXT_LOSES_KICK,
    NEXT_SWAPS,
    SENT_TWICE,
    SENT_NEVER,
    SENT_EARLY,
    SENT_LOSES_COOKIE,
    HEADER_CHANGED,
    HEADER_LOST,
    PAYLOAD_CHANGED,
    PLACE_BEYOND,
    PLACE_OFFSET,
    TAKE_FORGETS_KEPT,
    TAKE_ELSEWHERE,
    PLACE_IGNORES_LESS,
    OPEN_LATE,
    OPEN_TWICE,
    PLACED_TWICE,
    PLACED_EARLY,
    PLACED_NEVER,
    DROP_TELLS,
    DROP_ASKS,
    DROP_READS,
    DROP_WRITES,
    DROP_ENDS_OTHERS,
    FINISH_LOSES,
    FINISH_CUTS,
    FINISH_ASKS_AGAIN,
    FINISH_NEVER_CLOSES,
    CLOSED_WITHIN_FINISH,
    CLOSED_TWICE,
    CLOSED_SAYS_NOTHING,
    CLOSED_POSITIVE,
    HEADER_OTHER_STATUS,
    HEADER_IGNORES_STATUS,
    HEADER_CHANGED_LATE,
    STRANGER_ENDS_OTHERS,
    STRANGER_ENDS_PROCESS,
    KEY_KEPT,
    PROCESS_SHARES,
    KILLED_IS_OK,
    KILLED_NEVER_CLOSES,
    STOPPED_ASKS,
    CHANNEL_LEAKS,
    CHANNEL_LEAKS_DESCRIPTOR,
    HUNDRED_CRASH,
    FINISHED_IS_IO,
    FINISHED_THERE_IS_LOST,
    PROCESS_FINISHED_IS_IO,
    PROCESS_FINISHED_THERE_IS_LOST,
    REFUSED_IS_OK,
    FRAME_WITHOUT_SIZE,
    LOAN_WITHOUT_SIZE,
    LOAN_OTHER_BYTES,
    LOAN_HALF_MAPPED,
    LOAN_AFTER_PLACE,
    LOAN_READS_WRONG,
    LOAN_WRITES_WRONG,
    LOAN_WRITES_NOTHING,
    LOAN_WRITES_AT_START,
    LOAN_SENT_BEFORE,
    LOAN_SENT_NEVER,
    LOAN_SENT_TWICE,
    LOAN_RETURN_LOST,
    LOAN_CHANGED,
    LOAN_CHANGED_AT_END,
    LOAN_OF_DROPPED,
};

/* In the place of calls that a compiler might leave out. */
static volatile enum fault fault = FAULT;

static bool has(enum fault one)
{
    return fault == one;
}

/* From this table byteps reads and checks byteps.conf. Each option has a row, and a field in the struct. */
struct faulty_options {
    const char *host;
};

static const struct bps_option faulty_option_table[] = {
    BPS_OPTION(struct faulty_options, host, STRING, 0, "127.0.0.1", NULL,
               "The address of this host by which the others reach it."),
    {0},
};

struct faulty_listener {
    LIST_ENTRY(faulty_listener) entry;
    struct faulty_transport *transport;
    struct bps_watch *watch;
    struct bps_timer *retry;
    bps_accept_fn accept;
    void *arg;
    int fd;
};

/* A frame that is lent, at its sender's end: the number-th one of the channel, and the one that has returned it. */
struct faulty_lent {
    struct bps_frame frame;
    uint64_t number, returned;
    bool used, over;
};

/* The same at the end that has borrowed it. */
struct faulty_borrowed {
    struct bps_loan loan; /* the first field: the core's address of it is that of the whole */
    struct faulty_lent *lent;
};

struct bps_channel {
    LIST_ENTRY(bps_channel) entry;
    struct faulty_transport *transport;
    struct bps_watch *watch;
    struct bps_timer *linger;
    const struct bps_channel_key *key;
    const struct bps_channel_events *events;
    void *user;
    int fd; /* -1: the channel has ended */
    bool connecting, readable, writable, kicked, finishing, shut, progress, late;
    /* The frame that is sent. */
    struct bps_frame frame, stash;
    bool sending, stashed;
    uint64_t written;
    /* The frame that arrives. */
    uint8_t header[BPS_HEADER_BYTES], keep[BPS_SINK_GRAIN];
    struct bps_sink *sink;
    char *opened; /* where the whole payload goes */
    void *ticket;
    uint32_t have, length, offset, kept;
    /* Loans. */
    struct bps_channel *other; /* the other end, if it is in this process and has not ended */
    struct faulty_lent lent[LOANS];
    struct faulty_borrowed borrowed[LOANS];
    uint64_t frames_out, frames_in;
    uint16_t port; /* of the end that has dialled */
    bool near;     /* there has been `other` */
};

struct faulty_transport {
    const struct bps_host *host;
    const char *own_host; /* valid until close */
    LIST_HEAD(, faulty_listener) listeners;
    LIST_HEAD(, bps_channel) channels;
    bool deferred;
    char scratch[BPS_SINK_GRAIN + SCRATCH];
};

static unsigned dialled, frames;         /* which a transport must not have */
static struct bps_channel *calling[256]; /* ends that have dialled, by port: the other one may be accepted here */

static void faulty_turn(void *arg);

static void faulty_schedule(struct faulty_transport *transport)
{
    if (!transport->deferred) {
        transport->deferred = true;
        transport->host->defer(transport->host, faulty_turn, transport);
    }
}

/* ---- the life of a channel ---- */

static bool faulty_gone(const struct bps_channel *channel)
{
    return channel->fd < 0;
}

static void faulty_drop(struct bps_channel *channel)
{
    const struct bps_host *host = channel->transport->host;

    if (faulty_gone(channel)) {
        return;
    }
    if (channel->linger) {
        host->cancel(host, channel->linger);
    }
    host->unwatch(host, channel->watch);
    if (has(CHANNEL_LEAKS_DESCRIPTOR)) {
        shutdown(channel->fd, SHUT_RDWR);
    } else {
        close(channel->fd);
    }
    channel->fd = -1;
    if (channel->other) {
        channel->other->other = NULL;
        faulty_schedule(channel->other->transport);
    }
    if (calling[channel->port % 256] == channel) {
        calling[channel->port % 256] = NULL;
    }
    faulty_schedule(channel->transport);
    if (has(DROP_TELLS) && channel->events) {
        channel->events->closed(channel->user, BPS_OK, "dropped");
    }
}

static void faulty_end(struct bps_channel *channel, bps_status status, const char *text)
{
    for (int i = 0; i < LOANS; i++) {
        if (has(LOAN_CHANGED_AT_END) && channel->other && channel->borrowed[i].lent) {
            ((char *)channel->borrowed[i].loan.data)[0] ^= 1;
        }
    }
    faulty_drop(channel);
    channel->events->closed(channel->user, has(CLOSED_POSITIVE) ? 4 : status, has(CLOSED_SAYS_NOTHING) ? "" : text);
    if (has(CLOSED_TWICE)) {
        channel->events->closed(channel->user, status, text);
    }
}

static void faulty_event(void *arg, uint32_t events)
{
    struct bps_channel *channel = arg;

    channel->readable |= (events & (BPS_READABLE | BPS_HANGUP)) != 0;
    channel->writable |= (events & (BPS_WRITABLE | BPS_HANGUP)) != 0;
    faulty_schedule(channel->transport);
}

/* Takes the socket, or closes it: NULL then. */
static struct bps_channel *faulty_adopt(struct faulty_transport *transport, int fd, bool connecting)
{
    const struct bps_host *host = transport->host;
    struct bps_channel *channel = host->alloc(host, sizeof *channel, 8);
    int on = 1;

    if (channel) {
        *channel = (struct bps_channel){.transport = transport, .fd = fd, .connecting = connecting};
        channel->watch = host->watch(host, fd, faulty_event, channel);
    }
    if (!channel || !channel->watch) {
        if (channel) {
            host->release(host, channel);
        }
        close(fd);
        return NULL;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (has(HUNDRED_CRASH)) {
        static struct bps_channel *room[80];
        static unsigned used;
        *(used++ < 80 ? &room[used - 1] : (struct bps_channel **)8) = channel;
    }
    LIST_INSERT_HEAD(&transport->channels, channel, entry);
    return channel;
}

/* ---- loans, between two ends of this process ---- */

/* The frame that is about to leave is lent. */
static void faulty_lend(struct bps_channel *channel)
{
    struct faulty_lent *lent = channel->lent;

    while (lent < channel->lent + LOANS && lent->used) {
        lent++;
    }
    if (channel->other && channel->frame.answer && channel->frame.bytes > 0 && lent < channel->lent + LOANS) {
        *lent = (struct faulty_lent){.frame = channel->frame, .number = channel->frames_out, .used = true};
        channel->frame.bytes = 0;
    }
}

/* The frame that is about to leave returns a loan. */
static void faulty_give_back(struct bps_channel *channel)
{
    struct faulty_borrowed *borrowed = (struct faulty_borrowed *)channel->frame.returns;

    if (borrowed && channel->other && !has(LOAN_RETURN_LOST)) {
        borrowed->lent->returned = channel->frames_out;
    }
    if (borrowed) {
        borrowed->lent = NULL;
    }
}

/* What was lent and is over, or back with the frame of this number: 0 is that of none. */
static void faulty_came_back(struct bps_channel *channel, uint64_t number)
{
    for (int i = 0; i < LOANS && !faulty_gone(channel); i++) {
        struct faulty_lent *lent = &channel->lent[i];
        if (lent->used && (number > 0 ? lent->returned == number : lent->over)) {
            lent->used = false;
            for (int j = 0; j < 1 + has(LOAN_SENT_TWICE) - has(LOAN_SENT_NEVER) && !faulty_gone(channel); j++) {
                channel->events->sent(channel->user, lent->frame.cookie);
            }
        }
    }
}

/* The core wants the bytes; from within each call it may end one of the two channels. */
static void faulty_copy_loan(struct bps_channel *channel, const struct faulty_lent *lent)
{
    struct bps_sink *sink = channel->sink;

    while (!faulty_gone(channel) && channel->other && channel->offset < channel->length) {
        uint32_t missing = channel->length - channel->offset, bytes = missing;
        char *place = sink->place(sink, channel->offset, &bytes);
        if (faulty_gone(channel) || !channel->other) {
            return;
        }
        if (!place) {
            place = channel->transport->scratch;
            bytes = missing < SCRATCH ? missing : SCRATCH;
        }
        memcpy(place, (const char *)lent->frame.payload + channel->offset, bytes);
        channel->offset += sink->take(sink, channel->offset, place, bytes);
    }
}

static bps_status faulty_offer(struct bps_channel *channel, struct faulty_lent *lent)
{
    struct faulty_borrowed *borrowed = channel->borrowed;
    uint32_t bytes = 1;
    bool mapped = has(LOAN_CHANGED) || has(LOAN_CHANGED_AT_END);

    while (borrowed->lent) { /* there is one: no more than LOANS are lent */
        borrowed++;
    }
    borrowed->lent = lent;
    borrowed->loan = (struct bps_loan){.size = has(LOAN_WITHOUT_SIZE) ? 0 : sizeof borrowed->loan,
                                       .data = mapped || has(LOAN_HALF_MAPPED) ? lent->frame.payload : NULL,
                                       .answer = mapped ? lent->frame.answer : NULL,
                                       .bytes = channel->length - has(LOAN_OTHER_BYTES)};
    if (has(LOAN_AFTER_PLACE)) {
        channel->sink->place(channel->sink, 0, &bytes);
    }
    bps_status status = channel->sink->lend(channel->sink, &borrowed->loan);
    if (status != BPS_OK) {
        borrowed->lent = NULL;
    } else if (has(LOAN_SENT_BEFORE) && channel->other) {
        channel->other->events->sent(channel->other->user, lent->frame.cookie);
    } else if (has(LOAN_CHANGED) && channel->other) {
        ((char *)lent->frame.payload)[0] ^= 1;
    }
    return status;
}

/* Of two ends in this process the one that is left cannot tell what was lent. */
static bool faulty_left_alone(struct bps_channel *channel)
{
    if (channel->near && !channel->other && !channel->finishing) {
        faulty_end(channel, BPS_ERR_IO, "closed by the peer");
    }
    return faulty_gone(channel);
}

/* The header of a frame has come that the other end may have lent: true if so. */
static bool faulty_borrow(struct bps_channel *channel)
{
    struct faulty_lent *lent = channel->other ? channel->other->lent : NULL;
    bps_status status = BPS_AGAIN;
    int i = 0;

    while (lent && i < LOANS && !(lent[i].used && lent[i].number == channel->frames_in)) {
        i++;
    }
    if (!lent || i == LOANS) {
        return false;
    }
    if (channel->sink->lend) {
        status = faulty_offer(channel, &lent[i]);
    }
    if (!faulty_gone(channel) && status < 0) {
        faulty_end(channel, status, "a loan was not accepted");
    } else if (!faulty_gone(channel) && status == BPS_AGAIN) {
        faulty_copy_loan(channel, &lent[i]);
    }
    if (!faulty_gone(channel) && status != BPS_OK && !faulty_left_alone(channel)) {
        lent[i].over = true;
        faulty_schedule(channel->other->transport);
    }
    channel->have = 0;
    return true;
}

static bps_status faulty_loan_read(struct bps_channel *channel, struct bps_loan *loan, uint32_t offset, void *to,
                                   uint32_t bytes)
{
    const struct faulty_lent *lent = ((struct faulty_borrowed *)loan)->lent;

    if (!channel->other) {
        return BPS_ERR_IO;
    }
    memcpy(to, (const char *)lent->frame.payload + offset, bytes);
    ((char *)to)[bytes - 1] ^= has(LOAN_READS_WRONG);
    return BPS_OK;
}

static bps_status faulty_loan_write(struct bps_channel *channel, struct bps_loan *loan, uint32_t offset,
                                    const void *from, uint32_t bytes)
{
    const struct faulty_lent *lent = ((struct faulty_borrowed *)loan)->lent;

    if (!channel->other) {
        return BPS_ERR_IO;
    }
    if (!has(LOAN_WRITES_NOTHING) && bytes > 0) {
        memcpy((char *)lent->frame.answer + (has(LOAN_WRITES_AT_START) ? 0 : offset), from, bytes);
        ((char *)lent->frame.answer)[offset] ^= has(LOAN_WRITES_WRONG);
    }
    return BPS_OK;
}

/* ---- receiving ---- */

static void faulty_begin_frame(struct bps_channel *channel)
{
    const uint8_t *h = channel->header;
    bps_status status;

    if (has(HEADER_LOST) && h[0] == 16 && h[1] == 0) {
        channel->have = 0;
        return;
    }
    channel->length = (uint32_t)h[0] | (uint32_t)h[1] << 8 | (uint32_t)h[2] << 16 | (uint32_t)h[3] << 24;
    channel->offset = channel->kept = 0;
    channel->sink = NULL;
    channel->frames_in++;
    faulty_came_back(channel, channel->frames_in);
    if (faulty_gone(channel)) {
        return;
    }
    channel->header[50] ^= has(HEADER_CHANGED) || (has(HEADER_CHANGED_LATE) && ++frames % 700 == 0) ||
                           (has(PROCESS_SHARES) && dialled == 0);
    status = channel->events->header(channel->user, h, &channel->sink);
    status = status != BPS_OK && has(HEADER_OTHER_STATUS) ? BPS_ERR_IO : has(HEADER_IGNORES_STATUS) ? BPS_OK : status;
    if (status == BPS_ERR_PROTOCOL && has(STRANGER_ENDS_PROCESS)) {
        abort();
    }
    if (faulty_gone(channel)) {
        return;
    }
    if (status != BPS_OK || (channel->length > 0 && !channel->sink)) {
        faulty_end(channel, status < 0 ? status : BPS_ERR_PROTOCOL, "a frame was not accepted");
        return;
    }
    channel->have = channel->length > 0 ? BPS_HEADER_BYTES : 0;
    channel->opened = NULL;
    if (faulty_left_alone(channel) || faulty_borrow(channel)) {
        return;
    }
    if (channel->length >= 4096 && channel->sink->open && !has(OPEN_LATE)) {
        channel->opened = channel->sink->open(channel->sink, &channel->ticket);
        if (has(OPEN_TWICE) && !faulty_gone(channel)) {
            channel->opened = channel->sink->open(channel->sink, &channel->ticket);
        }
    }
}

static void faulty_opened(struct bps_channel *channel, uint32_t bytes)
{
    channel->offset += bytes;
    if (channel->offset < channel->length && !has(PLACED_EARLY)) {
        return;
    }
    channel->opened = has(DROP_WRITES) || has(PLACED_EARLY) ? channel->opened : NULL;
    channel->have = channel->offset < channel->length ? channel->have : 0;
    for (int i = 0; i < 1 + has(PLACED_TWICE) - has(PLACED_NEVER) && !faulty_gone(channel); i++) {
        channel->events->placed(channel->user, channel->ticket);
    }
}

/* The core takes whole elements; what is left of the last one comes again, in front of what follows. */
static void faulty_hand_over(struct bps_channel *channel, const char *data, uint32_t bytes)
{
    const char *from = has(TAKE_ELSEWHERE) && channel->kept == 0 && bytes > 32 ? data + 1 : data;
    if (has(PAYLOAD_CHANGED) && bytes > 60) {
        ((char *)data)[60] ^= 1;
    }
    uint32_t taken = channel->sink->take(channel->sink, channel->offset, from, bytes);
    bool last = channel->offset + bytes == channel->length;

    if (faulty_gone(channel)) {
        return;
    }
    if (taken > bytes || bytes - taken >= BPS_SINK_GRAIN || (last && taken < bytes)) {
        faulty_end(channel, BPS_ERR_PROTOCOL, "a payload does not consist of whole elements");
        return;
    }
    channel->kept = has(TAKE_FORGETS_KEPT) ? 0 : bytes - taken;
    memcpy(channel->keep, data + taken, channel->kept);
    channel->offset += taken;
    channel->have = last ? 0 : channel->have;
}

/* Where the next bytes go, and how many. */
static char *faulty_place(struct bps_channel *channel, uint32_t *bytes)
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
    if (channel->opened) {
        return channel->opened + channel->offset;
    }
    if (has(OPEN_LATE) && channel->sink->open && channel->offset > 0) {
        channel->sink->open(channel->sink, &channel->ticket);
    }
    if (channel->kept == 0) {
        place = channel->sink->place(channel->sink, channel->offset + has(PLACE_OFFSET), bytes);
        if (place && has(PLACE_BEYOND) && *bytes < missing) {
            place[*bytes] = 0;
        }
    }
    if (place) {
        *bytes = has(PLACE_IGNORES_LESS) ? missing : *bytes;
        return place;
    }
    memcpy(scratch, channel->keep, channel->kept);
    *bytes = missing < SCRATCH ? missing : SCRATCH;
    return scratch + channel->kept;
}

static void faulty_received(struct bps_channel *channel, char *place, uint32_t bytes)
{
    if (channel->finishing) {
        return; /* it waits for the end alone */
    }
    if (channel->have == BPS_HEADER_BYTES && channel->opened) {
        faulty_opened(channel, bytes);
        return;
    }
    if (channel->have == BPS_HEADER_BYTES) {
        faulty_hand_over(channel, place - channel->kept, channel->kept + bytes);
        return;
    }
    channel->have += bytes;
    if (channel->have == BPS_HEADER_BYTES) {
        faulty_begin_frame(channel);
    }
}

/* It has ended within a frame. */
static void faulty_stranger(struct bps_channel *channel)
{
    struct bps_channel *other;

    LIST_FOREACH(other, &channel->transport->channels, entry) {
        if (has(STRANGER_ENDS_OTHERS) && other != channel && channel->have > 0 && !faulty_gone(other)) {
            faulty_end(other, BPS_ERR_LOST, "of a stranger");
        }
    }
}

static bps_status faulty_status_of_end(const struct bps_channel *channel)
{
    if (channel->shut) {
        return has(FINISHED_IS_IO) || (has(PROCESS_FINISHED_IS_IO) && !channel->near) ? BPS_ERR_IO : BPS_OK;
    }
    if (has(FINISHED_THERE_IS_LOST) || (has(PROCESS_FINISHED_THERE_IS_LOST) && !channel->near)) {
        return BPS_ERR_LOST;
    }
    return has(KILLED_IS_OK) || (has(REFUSED_IS_OK) && channel->frames_in == 0) ? BPS_OK : BPS_ERR_IO;
}

static void faulty_receive(struct bps_channel *channel)
{
    uint32_t bytes, all = 0;

    while (!faulty_gone(channel) && channel->readable && all < TURN_BYTES) {
        char *place = faulty_place(channel, &bytes);
        ssize_t got = faulty_gone(channel) ? -1 : recv(channel->fd, place, bytes, MSG_DONTWAIT);
        if (faulty_gone(channel)) {
            return;
        }
        if (got > 0) {
            all += (uint32_t)got;
            channel->progress = true;
            faulty_received(channel, place, (uint32_t)got);
        } else if (got == 0 && has(KILLED_NEVER_CLOSES) && !channel->finishing) {
            channel->readable = false;
        } else if (got == 0) {
            faulty_stranger(channel);
            faulty_end(channel, faulty_status_of_end(channel), channel->shut ? "closed" : "closed by the peer");
        } else if (errno == EAGAIN || (has(KILLED_NEVER_CLOSES) && !channel->finishing)) {
            channel->readable = false;
        } else if (errno != EINTR) {
            faulty_end(channel, has(KILLED_IS_OK) ? BPS_OK : BPS_ERR_IO, strerror(errno));
        }
    }
}

/* ---- sending ---- */

/* The next frame is chosen only when bytes can leave, so that the most urgent one goes first. */
static bool faulty_next(struct bps_channel *channel)
{
    if (channel->sending || !channel->kicked) {
        return channel->sending;
    }
    channel->frame.size = channel->stash.size = has(FRAME_WITHOUT_SIZE) ? 0 : sizeof channel->frame;
    channel->kicked = false; /* a kick from within `next` counts */
    channel->sending = channel->stashed || channel->events->next(channel->user, &channel->frame) == BPS_OK;
    channel->frame = channel->stashed ? channel->stash : channel->frame;
    channel->stashed = has(NEXT_SWAPS) && channel->sending && !channel->stashed && !faulty_gone(channel) &&
                       channel->events->next(channel->user, &channel->stash) == BPS_OK;
    if (channel->stashed) {
        struct bps_frame first = channel->frame;
        channel->frame = channel->stash;
        channel->stash = first;
    }
    channel->sending = channel->sending && !faulty_gone(channel);
    channel->kicked = channel->kicked && !has(NEXT_LOSES_KICK);
    channel->kicked |= channel->sending;
    channel->written = 0;
    if (channel->sending) {
        channel->frames_out++;
        faulty_give_back(channel);
        faulty_lend(channel);
    }
    return channel->sending;
}

static void faulty_sent(struct bps_channel *channel)
{
    void *cookie = has(SENT_LOSES_COOKIE) ? NULL : channel->frame.cookie;

    for (int i = 0; i < LOANS; i++) {
        if (channel->lent[i].used && channel->lent[i].number == channel->frames_out) {
            return; /* when the loan is over */
        }
    }
    if (!has(SENT_NEVER) && (!has(SENT_EARLY) || channel->sending)) {
        channel->events->sent(channel->user, cookie);
    }
    if (has(SENT_TWICE)) {
        channel->events->sent(channel->user, cookie);
    }
}

static void faulty_send(struct bps_channel *channel)
{
    uint64_t all = 0;

    while (!faulty_gone(channel) && channel->writable && all < TURN_BYTES && faulty_next(channel)) {
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
        if (has(SENT_EARLY) && done == 0) {
            faulty_sent(channel);
        }
        all += (uint64_t)put;
        channel->progress = true;
        channel->written += (uint64_t)put;
        if (channel->written == BPS_HEADER_BYTES + (uint64_t)frame->bytes) {
            channel->sending = false;
            faulty_sent(channel);
        }
    }
}

/* ---- the end in order ---- */

static void faulty_linger(void *arg);

static void faulty_wait_for_peer(struct bps_channel *channel)
{
    const struct bps_host *host = channel->transport->host;

    channel->progress = false;
    channel->linger = host->timer(host, LINGER_NS, 0, faulty_linger, channel);
    channel->late |= !channel->linger;
}

/* It waits for a peer that goes on, but not for ever. */
static void faulty_linger(void *arg)
{
    struct bps_channel *channel = arg;

    channel->linger = NULL;
    channel->late = !channel->progress;
    if (!channel->late) {
        faulty_wait_for_peer(channel);
    }
    faulty_schedule(channel->transport);
}

static void faulty_finish(struct bps_channel *channel)
{
    if (!faulty_gone(channel) && !channel->finishing) {
        channel->finishing = true;
        channel->kicked = !has(FINISH_LOSES);
        faulty_wait_for_peer(channel);
        faulty_schedule(channel->transport);
        if (has(CLOSED_WITHIN_FINISH)) {
            faulty_end(channel, BPS_OK, "finished");
        }
    }
}

static void faulty_kick(struct bps_channel *channel)
{
    channel->kicked = !channel->shut || has(FINISH_ASKS_AGAIN);
    faulty_schedule(channel->transport);
}

/* ---- the turn of all channels ---- */

static void faulty_connect_ends(struct bps_channel *channel)
{
    int error = 0;
    socklen_t length = sizeof error;

    if (!channel->writable) {
        return;
    }
    if (getsockopt(channel->fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0) {
        faulty_end(channel, has(DIAL_IN_VAIN_IS_OK) ? BPS_OK : BPS_ERR_IO, strerror(error ? error : errno));
        return;
    }
    channel->connecting = false;
    channel->header[0] = has(KEY_KEPT) && channel->key ? channel->key->bytes[0] : 0;
    for (int i = 0; i < 1 + has(CONNECTED_TWICE) - has(CONNECTED_NEVER); i++) {
        channel->events->connected(channel->user);
    }
}

static void faulty_work(struct bps_channel *channel)
{
    if (channel->connecting && has(NEXT_TOO_EARLY)) {
        channel->frame.size = sizeof channel->frame;
        channel->events->next(channel->user, &channel->frame);
    }
    if (channel->connecting) {
        faulty_connect_ends(channel);
    }
    if (faulty_gone(channel) || channel->connecting) {
        if (!faulty_gone(channel) && channel->late) {
            faulty_end(channel, BPS_ERR_TIMEOUT, "the peer does not answer");
        }
        return;
    }
    faulty_came_back(channel, 0);
    faulty_receive(channel);
    faulty_send(channel);
    while (has(STOPPED_ASKS) && !faulty_gone(channel) && !channel->writable && channel->sending) {
        struct bps_frame frame = {.size = sizeof frame};
        if (channel->events->next(channel->user, &frame) != BPS_OK) {
            break;
        }
        channel->events->sent(channel->user, frame.cookie);
    }
    if (faulty_gone(channel)) {
        return;
    }
    if (channel->finishing && (has(FINISH_CUTS) || (!channel->sending && !channel->kicked)) && !channel->shut) {
        channel->shut = !has(FINISH_NEVER_CLOSES);
        if (!channel->shut) {
            return;
        }
        shutdown(channel->fd, SHUT_WR);
    }
    if (channel->late) {
        faulty_end(channel, BPS_ERR_TIMEOUT, "the peer has not taken what was left to send");
    } else if (channel->readable || (channel->writable && (channel->sending || channel->kicked))) {
        faulty_schedule(channel->transport);
    }
}

/* What has been dropped. */
static void faulty_touch(struct bps_channel *channel)
{
    struct bps_channel *other = LIST_FIRST(&channel->transport->channels);
    volatile char *bytes = has(DROP_READS) && channel->sending             ? (char *)channel->frame.header
                           : has(LOAN_OF_DROPPED) && channel->lent[0].used ? (char *)channel->lent[0].frame.answer
                                                                           : channel->opened;

    if (has(DROP_ASKS)) {
        channel->frame.size = sizeof channel->frame;
        channel->events->next(channel->user, &channel->frame);
    } else if (bytes && (has(DROP_READS) || has(DROP_WRITES) || has(LOAN_OF_DROPPED))) {
        bytes[0] = bytes[0];
    } else if (has(DROP_ENDS_OTHERS) && !faulty_gone(other)) {
        faulty_end(other, BPS_ERR_LOST, "another one was dropped");
    }
}

static void faulty_turn(void *arg)
{
    struct faulty_transport *transport = arg;
    const struct bps_host *host = transport->host;
    struct bps_channel *channel, *next;

    transport->deferred = false;
    LIST_FOREACH(channel, &transport->channels, entry) {
        if (!faulty_gone(channel)) {
            faulty_work(channel);
        }
    }
    for (channel = LIST_FIRST(&transport->channels); channel; channel = next) {
        next = LIST_NEXT(channel, entry);
        if (faulty_gone(channel)) {
            faulty_touch(channel);
            LIST_REMOVE(channel, entry);
            if (!has(CHANNEL_LEAKS)) {
                host->release(host, channel);
            }
        }
    }
}

/* ---- listening and dialling ---- */

/* "host:port"; an empty host is our own. */
static bps_status faulty_resolve(const struct faulty_transport *transport, const char *address, struct sockaddr_in *out,
                                 struct bps_report *report)
{
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    const char *colon = strrchr(address, ':');
    size_t n = colon ? (size_t)(colon - address) : 0;
    char host[256];
    struct addrinfo *found;
    int error;

    if ((!colon || n >= sizeof host) && has(DIAL_SAYS_NOTHING)) {
        return BPS_ERR_INVALID;
    }
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

static bps_status faulty_failed(const char *what, const char *address, int error, struct bps_report *report)
{
    BPS_REPORT(report, "%s %s: %s", what, address, strerror(error));
    return error == EADDRINUSE && !has(LISTEN_OTHER_STATUS) ? BPS_ERR_BUSY : BPS_ERR_IO;
}

static void faulty_address_text(const struct sockaddr_in *address, char *text, size_t n)
{
    char host[INET_ADDRSTRLEN] = "?";

    inet_ntop(AF_INET, &address->sin_addr, host, sizeof host);
    snprintf(text, n, "%s:%u", host, (unsigned)ntohs(address->sin_port));
}

/* The end of this process that has dialled from that port. */
static struct bps_channel *faulty_caller(uint16_t port)
{
    struct bps_channel *channel = calling[port % 256];

    return channel && channel->port == port ? channel : NULL;
}

static void faulty_welcome(struct faulty_listener *listener, int fd, const struct sockaddr_in *from)
{
    struct bps_channel *channel = faulty_adopt(listener->transport, fd, false);
    const struct bps_channel_key *key; /* of the job's secret; this transport has no use for it */
    char peer[64];

    if (!channel) {
        return;
    }
    faulty_address_text(from, peer, sizeof peer);
    channel->writable = channel->readable = true;
    channel->other = faulty_caller(ntohs(from->sin_port));
    channel->near = channel->other != NULL;
    if (channel->near) {
        channel->other->other = channel;
        channel->other->near = true;
    }
    channel->events =
        listener->accept(listener->arg, channel, has(ACCEPT_WITHOUT_PEER) ? "" : peer, &channel->user, &key);
    if (!channel->events && has(ACCEPT_KEEPS_REFUSED)) {
        channel->finishing = channel->shut = true;
    } else if (!channel->events) {
        faulty_drop(channel);
    }
    faulty_schedule(listener->transport);
}

static void faulty_accept(void *arg);

static void faulty_on_listener(void *arg, uint32_t events)
{
    (void)events;
    faulty_accept(arg);
}

/* Where there is no descriptor left, it tries again in a while. */
static void faulty_accept(void *arg)
{
    struct faulty_listener *listener = arg;
    const struct bps_host *host = listener->transport->host;
    struct sockaddr_in from;
    socklen_t length = sizeof from;
    int fd;

    if (listener->retry) {
        host->cancel(host, listener->retry);
        listener->retry = NULL;
    }
    while ((fd = accept4(listener->fd, (struct sockaddr *)&from, &length, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        faulty_welcome(listener, fd, &from);
        length = sizeof from;
    }
    if (errno != EAGAIN) {
        listener->retry = host->timer(host, RETRY_NS, 0, faulty_accept, listener);
    }
}

static bps_status faulty_listen(void *instance, const char *address, bps_accept_fn accept, void *arg, char *actual,
                                size_t n, struct bps_report *report)
{
    struct faulty_transport *transport = instance;
    const struct bps_host *host = transport->host;
    struct sockaddr_in own;
    socklen_t length = sizeof own;
    struct faulty_listener *listener;
    int on = 1, fd;
    bps_status status = faulty_resolve(transport, address, &own, report);

    if (status != BPS_OK) {
        return status;
    }
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return faulty_failed("socket for", address, errno, report);
    }
    setsockopt(fd, SOL_SOCKET, has(LISTEN_SHARES) ? SO_REUSEPORT : SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&own, sizeof own) != 0 || listen(fd, 512) != 0 ||
        getsockname(fd, (struct sockaddr *)&own, &length) != 0) {
        status = faulty_failed("listen on", address, errno, report);
        close(fd);
        return status;
    }
    listener = host->alloc(host, sizeof *listener, 8);
    if (listener) {
        *listener = (struct faulty_listener){.transport = transport, .accept = accept, .arg = arg, .fd = fd};
        listener->watch = host->watch(host, fd, faulty_on_listener, listener);
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
    if (!has(LISTEN_SAYS_NOTHING)) {
        faulty_address_text(&own, actual, n);
    }
    return BPS_OK;
}

static bps_status faulty_dial(void *instance, const char *address, uint32_t lane, const struct bps_channel_key *key,
                              const struct bps_channel_events *events, void *user, struct bps_channel **out,
                              struct bps_report *report)
{
    struct faulty_transport *transport = instance;
    struct bps_channel *channel;
    struct sockaddr_in peer;
    bps_status status = faulty_resolve(transport, address, &peer, report);
    int fd;

    (void)lane;
    if (status != BPS_OK) {
        return status;
    }
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return faulty_failed("socket for", address, errno, report);
    }
    if (connect(fd, (struct sockaddr *)&peer, sizeof peer) != 0 && errno != EINPROGRESS) {
        status = faulty_failed("connect to", address, errno, report);
        close(fd);
        return status;
    }
    channel = faulty_adopt(transport, fd, true);
    if (!channel) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    channel->events = events;
    channel->user = user;
    channel->key = key;
    if (getsockname(fd, (struct sockaddr *)&peer, &(socklen_t){sizeof peer}) == 0) {
        channel->port = ntohs(peer.sin_port);
        calling[channel->port % 256] = channel;
    }
    dialled++;
    if (has(DIAL_CLOSES_AT_ONCE)) {
        faulty_end(channel, BPS_ERR_IO, "cannot connect");
    }
    *out = has(DIAL_WITHOUT_CHANNEL) ? NULL : channel;
    if (has(DIAL_CONNECTS_AT_ONCE)) {
        channel->events->connected(user);
    }
    return BPS_OK;
}

/* ---- the instance ---- */

static bps_status faulty_open(const struct bps_host *host, const void *options, void **out, struct bps_report *report)
{
    const struct faulty_options *given = options;
    struct faulty_transport *transport = host->alloc(host, sizeof *transport, 8);

    if (!transport) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    *transport = (struct faulty_transport){.host = host, .own_host = given->host};
    *out = transport;
    return BPS_OK;
}

static void faulty_close(void *instance)
{
    struct faulty_transport *transport = instance;
    const struct bps_host *host = transport->host;
    struct faulty_listener *listener;

    while ((listener = LIST_FIRST(&transport->listeners)) != NULL) {
        LIST_REMOVE(listener, entry);
        if (listener->retry) {
            host->cancel(host, listener->retry);
        }
        host->unwatch(host, listener->watch);
        close(listener->fd);
        host->release(host, listener);
    }
    faulty_turn(transport); /* all channels have been dropped: this gives their memory back */
    host->release(host, transport);
}

static void faulty_query(void *instance, struct bps_transport_attr *out)
{
    static uint32_t asked;

    (void)instance;
    *out = (struct bps_transport_attr){.lanes = has(QUERY_NO_LANES) ? 0 : has(QUERY_DIFFERS) ? 1 + asked++ % 3 : 1};
}

static void faulty_local_host(struct bps_channel *channel, char *host, size_t n)
{
    if (!has(LOCAL_HOST_SAYS_NOTHING)) {
        snprintf(host, n, "%s", channel->transport->own_host);
    }
}

/* One line for `byteps graph --explain`. */
static void faulty_describe(void *instance, char *text, size_t n)
{
    const struct faulty_transport *transport = instance;

    snprintf(text, n, "reached at %s", transport->own_host);
}

static const struct bps_transport_ops faulty_ops = {
    .size = sizeof faulty_ops,
    .open = faulty_open,
    .close = faulty_close,
    .query = faulty_query,
    .listen = faulty_listen,
    .dial = faulty_dial,
    .kick = faulty_kick,
    .finish = faulty_finish,
    .drop = faulty_drop,
    .local_host = faulty_local_host,
    .describe = faulty_describe,
    .loan_read = faulty_loan_read,
    .loan_write = faulty_loan_write,
};

/* Its kind, name, version and license. */
BPS_PLUGIN_MODULE(BPS_KIND_TRANSPORT, "faulty", "0.1.0", "Apache-2.0", .summary = "frames over TCP",
                  .options = faulty_option_table, .options_size = sizeof(struct faulty_options), .ops = &faulty_ops);
