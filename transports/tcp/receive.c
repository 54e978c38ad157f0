/* SPDX-License-Identifier: Apache-2.0 */
/*
 * receive.c - from the socket to the core's sinks.
 *
 * Small frames: one system call fills the scratch memory, and all frames in it are handed over from there.
 * Large payloads: one system call reads the payload to where the core wants it, and then the next header.
 */
#include "tcp.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#define MANY_BYTES (64u << 10) /* of small frames in one system call */

static bool is_receiving(const struct bps_channel *channel)
{
    return channel->state == TCP_OPEN && !channel->finishing;
}

/* ---- frames ---- */

/* A header is complete. */
static void begin_frame(struct bps_channel *channel)
{
    struct tcp_incoming *in = &channel->in;
    uint32_t length = bps_util_payload_bytes(in->header);
    in->have = 0;
    in->sink = NULL;
    ++*channel->tcp->count.frames_received;
    bps_status status = channel->events->header(channel->user, in->header, &in->sink);
    if (channel->state != TCP_OPEN) {
        return;
    }
    if (status == BPS_OK && length > 0 && in->sink == NULL) {
        status = BPS_ERR_PROTOCOL;
    }
    if (status != BPS_OK) {
        tcp_channel_end(channel, status < 0 ? status : BPS_ERR_PROTOCOL, "a frame was not accepted");
        return;
    }
    in->length = length;
    in->offset = in->kept = 0;
    in->bulk = length >= TCP_BULK;
}

static size_t take_header(struct bps_channel *channel, const uint8_t *data, size_t bytes)
{
    struct tcp_incoming *in = &channel->in;
    size_t n = BPS_HEADER_BYTES - in->have;
    n = n < bytes ? n : bytes;
    memcpy(in->header + in->have, data, n);
    in->have += (uint32_t)n;
    if (in->have == BPS_HEADER_BYTES) {
        begin_frame(channel);
    }
    return n;
}

/* Hands over payload from in->offset on: in->kept bytes that are there already, and new ones behind them. */
static void hand_over(struct bps_channel *channel, uint8_t *data, uint32_t new_bytes)
{
    struct tcp_incoming *in = &channel->in;
    uint32_t bytes = in->kept + new_bytes;
    memcpy(data, in->keep, in->kept);
    uint32_t taken = in->sink->take(in->sink, in->offset, data, bytes);
    if (channel->state != TCP_OPEN) {
        return;
    }
    uint32_t rest = bytes - taken;
    bool last = in->offset + bytes == in->length;
    if (taken > bytes || rest >= BPS_SINK_GRAIN || (last && rest > 0)) {
        tcp_channel_end(channel, BPS_ERR_PROTOCOL, "a payload does not consist of whole elements");
        return;
    }
    memcpy(in->keep, data + taken, rest);
    in->kept = rest;
    in->offset += taken;
    if (last) {
        in->length = 0;
        in->sink = NULL;
    }
}

static uint32_t missing(const struct tcp_incoming *in)
{
    return in->length - in->offset - in->kept;
}

/* `data` has room for in->kept bytes in front. */
static size_t take_payload(struct bps_channel *channel, uint8_t *data, size_t bytes)
{
    uint32_t n = missing(&channel->in);
    n = n < bytes ? n : (uint32_t)bytes;
    hand_over(channel, data - channel->in.kept, n);
    return n;
}

static void take_all(struct bps_channel *channel, uint8_t *data, size_t bytes)
{
    while (bytes > 0 && is_receiving(channel)) {
        bool payload = channel->in.length > 0;
        size_t n = payload ? take_payload(channel, data, bytes) : take_header(channel, data, bytes);
        data += n;
        bytes -= n;
    }
}

/* ---- system calls ---- */

static void end_of_stream(struct bps_channel *channel)
{
    const struct tcp_incoming *in = &channel->in;
    int error = channel->out.error;
    bool explained = error == 0 || (!channel->finishing && (error == EPIPE || error == ECONNRESET));
    channel->readable = false;
    if (!explained) {
        tcp_channel_fail(channel, "write", error);
    } else if (channel->finishing) {
        channel->eof = true;
        channel->out.kicked = true;
        tcp_channel_queue(channel);
    } else {
        tcp_channel_end(channel, BPS_ERR_IO,
                        in->have > 0 || in->length > 0 ? "connection closed by peer in the middle of a frame"
                                                       : "connection closed by peer");
    }
}

