/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.c - channels between members: sending, receiving whole messages,
 * ending. The handshake is in handshake.c.
 */
#include "wire/link.h"

#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/log.h"
#include "base/report.h"
#include "plugin/returned.h"
#include "wire/handshake.h"

#define LOG "link"

/* A message; or what a link with checksums adds to a slice: a header of its own, as others may send the owner's. */
struct bps_parcel {
    STAILQ_ENTRY(bps_parcel) entry;
    uint8_t header[BPS_HEADER_BYTES];
    bool slice;
    void *cookie; /* of a slice: the owner's */
    uint32_t bytes;
    uint8_t payload[];
};

/* Cookies of parcels have the lowest bit set, so that they are told from the owner's cookies. */
static void *parcel_cookie(struct bps_parcel *parcel)
{
    return (void *)((uintptr_t)parcel | 1);
}

static void free_parcels(struct bps_parcels *parcels)
{
    while (!STAILQ_EMPTY(parcels)) {
        struct bps_parcel *parcel = STAILQ_FIRST(parcels);
        STAILQ_REMOVE_HEAD(parcels, entry);
        free(parcel);
    }
}

/* Forgets the channel and what was queued for it. */
static void link_reset(struct bps_link *link)
{
    link->channel = NULL;
    link->state = BPS_LINK_IDLE;
    free_parcels(&link->queue);
    free_parcels(&link->writing);
    link->queued = 0;
    free(link->payload);
    link->payload = NULL;
    OPENSSL_cleanse(&link->channel_key, sizeof link->channel_key);
    bps_checksum_free(link->sending);
    bps_checksum_free(link->receiving);
    link->sending = link->receiving = NULL;
    if (link->ended != NULL) {
        *link->ended = true;
        link->ended = NULL;
    }
}

/* Ends the link because of what the peer sent. */
static void link_fail(struct bps_link *link, bps_status status, const char *text)
{
    if (link->channel != NULL) {
        bps_link_drop(link);
        link->handler->closed(link->owner, link, status, text);
    }
}

/* ---- receiving ---- */

static bool is_slice(const struct bps_header *header)
{
    return header->type == BPS_FRAME_PUSH || header->type == BPS_FRAME_RESULT;
}

/* `how` it came about, and which frame of all. */
static void spoilt_text(const char *how, const struct bps_header *header, struct bps_report *out)
{
    (void)bps_fail(out, BPS_ERR_IO,
                   "it %s a frame that does not match its checksum: of type %u, tensor %u, partition %u, offset %u, "
                   "round %u",
                   how, header->type, header->tensor, header->partition, header->offset, header->round);
}

/* Whether the frame is as it was sent. If not, the link ends: nothing of the frame has been used. */
static bool frame_fits(struct bps_link *link, const void *payload)
{
    const struct bps_header *header = &link->header;
    struct bps_report report;
    uint8_t bytes[BPS_HEADER_BYTES];
    if (link->receiving == NULL) {
        return true;
    }
    bps_header_encode(header, bytes);
    if (bps_checksum_fits(link->receiving, link->received++, bytes, payload, header->length)) {
        return true;
    }
    spoilt_text("sent", header, &report);
    bps_error(LOG, "%s: %s", link->peer, report.text);
    spoilt_text("got", header, &report);
    link->spoilt = true;
    bps_link_send_text(link, BPS_FRAME_SPOILT, report.text);
    bps_link_finish(link);
    return false;
}

/* The peer says which frame of ours was spoilt. */
static void on_spoilt(struct bps_link *link, struct bps_reader *payload)
{
    char text[BPS_TEXT_LIMIT + 1];
    bps_get_text(payload, text, sizeof text);
    link_fail(link, BPS_ERR_IO, text);
}

/* A slice that is whole, and as it was sent. */
static bps_status deliver_slice(struct bps_link *link, const struct bps_header *header, const void *payload)
{
    struct bps_sink *sink = NULL;
    bool ended = false;
    link->ended = &ended;
    bps_status status = link->handler->slice(link->owner, link, header, &sink);
    if (!ended && status == BPS_OK && header->length > 0) {
        bool taken = sink != NULL && sink->take(sink, 0, payload, header->length) == header->length;
        status = taken ? BPS_OK : BPS_ERR_PROTOCOL;
    }
    if (ended) {
        return BPS_OK;
    }
    link->ended = NULL;
    return status;
}

