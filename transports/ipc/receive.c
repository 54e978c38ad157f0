/* SPDX-License-Identifier: Apache-2.0 */
/*
 * receive.c - from the ring to the core's sinks. Payloads are presented where they lie: in the ring, in the
 * sender's pages; only what comes by process_vm_readv is read to where the core wants it.
 */
#include "ipc.h"

#include <string.h>

static bool is_receiving(const struct bps_channel *channel)
{
    return channel->state == IPC_OPEN && !channel->finishing;
}

static const char *reason(bps_status status)
{
    switch (status) {
    case BPS_ERR_PROTOCOL:
        return "a frame was not accepted";
    case BPS_ERR_NOMEM:
        return "out of memory";
    case BPS_ERR_IO:
        return "connection closed by peer in the middle of a frame";
    default:
        return "a frame was refused";
    }
}

/* ---- presenting ---- */

/* Bytes in memory here. They are whole elements, unless the peer errs. */
static bps_status present(struct bps_channel *channel, struct bps_sink *sink, uint32_t offset, const void *data,
                          uint32_t bytes)
{
    uint32_t taken = sink->take(sink, offset, data, bytes);
    channel->taken += bytes;
    return channel->state == IPC_OPEN && taken != bytes ? BPS_ERR_PROTOCOL : BPS_OK;
}

/* NULL: no memory. */
static uint8_t *scratch(struct ipc *ipc)
{
    if (ipc->scratch == NULL) {
        ipc->scratch = ipc->host->alloc(ipc->host, IPC_SCRATCH, IPC_PAGE);
    }
    return ipc->scratch;
}

/* Where `*bytes` of the rest of a payload are to be read: the core's own memory, else the scratch memory. */
static uint8_t *find_place(struct bps_channel *channel, struct bps_sink *sink, uint32_t offset, uint32_t *bytes)
{
    uint32_t rest = *bytes, room = rest;
    uint8_t *place = sink->place(sink, offset, &room);
    if (room < rest) {
        room &= ~(BPS_SINK_GRAIN - 1);
    }
    if (place == NULL || room == 0) {
        place = scratch(channel->ipc);
        room = IPC_SCRATCH;
    }
    *bytes = room < rest ? room : rest;
    return place;
}

static bps_status present_remote(struct bps_channel *channel, struct bps_sink *sink, uint64_t address, uint32_t length)
{
    bps_status status = BPS_OK;
    for (uint32_t offset = 0; offset < length && status == BPS_OK && is_receiving(channel);) {
        uint32_t bytes = length - offset;
        uint8_t *place = find_place(channel, sink, offset, &bytes);
        if (!is_receiving(channel)) {
            break;
        }
        if (place == NULL) {
            return BPS_ERR_NOMEM;
        }
        status = ipc_remote_read(channel, address + offset, place, bytes);
        if (status == BPS_OK) {
            status = present(channel, sink, offset, place, bytes);
        }
        offset += bytes;
    }
    return status;
}

/* ---- frames ---- */

/* Tells the core of a header. *sink NULL: there is nothing to present. */
static bps_status begin_frame(struct bps_channel *channel, const uint8_t *place, struct bps_sink **sink,
                              uint32_t *length)
{
    uint8_t header[BPS_HEADER_BYTES];
    memcpy(header, place + sizeof(struct ipc_record), sizeof header);
    *sink = NULL;
    *length = bps_util_payload_bytes(header);
    ++*channel->ipc->count.frames_received;
    bps_status status = channel->events->header(channel->user, header, sink);
    if (!is_receiving(channel) || *length == 0) {
        *sink = NULL;
    } else if (status == BPS_OK && *sink == NULL) {
        return BPS_ERR_PROTOCOL;
    }
    return status <= 0 ? status : BPS_ERR_PROTOCOL;
}

static bps_status on_inline(struct bps_channel *channel, const struct ipc_record *record, const uint8_t *place)
{
    struct bps_sink *sink;
    uint32_t length;
    if (record->bytes > record->size - IPC_HEAD || bps_util_payload_bytes(place + sizeof *record) != record->bytes) {
        return BPS_ERR_PROTOCOL;
    }
    bps_status status = begin_frame(channel, place, &sink, &length);
    if (status != BPS_OK || sink == NULL) {
        return status;
    }
    if (length != record->bytes) {
        return BPS_ERR_PROTOCOL; /* it has changed meanwhile */
    }
    return present(channel, sink, 0, place + IPC_HEAD, length);
}

static bps_status on_stream(struct bps_channel *channel, const uint8_t *place)
{
    struct bps_sink *sink;
    uint32_t length;
    bps_status status = begin_frame(channel, place, &sink, &length);
    if (channel->state == IPC_OPEN) {
        channel->sink = sink;
        channel->length = length;
        channel->offset = 0;
    }
    return status;
}

