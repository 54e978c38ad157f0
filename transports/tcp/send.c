/* SPDX-License-Identifier: Apache-2.0 */
/*
 * send.c - from the core's frames to the socket.
 *
 * The core is asked for frames only when the kernel has room, so that the most urgent one is chosen as late
 * as possible. An event or poll() tells that there is room; half of the low water of unsent bytes may then be
 * written without asking again.
 */
#include "tcp.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#define ROOM_WITHOUT_LOW_WATER (64 << 10)

static void note_room(struct bps_channel *channel)
{
    uint64_t low_water = channel->tcp->options.notsent_lowat;
    channel->out.room = low_water > 0 ? (int64_t)(low_water / 2 + 1) : ROOM_WITHOUT_LOW_WATER;
    channel->out.writable = true;
}

void tcp_send_room(struct bps_channel *channel)
{
    const struct tcp_outgoing *out = &channel->out;
    note_room(channel);
    if (out->kicked || out->count > 0) {
        tcp_channel_queue(channel);
    }
}

static bool has_room(struct bps_channel *channel)
{
    struct pollfd poller = {.fd = channel->fd, .events = POLLOUT};
    if (channel->out.room > 0) {
        return true;
    }
    if (poll(&poller, 1, 0) > 0) {
        note_room(channel);
        return true;
    }
    channel->out.writable = false; /* poll() has asked the kernel for the event */
    return false;
}

/* Bytes that were written and that the peer has not acknowledged. */
static int under_way(const struct bps_channel *channel)
{
    int bytes = 0;
    (void)ioctl(channel->fd, SIOCOUTQ, &bytes);
    return bytes;
}

static bool wants_frames(const struct bps_channel *channel)
{
    const struct tcp_outgoing *out = &channel->out;
    return channel->state == TCP_OPEN && out->kicked && out->writable && out->count == 0;
}

/* Whether a lane has less under way than that; where it is the same, whether it has sent less so far. */
static bool is_before(const struct bps_channel *channel, int bytes, uint64_t sent)
{
    int own = under_way(channel);
    return own < bytes || (own == bytes && channel->out.sent < sent);
}

/*
 * The core keeps so little under way to a peer that one lane has room for all of it, and the links of the other lanes
 * would be empty. So of the lanes that wait for their turn the one with the least under way goes first. Which
 * channels are lanes of one peer is not known here: to let others go first costs them nothing.
 */
static bool gives_way(const struct bps_channel *channel)
{
    const struct tcp *tcp = channel->tcp;
    if (tcp->options.interface.count < 2) {
        return false;
    }
    const struct bps_util_turn *turn;
    int bytes = under_way(channel);
    TAILQ_FOREACH(turn, &tcp->turns.ready, entry) {
        const struct bps_channel *other = turn->arg;
        if (other != channel && wants_frames(other) && is_before(other, bytes, channel->out.sent)) {
            return true;
        }
    }
    return false;
}

/*
 * Bytes to take from the core at once: for one system call, and no more than twice what the kernel has room for but
 * for the last frame. Whatever is taken cannot be overtaken any more, but to write two slices at once costs less.
 * Over several interfaces the second slice is another lane's.
 */
static int64_t enough_of(const struct bps_channel *channel)
{
    if (channel->tcp->options.interface.count > 1) {
        return TCP_BULK;
    }
    return channel->out.room < TCP_BATCH_BYTES / 2 ? 2 * channel->out.room : TCP_BATCH_BYTES;
}

static void gather(struct bps_channel *channel)
{
    struct tcp_outgoing *out = &channel->out;
    int64_t bytes = 0, enough = enough_of(channel);
    out->first = out->count = 0;
    out->written = 0;
    while (out->count < TCP_BATCH_FRAMES && bytes < enough) {
        struct bps_frame *frame = &out->frames[out->count];
        frame->size = sizeof *frame;
        out->kicked = false; /* a kick from within `next` counts */
        bps_status status = channel->events->next(channel->user, frame);
        if (channel->state != TCP_OPEN || status != BPS_OK) {
            return;
        }
        out->kicked = true;
        out->count++;
        bytes += BPS_HEADER_BYTES + (int64_t)frame->bytes;
    }
}