/* The frame is whole; its payload lies in link->payload, or where the transport has it. */
static bps_status link_deliver(struct bps_link *link, const void *payload)
{
    struct bps_header header = link->header;
    uint8_t *own = link->payload;
    bps_assert(link->channel != NULL && (header.length == 0 || payload != NULL));
    link->payload = NULL;
    header.checksum = 0;
    struct bps_reader reader;
    bps_reader_init(&reader, payload, header.length);
    bps_status status = BPS_OK;
    if (!frame_fits(link, payload)) { /* and there may be no link any more */
        status = BPS_OK;
    } else if (link->state != BPS_LINK_OPEN) {
        status = bps_handshake(link, &header, &reader);
    } else if (header.type == BPS_FRAME_SPOILT && link->receiving != NULL) {
        on_spoilt(link, &reader);
    } else if (is_slice(&header)) {
        status = deliver_slice(link, &header, payload);
    } else if (header.type != BPS_FRAME_PING) {
        status = link->handler->message(link->owner, link, &header, &reader);
    }
    free(own);
    return status;
}

/* Memory for all of the payload. */
static bool collects(struct bps_link *link)
{
    if (link->payload == NULL) {
        link->payload = malloc(link->header.length);
    }
    return link->payload != NULL;
}

static void *message_place(struct bps_sink *sink, uint32_t offset, uint32_t *bytes)
{
    struct bps_link *link = bps_container(sink, struct bps_link, sink);
    *bytes = link->header.length - offset;
    return collects(link) ? link->payload + offset : NULL;
}

/* Slices that lie somewhere as a whole stay there: nobody looks at a byte of theirs twice but to check them. */
static uint32_t message_take(struct bps_sink *sink, uint32_t offset, const void *data, uint32_t bytes)
{
    struct bps_link *link = bps_container(sink, struct bps_link, sink);
    bool stays = is_slice(&link->header) && bytes == link->header.length;
    if (!stays && !collects(link)) {
        link_fail(link, BPS_ERR_NOMEM, "out of memory");
        return bytes;
    }
    if (!stays && data != link->payload + offset) {
        memcpy(link->payload + offset, data, bytes);
    }
    if (offset + bytes == link->header.length) {
        struct bps_channel *channel = link->channel;
        bps_status status = link_deliver(link, stays ? data : link->payload);
        if (status != BPS_OK && link->channel == channel) {
            link_fail(link, status, "it sent a message that the protocol does not allow");
        }
    }
    return bytes;
}

static bps_status on_header(void *user, const uint8_t *bytes, struct bps_sink **sink)
{
    struct bps_link *link = user;
    struct bps_header header;
    link->last_received = bps_now_roughly();
    bps_status status = link->state == BPS_LINK_DIALLING ? bps_check_version(link, bytes) : BPS_OK;
    if (status != BPS_OK) {
        return status == BPS_ERR_REFUSED ? BPS_OK : status; /* and the link may be gone */
    }
    bool checked = link->receiving != NULL;
    if (bps_header_decode(bytes, &header) != BPS_OK || link->state == BPS_LINK_REFUSED ||
        (!checked && header.checksum != 0)) {
        return BPS_ERR_PROTOCOL;
    }
    bool slice = is_slice(&header);
    if (slice && (link->state != BPS_LINK_OPEN || link->handler->slice == NULL)) {
        return BPS_ERR_PROTOCOL;
    }
    if (slice && !checked) {
        return link->handler->slice(link->owner, link, &header, sink);
    }
    uint32_t limit = link->state == BPS_LINK_OPEN ? BPS_MESSAGE_LIMIT : BPS_HANDSHAKE_LIMIT;
    if (header.length > (slice ? BPS_SLICE_LIMIT : limit)) {
        return BPS_ERR_PROTOCOL;
    }
    bps_assert(link->payload == NULL); /* a message is whole before the next one begins */
    link->header = header;
    if (header.length == 0) {
        return link_deliver(link, NULL);
    }
    if (!slice && !collects(link)) {
        return BPS_ERR_NOMEM;
    }
    link->sink = (struct bps_sink){.place = message_place, .take = message_take};
    *sink = &link->sink;
    return BPS_OK;
}

static void link_on_placed(void *user, void *ticket)
{
    struct bps_link *link = user;
    link->last_received = bps_now_roughly();
    link->handler->placed(link->owner, link, ticket);
}

/* ---- sending ---- */

/* Whoever gets a frame for whose checksum there was no memory finds that it does not match. */
static void seal(struct bps_link *link, struct bps_parcel *parcel, const void *payload, uint32_t bytes)
{
    (void)bps_checksum_put(link->sending, link->sent++, parcel->header, payload, bytes);
}