static bps_status on_more(struct bps_channel *channel, const struct ipc_record *record, const uint8_t *place)
{
    struct bps_sink *sink = channel->sink;
    uint32_t rest = channel->length - channel->offset, bytes = record->bytes;
    if (sink == NULL || bytes == 0 || bytes > record->size - IPC_LINE || bytes > rest ||
        (bytes < rest && bytes % BPS_SINK_GRAIN != 0)) {
        return BPS_ERR_PROTOCOL;
    }
    uint32_t offset = channel->offset;
    channel->offset += bytes;
    if (bytes == rest) {
        channel->sink = NULL;
    }
    return present(channel, sink, offset, place + IPC_LINE, bytes);
}

static bps_status present_reference(struct bps_channel *channel, const struct ipc_record *record, struct bps_sink *sink,
                                    uint32_t length)
{
    if (record->kind == IPC_REMOTE) {
        return present_remote(channel, sink, record->at, length);
    }
    void *data = ipc_region_address(channel, record->region, record->at, length);
    if (data == NULL) {
        return BPS_ERR_PROTOCOL;
    }
    return present(channel, sink, 0, data, length);
}

/* A payload that the peer does not send, but shows. */
static bps_status on_reference(struct bps_channel *channel, const struct ipc_record *record, uint8_t *place)
{
    struct ipc_record *shared = (struct ipc_record *)place;
    struct bps_sink *sink;
    uint32_t length;
    bps_status status = begin_frame(channel, place, &sink, &length);
    if (status != BPS_OK || sink == NULL) {
        return status;
    }
    if ((record->flags & IPC_LENDABLE) != 0) {
        status = ipc_loan_offer(channel, sink, record, length);
        if (status != BPS_AGAIN || !is_receiving(channel)) {
            shared->verdict = status == BPS_OK ? IPC_LENT : IPC_TAKEN;
            return status == BPS_AGAIN ? BPS_OK : status;
        }
    }
    status = present_reference(channel, record, sink, length);
    shared->verdict = IPC_TAKEN;
    return status;
}

static bps_status on_return(struct bps_channel *channel, const struct ipc_record *record, const uint8_t *place)
{
    struct bps_sink *sink;
    uint32_t length;
    if (bps_util_payload_bytes(place + sizeof(struct ipc_record)) != 0) {
        return BPS_ERR_PROTOCOL;
    }
    bps_status status = ipc_ticket_return(channel, record->ticket, record->serial);
    if (status != BPS_OK || !is_receiving(channel)) {
        return status;
    }
    status = begin_frame(channel, place, &sink, &length);
    return status == BPS_OK && sink != NULL ? BPS_ERR_PROTOCOL : status;
}

/* ---- records ---- */

static bps_status handle(struct bps_channel *channel, const struct ipc_record *record, uint8_t *place)
{
    bool whole = channel->sink == NULL;
    if (record->kind == IPC_PAD) {
        return BPS_OK;
    }
    if (record->kind != IPC_MORE && record->size < IPC_HEAD) {
        return BPS_ERR_PROTOCOL;
    }
    /* After finish, what comes is only taken away; but loans come home. */
    if (channel->finishing) {
        return record->kind == IPC_RETURN ? on_return(channel, record, place) : BPS_OK;
    }
    switch (record->kind) {
    case IPC_INLINE:
        return whole ? on_inline(channel, record, place) : BPS_ERR_PROTOCOL;
    case IPC_STREAM:
        return whole ? on_stream(channel, place) : BPS_ERR_PROTOCOL;
    case IPC_MORE:
        return on_more(channel, record, place);
    case IPC_MAPPED:
    case IPC_REMOTE:
        return whole ? on_reference(channel, record, place) : BPS_ERR_PROTOCOL;
    case IPC_RETURN:
        return whole ? on_return(channel, record, place) : BPS_ERR_PROTOCOL;
    default:
        return BPS_ERR_PROTOCOL;
    }
}

static bool is_large(const struct ipc_record *record)
{
    return record->kind == IPC_MORE || record->kind == IPC_MAPPED || record->kind == IPC_REMOTE;
}

bool ipc_receive(struct bps_channel *channel)
{
    struct ipc_ring *ring = &channel->ring;
    uint64_t begin = ring->head;
    channel->taken = 0;
    for (unsigned n = 0; n < IPC_TURN_RECORDS && channel->taken < IPC_TURN_BYTES; n++) {
        struct ipc_record record;
        uint8_t *place;
        bps_status status = ipc_ring_peek(ring, &record, &place);
        if (status == BPS_AGAIN) {
            break;
        }
        if (status == BPS_OK) {
            status = handle(channel, &record, place);
        }
        if (channel->state == IPC_OPEN && status != BPS_OK) {
            ipc_channel_end(channel, status, reason(status));
        }
        if (channel->state != IPC_OPEN) {
            return false;
        }
        ipc_ring_consume(ring, record.size);
        if (is_large(&record) || ring->head - ring->told > ring->bytes / 4) {
            ipc_flush(channel);
        }
    }
    if (ring->head != begin) {
        ipc_flush(channel);
    }
    return true;
}