static size_t room_of(const struct iovec *iov, int n)
{
    size_t bytes = 0;
    for (int i = 0; i < n; i++) {
        bytes += iov[i].iov_len;
    }
    return bytes;
}

/* Reads; the number of bytes, or 0 after having dealt with everything else. */
static size_t read_some(struct bps_channel *channel, const struct iovec *iov, int n)
{
    struct msghdr message = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n};
    ssize_t bytes;
    do {
        ++*channel->tcp->count.receive_calls;
        bytes = recvmsg(channel->fd, &message, MSG_DONTWAIT);
    } while (bytes < 0 && errno == EINTR);
    if (bytes > 0) {
        *channel->tcp->count.bytes_received += (uint64_t)bytes;
        if ((size_t)bytes < room_of(iov, n) && !channel->hangup && channel->out.error == 0) {
            channel->readable = false; /* that was all: what comes next is a new event */
        }
        return (size_t)bytes;
    }
    if (bytes == 0) {
        end_of_stream(channel);
    } else if (errno != EAGAIN) {
        tcp_channel_fail(channel, "read", errno);
    } else {
        channel->readable = false;
        if (channel->out.error != 0) {
            tcp_channel_fail(channel, "write", channel->out.error);
        }
    }
    return 0;
}

/* After finish: what still comes is read away, because closing a socket with unread bytes resets it. */
static size_t discard(struct bps_channel *channel)
{
    const struct iovec iov = {channel->tcp->scratch, TCP_SCRATCH};
    return read_some(channel, &iov, 1);
}

static size_t receive_many(struct bps_channel *channel)
{
    uint8_t *data = channel->tcp->scratch + TCP_SCRATCH_HEAD;
    const struct iovec iov = {data, MANY_BYTES};
    size_t n = read_some(channel, &iov, 1);
    take_all(channel, data, n);
    return n;
}

/* Only the header: what follows it may be large. */
static size_t receive_header(struct bps_channel *channel)
{
    struct tcp_incoming *in = &channel->in;
    const struct iovec iov = {in->header + in->have, BPS_HEADER_BYTES - in->have};
    size_t n = read_some(channel, &iov, 1);
    in->have += (uint32_t)n;
    if (in->have == BPS_HEADER_BYTES) {
        begin_frame(channel);
    }
    return n;
}

/* Where the payload from in->offset on is to be read: the core's own memory, else the scratch memory. */
static uint8_t *find_place(struct bps_channel *channel, uint32_t *bytes)
{
    struct tcp_incoming *in = &channel->in;
    uint32_t all = in->length - in->offset;
    *bytes = all;
    uint8_t *place = in->sink->place(in->sink, in->offset, bytes);
    if (place == NULL || *bytes <= in->kept) {
        place = channel->tcp->scratch;
        *bytes = TCP_SCRATCH;
    }
    *bytes = *bytes < all ? *bytes : all;
    return place;
}

static size_t receive_bulk(struct bps_channel *channel)
{
    struct tcp_incoming *in = &channel->in;
    uint32_t bytes;
    uint8_t *place = find_place(channel, &bytes);
    if (!is_receiving(channel)) {
        return 0;
    }
    uint32_t room = bytes - in->kept;
    const struct iovec iov[2] = {{place + in->kept, room}, {in->header, BPS_HEADER_BYTES}};
    size_t n = read_some(channel, iov, room == missing(in) ? 2 : 1);
    if (n == 0) {
        return 0;
    }
    hand_over(channel, place, n < room ? (uint32_t)n : room);
    if (n > room && is_receiving(channel)) {
        in->have = (uint32_t)(n - room);
        if (in->have == BPS_HEADER_BYTES) {
            begin_frame(channel);
        }
    }
    return n;
}

void tcp_receive(struct bps_channel *channel)
{
    size_t bytes = 0;
    while (channel->state == TCP_OPEN && channel->readable) {
        if (bytes >= TCP_TURN_BYTES) {
            tcp_channel_queue(channel);
            return;
        }
        if (channel->finishing) {
            bytes += discard(channel);
        } else if (!channel->in.bulk) {
            bytes += receive_many(channel);
        } else if (channel->in.length == 0) {
            bytes += receive_header(channel);
        } else {
            bytes += receive_bulk(channel);
        }
    }
}