/*
 * What has a checksum is not lent: the peer reads a loan while it sums it, and writes the answer without a frame, so
 * that neither could be checked before it is used.
 */
static bps_status next_checked(struct bps_link *link, struct bps_frame *out)
{
    struct bps_parcel *parcel = malloc(sizeof *parcel);
    if (parcel == NULL) {
        bps_link_finish(link);
        return BPS_AGAIN;
    }
    bps_status status = link->handler->next(link->owner, link, out);
    if (status != BPS_OK) {
        free(parcel);
        return status;
    }
    parcel->slice = true;
    parcel->cookie = out->cookie;
    parcel->bytes = 0;
    memcpy(parcel->header, out->header, sizeof parcel->header);
    STAILQ_INSERT_TAIL(&link->writing, parcel, entry);
    link->queued += sizeof *parcel;
    seal(link, parcel, out->payload, out->bytes);
    out->header = parcel->header;
    out->cookie = parcel_cookie(parcel);
    out->answer = NULL;
    return BPS_OK;
}

static bool is_sealed(const struct bps_link *link, const struct bps_parcel *parcel)
{
    struct bps_header header;
    return link->sending != NULL && bps_header_decode(parcel->header, &header) == BPS_OK &&
           header.type > BPS_FRAME_WELCOME;
}

static bps_status link_on_next(void *user, struct bps_frame *out)
{
    struct bps_link *link = user;
    struct bps_parcel *parcel = STAILQ_FIRST(&link->queue);
    if (parcel != NULL) {
        STAILQ_REMOVE_HEAD(&link->queue, entry);
        STAILQ_INSERT_TAIL(&link->writing, parcel, entry);
        *out = (struct bps_frame){
            .header = parcel->header,
            .payload = parcel->payload,
            .bytes = parcel->bytes,
            .cookie = parcel_cookie(parcel),
        };
        if (is_sealed(link, parcel)) {
            seal(link, parcel, parcel->payload, parcel->bytes);
        }
        return BPS_OK;
    }
    if (link->state != BPS_LINK_OPEN || link->handler->next == NULL || link->spoilt) {
        return BPS_AGAIN;
    }
    return link->sending != NULL ? next_checked(link, out) : link->handler->next(link->owner, link, out);
}

static void link_on_sent(void *user, void *cookie)
{
    struct bps_link *link = user;
    link->last_sent = bps_now_roughly();
    if (((uintptr_t)cookie & 1) == 0) {
        link->handler->sent(link->owner, link, cookie);
        return;
    }
    struct bps_parcel *parcel = (struct bps_parcel *)((uintptr_t)cookie & ~(uintptr_t)1);
    STAILQ_REMOVE(&link->writing, parcel, bps_parcel, entry);
    bps_assert(link->queued >= sizeof *parcel + parcel->bytes);
    link->queued -= sizeof *parcel + parcel->bytes;
    bps_assert(link->queued > 0 || (STAILQ_EMPTY(&link->queue) && STAILQ_EMPTY(&link->writing)));
    bool slice = parcel->slice;
    cookie = parcel->cookie;
    free(parcel);
    if (slice) {
        link->handler->sent(link->owner, link, cookie);
    }
}

static const struct bps_transport_ops *link_ops_of(const struct bps_link *link)
{
    return link->transport->ops;
}

bps_status bps_link_send(struct bps_link *link, const struct bps_header *header, const void *payload, size_t bytes)
{
    if (link->channel == NULL || bytes > BPS_MESSAGE_LIMIT) {
        return link->channel == NULL ? BPS_ERR_LOST : BPS_ERR_INVALID;
    }
    struct bps_parcel *parcel = malloc(sizeof *parcel + bytes);
    if (parcel == NULL) { /* the peer would wait for it */
        bps_link_finish(link);
        return BPS_ERR_NOMEM;
    }
    struct bps_header full = *header;
    full.length = (uint32_t)bytes;
    bps_header_encode(&full, parcel->header);
    parcel->slice = false;
    parcel->cookie = NULL;
    parcel->bytes = (uint32_t)bytes;
    if (bytes > 0) {
        memcpy(parcel->payload, payload, bytes);
    }
    STAILQ_INSERT_TAIL(&link->queue, parcel, entry);
    link->queued += sizeof *parcel + bytes;
    bps_link_kick(link);
    return BPS_OK;
}

