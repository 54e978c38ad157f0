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
#include "base/layout.h"
#include "base/log.h"
#include "base/report.h"
#include "plugin/returned.h"
#include "wire/handshake.h"

#define LOG   "link"
#define SPARE (1u << 20) /* bytes that a link which encrypts keeps for what it sends next */

/* A message; or what a link with checksums adds to a slice: a header of its own, as others may send the owner's. */
struct bps_parcel {
    STAILQ_ENTRY(bps_parcel) entry;
    uint8_t header[BPS_HEADER_BYTES];
    bool sealed; /* it has a number, and stays until the peer has acknowledged that */
    bool slice;
    void *cookie; /* of a slice: the owner's */
    uint64_t number;
    uint32_t held; /* by the transport: as often as it was handed this frame and has not said `sent` */
    uint32_t bytes;
    const void *payload; /* of a slice that is not encrypted the owner's, else: */
    uint8_t own[];
};

/* Cookies of parcels have the lowest bit set, so that they are told from the owner's cookies. */
static void *parcel_cookie(struct bps_parcel *parcel)
{
    return (void *)((uintptr_t)parcel | 1);
}

static void free_parcel(struct bps_link *link, struct bps_parcel *parcel)
{
    bps_spare_give(&link->spare, parcel, bps_checksum_grows(link->repeat.sending) > 0 ? SPARE : 0);
}

static void free_parcels(struct bps_link *link, struct bps_parcels *parcels)
{
    while (!STAILQ_EMPTY(parcels)) {
        struct bps_parcel *parcel = STAILQ_FIRST(parcels);
        STAILQ_REMOVE_HEAD(parcels, entry);
        free_parcel(link, parcel);
    }
}