static size_t fill(const struct tcp_outgoing *out, struct iovec *iov)
{
    size_t n = 0;
    uint64_t skip = out->written;
    for (uint32_t i = out->first; i < out->first + out->count; i++) {
        const struct bps_frame *frame = &out->frames[i];
        if (skip < BPS_HEADER_BYTES) {
            iov[n++] = (struct iovec){(uint8_t *)frame->header + skip, BPS_HEADER_BYTES - skip};
            skip = 0;
        } else {
            skip -= BPS_HEADER_BYTES;
        }
        if (frame->bytes > skip) {
            iov[n++] = (struct iovec){(uint8_t *)frame->payload + skip, frame->bytes - skip};
        }
        skip = 0;
    }
    return n;
}

/* The kernel has accepted bytes: the memory of the frames they complete is the core's again. */
static void advance(struct bps_channel *channel, uint64_t bytes)
{
    struct tcp_outgoing *out = &channel->out;
    out->written += bytes;
    while (channel->state == TCP_OPEN && out->count > 0) {
        const struct bps_frame *frame = &out->frames[out->first];
        uint64_t size = BPS_HEADER_BYTES + (uint64_t)frame->bytes;
        if (out->written < size) {
            return;
        }
        out->written -= size;
        out->first++;
        out->count--;
        ++*channel->tcp->count.frames_sent;
        channel->events->sent(channel->user, frame->cookie);
    }
}

/* What has come before the error may explain it, so that it is read first. */
static void write_failed(struct bps_channel *channel, int error)
{
    channel->out.error = error;
    channel->out.writable = false;
    channel->readable = true;
    tcp_channel_queue(channel);
}

/* Writes what was gathered; the number of bytes, 0 if the kernel takes none. */
static size_t write_some(struct bps_channel *channel)
{
    struct tcp_outgoing *out = &channel->out;
    struct iovec iov[2 * TCP_BATCH_FRAMES];
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = fill(out, iov)};
    ssize_t bytes;
    do {
        ++*channel->tcp->count.send_calls;
        bytes = sendmsg(channel->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (bytes < 0 && errno == EINTR);
    if (bytes < 0) {
        if (errno == EAGAIN) {
            out->writable = false;
        } else {
            write_failed(channel, errno);
        }
        return 0;
    }
    *channel->tcp->count.bytes_sent += (uint64_t)bytes;
    channel->progress = true;
    tcp_path_look(channel);
    out->room -= bytes;
    out->sent += (uint64_t)bytes;
    advance(channel, (uint64_t)bytes);
    if (out->count > 0) {
        out->writable = false; /* it took less than there was: the event will come */
    }
    return (size_t)bytes;
}

/* Everything is sent: closes our end, and the channel when the peer has closed its own. */
static void finish_if_done(struct bps_channel *channel)
{
    const struct tcp_outgoing *out = &channel->out;
    if (!channel->finishing || out->kicked || out->count > 0 || out->error != 0) {
        return;
    }
    if (!channel->shut) {
        channel->shut = true;
        shutdown(channel->fd, SHUT_WR);
    }
    if (channel->eof) {
        tcp_channel_end(channel, BPS_OK, "closed");
    }
}

void tcp_send(struct bps_channel *channel)
{
    struct tcp_outgoing *out = &channel->out;
    size_t bytes = 0;
    out->kicked = out->kicked && !channel->shut; /* after its last BPS_AGAIN `next` is not asked again */
    while (out->writable && (out->count > 0 || out->kicked)) {
        if (bytes >= TCP_TURN_BYTES) {
            tcp_channel_queue(channel);
            return;
        }
        if (out->count == 0) {
            if (!has_room(channel)) {
                return;
            }
            if (gives_way(channel)) {
                tcp_channel_queue(channel);
                return;
            }
            gather(channel);
            if (channel->state == TCP_OPEN && out->count == 0) {
                break;
            }
        }
        if (channel->state != TCP_OPEN) {
            return;
        }
        bytes += write_some(channel);
        if (channel->state != TCP_OPEN) {
            return;
        }
    }
    if (out->kicked && out->writable) {
        tcp_channel_queue(channel);
    }
    finish_if_done(channel);
}