bps_status bps_link_send_message(struct bps_link *link, uint8_t type, const struct bps_writer *payload)
{
    const struct bps_header header = {.type = type};
    if (payload == NULL) {
        return bps_link_send(link, &header, NULL, 0);
    }
    if (payload->failed) { /* as there */
        bps_link_finish(link);
        return BPS_ERR_NOMEM;
    }
    return bps_link_send(link, &header, payload->data, payload->size);
}

bps_status bps_link_send_text(struct bps_link *link, uint8_t type, const char *text)
{
    const struct bps_header header = {.type = type};
    return bps_link_send(link, &header, text, strnlen(text, BPS_TEXT_LIMIT));
}

void bps_link_kick(struct bps_link *link)
{
    if (link->channel != NULL) {
        BPS_CALLING(link->transport, "kick", NULL);
        link_ops_of(link)->kick(link->channel);
    }
}

void bps_link_keep_alive(struct bps_link *link, uint64_t now, uint64_t quiet)
{
    if (link->state == BPS_LINK_OPEN && now - link->last_sent > quiet) {
        bps_link_send_message(link, BPS_FRAME_PING, NULL);
        link->last_sent = now;
    }
}

/* ---- beginning and end ---- */

static void on_connected(void *user)
{
    struct bps_link *link = user;
    link->connected = link->last_received = bps_now();
}

static void link_on_closed(void *user, bps_status status, const char *text)
{
    struct bps_link *link = user;
    struct bps_report report;
    link_reset(link);
    if (link->spoilt) {
        status = BPS_ERR_IO;
        spoilt_text("sent", &link->header, &report);
        text = report.text;
    }
    link->handler->closed(link->owner, link, status,
                          status == BPS_ERR_PROTOCOL ? "it sent bytes that the protocol does not allow" : text);
}

static const struct bps_channel_events link_events = {
    .connected = on_connected,
    .header = on_header,
    .next = link_on_next,
    .sent = link_on_sent,
    .closed = link_on_closed,
    .placed = link_on_placed,
};

static void link_init(struct bps_link *link, const struct bps_link_handler *handler, void *owner,
                      const struct bps_instance *transport, const char *peer)
{
    memset(link, 0, sizeof *link);
    link->handler = handler;
    link->owner = owner;
    link->transport = transport;
    STAILQ_INIT(&link->queue);
    STAILQ_INIT(&link->writing);
    link->last_sent = link->last_received = bps_now();
    snprintf(link->peer, sizeof link->peer, "%s", peer);
}

bps_status bps_link_dial(struct bps_link *link, const struct bps_link_handler *handler, void *owner,
                         const struct bps_instance *transport, const char *address, uint32_t lane,
                         struct bps_report *report)
{
    const struct bps_channel_key *key;
    link_init(link, handler, owner, transport, address);
    if (bps_channel_key(transport->conf, &link->channel_key, &key) != BPS_OK) {
        return bps_out_of_memory(report);
    }
    link->state = BPS_LINK_DIALLING;
    BPS_CALLING(transport, "dial", NULL);
    bps_status status =
        link_ops_of(link)->dial(transport->self, address, lane, key, &link_events, link, &link->channel, report);
    OPENSSL_cleanse(&link->channel_key, sizeof link->channel_key);
    status = bps_returned(transport, "dial", BPS_OK, status, report);
    if (status != BPS_OK) {
        link_reset(link);
    }
    return status;
}

const struct bps_channel_events *bps_link_accept(struct bps_link *link, const struct bps_link_handler *handler,
                                                 void *owner, const struct bps_instance *transport,
                                                 struct bps_channel *channel, const char *peer, void **user,
                                                 const struct bps_channel_key **key)
{
    link_init(link, handler, owner, transport, peer);
    link->channel = channel;
    link->state = BPS_LINK_ACCEPTED;
    if (bps_channel_key(transport->conf, &link->channel_key, key) != BPS_OK || bps_challenge(link) != BPS_OK) {
        link_reset(link);
        return NULL;
    }
    *user = link;
    return &link_events;
}

void bps_link_finish(struct bps_link *link)
{
    if (link->channel != NULL) {
        BPS_CALLING(link->transport, "finish", NULL);
        link_ops_of(link)->finish(link->channel);
    }
}

void bps_link_drop(struct bps_link *link)
{
    struct bps_channel *channel = link->channel;
    if (channel != NULL) {
        link_reset(link);
        BPS_CALLING(link->transport, "drop", NULL);
        link_ops_of(link)->drop(channel);
    }
}