/* Forgets the channel and what was queued for it. */
static void link_reset(struct bps_link *link)
{
    link->channel = NULL;
    link->state = BPS_LINK_IDLE;
    free_parcels(link, &link->queue);
    free_parcels(link, &link->writing);
    bps_spare_fini(&link->spare);
    link->queued = 0;
    free(link->payload);
    link->payload = NULL;
    link->again = NULL;
    OPENSSL_cleanse(&link->channel_key, sizeof link->channel_key);
    bps_repeat_fini(&link->repeat);
    if (link->patience != NULL) {
        link->transport->host->cancel(link->transport->host, link->patience);
        link->patience = NULL;
    }
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

/* Whether the link ends while its owner is called, who may then have freed it. */
struct watch {
    bool ended;
    bool *outer; /* of who called before */
};

static void watch_link(struct bps_link *link, struct watch *watch)
{
    *watch = (struct watch){.outer = link->ended};
    link->ended = &watch->ended;
}

static bool still_there(struct bps_link *link, const struct watch *watch)
{
    if (!watch->ended) {
        link->ended = watch->outer;
    } else if (watch->outer != NULL) {
        *watch->outer = true;
    }
    return !watch->ended;
}

static void finish_channel(struct bps_link *link)
{
    BPS_CALLING(link->transport, "finish", NULL);
    ((const struct bps_transport_ops *)link->transport->ops)->finish(link->channel);
}

/* Of those that are out the next one that has a number. */
static struct bps_parcel *following(struct bps_parcel *parcel)
{
    do {
        parcel = STAILQ_NEXT(parcel, entry);
    } while (parcel != NULL && !parcel->sealed);
    return parcel;
}

/* It is out no more; the link may be gone after it. */
static void take_parcel(struct bps_link *link, struct bps_parcel *parcel)
{
    uint64_t bytes = sizeof *parcel + (parcel->payload == parcel->own ? parcel->bytes : 0);
    bool slice = parcel->slice;
    void *cookie = parcel->cookie;
    STAILQ_REMOVE(&link->writing, parcel, bps_parcel, entry);
    bps_assert(link->queued >= bytes);
    link->queued -= bytes;
    bps_assert(link->queued > 0 || (STAILQ_EMPTY(&link->queue) && STAILQ_EMPTY(&link->writing)));
    free_parcel(link, parcel);
    if (slice) {
        link->handler->sent(link->owner, link, cookie);
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

/* The frame is asked for again; the last time it ends the link: nothing of it has been used. */
static void on_mismatch(struct bps_link *link, bool hopeless)
{
    struct bps_report report;
    spoilt_text("sent", &link->header, &report);
    if (!hopeless) {
        bps_warn(LOG, "%s: %s; requesting it again", link->peer, report.text);
        bps_link_kick(link);
        return;
    }
    bps_error(LOG, "%s: %s", link->peer, report.text);
    spoilt_text("got", &link->header, &report);
    link->spoilt = true;
    bps_link_send_text(link, BPS_FRAME_SPOILT, report.text);
    bps_link_finish(link);
}

/* What the transport and the peer do not need any more is the owner's again. The link may be gone after it. */
static void settle_parcels(struct bps_link *link)
{
    struct bps_parcel *parcel;
    struct watch watch;
    watch_link(link, &watch);
    while (!watch.ended && (parcel = STAILQ_FIRST(&link->writing)) != NULL && parcel->held == 0 &&
           (!parcel->sealed || parcel->number < link->repeat.acknowledged)) {
        link->again = parcel == link->again ? following(parcel) : link->again;
        take_parcel(link, parcel);
    }
    if (still_there(link, &watch) && link->finishing && link->queued == 0) {
        finish_channel(link);
    }
}

static bps_status on_ack(struct bps_link *link, const void *payload)
{
    bool again;
    if (bps_repeat_read(&link->repeat, payload, &again) != BPS_OK) {
        return BPS_ERR_PROTOCOL;
    }
    if (again) {
        link->again = STAILQ_FIRST(&link->writing);
        while (link->again != NULL && (!link->again->sealed || link->again->number < link->repeat.acknowledged)) {
            link->again = following(link->again);
        }
        bps_link_kick(link);
    }
    settle_parcels(link);
    return BPS_OK;
}

/* Of a link with checksums: whether the frame is for the owner. *status not BPS_OK: it ends the link. */
static bool has_arrived(struct bps_link *link, const void *payload, uint8_t *own, bps_status *status)
{
    uint8_t bytes[BPS_HEADER_BYTES];
    struct bps_header header;
    *status = BPS_OK;
    enum bps_arrival arrival = bps_repeat_judge(&link->repeat, &link->header, payload, own);
    switch (arrival) {
    case BPS_ARRIVED_ACK:
        *status = on_ack(link, own);
        return false;
    case BPS_PASSED_OVER:
        return false;
    case BPS_SPOILT:
    case BPS_HOPELESS:
        on_mismatch(link, arrival == BPS_HOPELESS);
        return false;
    case BPS_ARRIVED:
        break;
    }
    if (link->repeat.owed == 1 || link->repeat.owed == BPS_REPEAT_OWED) {
        bps_link_kick(link);
    }
    bps_header_encode(&link->header, bytes);
    *status = bps_header_decode(bytes, &header);
    if (is_slice(&header) && link->handler->slice == NULL) {
        *status = BPS_ERR_PROTOCOL;
    }
    return *status == BPS_OK && !link->finishing;
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
    struct watch watch;
    watch_link(link, &watch);
    bps_status status = link->handler->slice(link->owner, link, header, &sink);
    if (!watch.ended && status == BPS_OK && header->length > 0) {
        bool taken = sink != NULL && sink->take(sink, 0, payload, header->length) == header->length;
        status = taken ? BPS_OK : BPS_ERR_PROTOCOL;
    }
    return still_there(link, &watch) ? status : BPS_OK;
}

/* Memory for all of the payload. */
static bool collects(struct bps_link *link)
{
    if (link->payload == NULL) {
        link->payload = malloc(link->header.length > 0 ? link->header.length : 1);
    }
    return link->payload != NULL;
}

/* The frame is whole; its payload lies in link->payload, or where the transport has it. */
static bps_status link_deliver(struct bps_link *link, const void *payload)
{
    bool encrypted = bps_checksum_grows(link->repeat.receiving) > 0;
    bps_assert(link->channel != NULL && (link->header.length == 0 || payload != NULL));
    if (encrypted && !collects(link)) {
        return BPS_ERR_NOMEM;
    }
    uint8_t *own = link->payload;
    bps_status status = BPS_OK;
    link->payload = NULL;
    if (link->repeat.receiving != NULL && !has_arrived(link, payload, own, &status)) {
        free(own); /* and there may be no link any more */
        return status;
    }
    struct bps_header header = link->header;
    struct bps_reader reader;
    payload = encrypted ? own : payload;
    header.checksum = 0;
    bps_reader_init(&reader, payload, header.length);
    if (link->state != BPS_LINK_OPEN) {
        status = bps_handshake(link, &header, &reader);
    } else if (header.type == BPS_FRAME_SPOILT && link->repeat.receiving != NULL) {
        on_spoilt(link, &reader);
    } else if (is_slice(&header)) {
        status = deliver_slice(link, &header, payload);
    } else if (header.type != BPS_FRAME_PING) {
        status = link->handler->message(link->owner, link, &header, &reader);
    }
    free(own);
    return status;
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

/* Bytes of the payload that a frame may have. */
static uint32_t limit_of(const struct bps_link *link, const struct bps_header *header)
{
    uint32_t limit = is_slice(header) ? BPS_SLICE_LIMIT : BPS_MESSAGE_LIMIT;
    return link->state != BPS_LINK_OPEN ? BPS_HANDSHAKE_LIMIT : limit + bps_checksum_grows(link->repeat.receiving);
}

/* A payload that is collected first. */
static bps_status begin_payload(struct bps_link *link, const struct bps_header *header, struct bps_sink **sink)
{
    bps_assert(link->payload == NULL); /* a message is whole before the next one begins */
    link->header = *header;
    if (header->length == 0) {
        return link_deliver(link, NULL);
    }
    if (!is_slice(header) && !collects(link)) {
        return BPS_ERR_NOMEM;
    }
    link->sink = (struct bps_sink){.place = message_place, .take = message_take};
    *sink = &link->sink;
    return BPS_OK;
}

/*
 * Of a link with checksums: whatever may have changed on its way is not looked at yet. But where the length cannot be
 * right, nobody knows where the next frame begins; nor where the second one of two is none.
 */
static bps_status begin_checked(struct bps_link *link, const struct bps_header *header, bool valid,
                                struct bps_sink **sink)
{
    if (header->length > limit_of(link, header) || (!valid && link->repeat.lost)) {
        link_fail(link, BPS_ERR_IO, "its data was corrupted on the way, and the start of the next frame is unknown");
        return BPS_OK;
    }
    return begin_payload(link, header, sink);
}

/* Whether it can be a header: of one that is encrypted only its beginning can be looked at. */
static bool decode_header(const struct bps_link *link, const uint8_t *bytes, struct bps_header *out)
{
    uint8_t clear[BPS_HEADER_BYTES] = {0};
    struct bps_header beginning;
    bool valid = bps_header_decode(bytes, out) == BPS_OK;
    if (valid || bps_checksum_grows(link->repeat.receiving) == 0) {
        return valid;
    }
    memcpy(clear, bytes, BPS_CIPHER_CLEAR);
    return bps_header_decode(clear, &beginning) == BPS_OK;
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
    bool valid = decode_header(link, bytes, &header);
    if (link->repeat.receiving != NULL) {
        return begin_checked(link, &header, valid, sink);
    }
    if (!valid || link->state == BPS_LINK_REFUSED || header.checksum != 0) {
        return BPS_ERR_PROTOCOL;
    }
    if (is_slice(&header)) {
        bool takes = link->state == BPS_LINK_OPEN && link->handler->slice != NULL;
        return takes ? link->handler->slice(link->owner, link, &header, sink) : BPS_ERR_PROTOCOL;
    }
    return header.length > limit_of(link, &header) ? BPS_ERR_PROTOCOL : begin_payload(link, &header, sink);
}

static void link_on_placed(void *user, void *ticket)
{
    struct bps_link *link = user;
    link->last_received = bps_now_roughly();
    link->handler->placed(link->owner, link, ticket);
}

/* ---- sending ---- */

static bps_status hand_parcel(struct bps_parcel *parcel, struct bps_frame *out)
{
    parcel->held++;
    *out = (struct bps_frame){
        .header = parcel->header,
        .payload = parcel->payload,
        .bytes = parcel->bytes,
        .cookie = parcel_cookie(parcel),
    };
    return BPS_OK;
}

/* NULL: the link finishes. */
static struct bps_parcel *new_parcel(struct bps_link *link, struct bps_parcels *list, size_t bytes)
{
    struct bps_parcel *parcel = bps_spare_take(&link->spare, sizeof *parcel + bytes + BPS_CIPHER_TAG);
    if (parcel == NULL) { /* the peer would wait for it */
        bps_link_finish(link);
        return NULL;
    }
    *parcel = (struct bps_parcel){.bytes = (uint32_t)bytes, .payload = parcel->own};
    STAILQ_INSERT_TAIL(list, parcel, entry);
    link->queued += sizeof *parcel + bytes;
    return parcel;
}

/* What the transport has sent must be acknowledged in the end, a quarter of that time more or less. */
static void look_for_acks(void *arg)
{
    struct bps_link *link = arg;
    const struct bps_parcel *parcel = STAILQ_FIRST(&link->writing);
    bool waits = parcel != NULL && parcel->sealed && parcel->held == 0;
    link->quarters = waits && link->acknowledged == link->repeat.acknowledged ? link->quarters + 1 : 0;
    link->acknowledged = link->repeat.acknowledged;
    if (link->quarters > 4) {
        link_fail(link, BPS_ERR_TIMEOUT, "it did not acknowledge data within cluster.peer_timeout");
    }
}

/* It has been encrypted, if all frames are: into its own memory. */
static void grow(struct bps_link *link, struct bps_parcel *parcel)
{
    uint32_t grown = bps_checksum_grows(link->repeat.sending);
    parcel->payload = grown > 0 ? parcel->own : parcel->payload;
    parcel->bytes += grown;
    link->queued += grown;
}

static void seal(struct bps_link *link, struct bps_parcel *parcel)
{
    const struct bps_host *host = link->transport->host;
    uint64_t quarter = link->transport->conf->cluster.peer_timeout / 4;
    if (link->patience == NULL) {
        link->patience = host->timer(host, quarter, quarter, look_for_acks, link);
    }
    parcel->sealed = true;
    parcel->number = bps_repeat_seal(&link->repeat, parcel->header, parcel->payload, parcel->bytes, parcel->own);
    grow(link, parcel);
}

static struct bps_parcel *next_message(struct bps_link *link)
{
    struct bps_parcel *parcel = STAILQ_FIRST(&link->queue);
    if (parcel != NULL) {
        STAILQ_REMOVE_HEAD(&link->queue, entry);
        STAILQ_INSERT_TAIL(&link->writing, parcel, entry);
    }
    return parcel;
}

/* Slices of the owner's. */
static bool may_ask(const struct bps_link *link)
{
    return link->state == BPS_LINK_OPEN && link->handler->next != NULL && !link->spoilt;
}

/*
 * BPS_ERR_LOST: there is no link any more.
 * What has a checksum is not lent: the peer reads a loan while it sums it, and writes the answer without a frame, so
 * that neither could be checked before it is used.
 */
static bps_status next_slice(struct bps_link *link, struct bps_frame *out)
{
    struct bps_parcel *parcel;
    struct watch watch;
    watch_link(link, &watch);
    bps_status status = link->handler->next(link->owner, link, out);
    if (!still_there(link, &watch)) {
        return BPS_ERR_LOST;
    }
    bool encrypts = bps_checksum_grows(link->repeat.sending) > 0;
    if (status == BPS_OK && (parcel = new_parcel(link, &link->writing, encrypts ? out->bytes : 0)) == NULL) {
        link_fail(link, BPS_ERR_NOMEM, "out of memory");
        return BPS_ERR_LOST;
    }
    if (status == BPS_OK) {
        memcpy(parcel->header, out->header, sizeof parcel->header);
        parcel->slice = true;
        parcel->cookie = out->cookie;
        parcel->payload = out->payload;
        parcel->bytes = out->bytes;
        seal(link, parcel);
        return hand_parcel(parcel, out);
    }
    return status;
}

static bps_status next_ack(struct bps_link *link, struct bps_frame *out)
{
    struct bps_parcel *parcel = new_parcel(link, &link->writing, BPS_ACK_BYTES);
    if (parcel == NULL) {
        return BPS_AGAIN;
    }
    bps_repeat_write(&link->repeat, parcel->header, parcel->own);
    grow(link, parcel);
    return hand_parcel(parcel, out);
}

/* Of a link with checksums: what the peer has got is told at once where that ends or begins a repetition. */
static bps_status next_checked(struct bps_link *link, struct bps_frame *out)
{
    const struct bps_repeat *repeat = &link->repeat;
    struct bps_parcel *parcel = link->again;
    if (repeat->tells || repeat->owed >= BPS_REPEAT_OWED) {
        return next_ack(link, out);
    }
    if (parcel != NULL) {
        link->again = following(parcel);
        return hand_parcel(parcel, out);
    }
    parcel = next_message(link);
    if (parcel != NULL) {
        if (parcel->header[offsetof(struct bps_header, type)] > BPS_FRAME_WELCOME) {
            seal(link, parcel);
        }
        return hand_parcel(parcel, out);
    }
    bps_status status = may_ask(link) ? next_slice(link, out) : BPS_AGAIN;
    bool idle = status == BPS_AGAIN;
    return idle && repeat->owed > 0 ? next_ack(link, out) : status == BPS_ERR_LOST ? BPS_AGAIN : status;
}

static bps_status link_next(struct bps_link *link, struct bps_frame *out)
{
    if (link->repeat.sending != NULL) {
        return next_checked(link, out);
    }
    struct bps_parcel *parcel = next_message(link);
    if (parcel != NULL) {
        return hand_parcel(parcel, out);
    }
    return may_ask(link) ? link->handler->next(link->owner, link, out) : BPS_AGAIN;
}

/* Of an older or newer transport: what that does not know is not for it, and what is unknown here it has set to 0. */
static bps_status next_of_another_size(struct bps_link *link, struct bps_frame *out)
{
    struct bps_frame own = {.size = sizeof own};
    size_t size = out->size;
    if (size < BPS_LEAST(bps_frame)) {
        struct bps_report report;
        (void)bps_blame(link->transport, "next", &report, "size of the frame is %zu; expected sizeof(struct bps_frame)",
                        size);
        link_fail(link, BPS_ERR_PLUGIN, report.text);
        return BPS_AGAIN;
    }
    bps_status status = link_next(link, &own);
    if (status == BPS_OK) {
        own.size = size;
        memcpy(out, &own, size < sizeof own ? size : sizeof own);
    }
    return status;
}

static bps_status link_on_next(void *user, struct bps_frame *out)
{
    if (out->size != sizeof *out) {
        return next_of_another_size(user, out);
    }
    bps_status status = link_next(user, out);
    if (status == BPS_OK) {
        out->size = sizeof *out;
    }
    return status;
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
    parcel->held--;
    if (!parcel->sealed) {
        take_parcel(link, parcel);
    }
    if (link->repeat.sending != NULL) {
        settle_parcels(link);
    }
}

static const struct bps_transport_ops *link_ops_of(const struct bps_link *link)
{
    return link->transport->ops;
}

bps_status bps_link_send(struct bps_link *link, const struct bps_header *header, const void *payload, size_t bytes)
{
    bool over = link->channel == NULL || (link->state == BPS_LINK_REFUSED && header->type != BPS_FRAME_REFUSE);
    if (over || bytes > BPS_MESSAGE_LIMIT) {
        return over ? BPS_ERR_LOST : BPS_ERR_INVALID;
    }
    struct bps_parcel *parcel = new_parcel(link, &link->queue, bytes);
    if (parcel == NULL) {
        return BPS_ERR_NOMEM;
    }
    struct bps_header full = *header;
    full.length = (uint32_t)bytes;
    bps_header_encode(&full, parcel->header);
    if (bytes > 0) {
        memcpy(parcel->own, payload, bytes);
    }
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
    struct bps_report report = {""};
    status = bps_answered(link->transport, "closed", status, &text, &report);
    link_reset(link);
    if (link->spoilt) {
        status = BPS_ERR_IO;
        spoilt_text("sent", &link->header, &report);
        text = report.text;
    }
    if (link->finishing && status == BPS_ERR_IO) { /* the peer was the first */
        status = BPS_OK;
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
    struct bps_report why = {""};
    bps_status status =
        link_ops_of(link)->dial(transport->self, address, lane, key, &link_events, link, &link->channel, &why);
    OPENSSL_cleanse(&link->channel_key, sizeof link->channel_key);
    status = bps_returned_pointer(transport, "dial", status, "*out", link->channel, &why);
    if (status != BPS_OK) {
        BPS_REPORT(report, "%s", why.text);
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
    if (link->channel != NULL && link->repeat.sending != NULL && link->queued > 0 && !link->spoilt) {
        link->finishing = true; /* until the peer has acknowledged all that */
    } else if (link->channel != NULL) {
        finish_channel(link);
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
