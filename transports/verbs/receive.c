/* SPDX-License-Identifier: Apache-2.0 */
/*
 * receive.c - from messages to the core's sinks.
 *
 * Messages wait in the order of their arrival. For those that announce a piece of a payload the piece is
 * read, several at a time: into the place that the sink has opened, while the core hears of further frames;
 * or into blocks of registered memory, from where the sink takes it before there is another frame. A
 * message's buffer is free for the next one, and the peer gets its credit back, when all of that is done: so
 * a slow core slows only its own peers.
 */
#include "verbs.h"

#include <string.h>

static bool is_receiving(const struct bps_channel *channel)
{
    return channel->state == VERBS_OPEN && !channel->finishing;
}

static void protocol_error(struct bps_channel *channel, const char *text)
{
    verbs_channel_end(channel, BPS_ERR_PROTOCOL, text);
}

/* ---- arrival ---- */

/* Foreign bytes: does this message fit what came before? */
static bool fits(struct bps_channel *channel, const struct verbs_message *message)
{
    struct verbs_incoming *in = &channel->in;
    uint32_t block = channel->pair->own.block;
    switch (message->kind) {
    case VERBS_WHOLE:
        return !in->last && in->announced == 0;
    case VERBS_BEGIN:
        if (in->last || in->announced != 0) {
            return false;
        }
        in->announced = bps_util_payload_bytes(message->header);
        break;
    case VERBS_PIECE:
        break;
    default:
        in->last = true;
        return in->announced == 0;
    }
    if (message->bytes == 0 || message->bytes > block || message->bytes > in->announced) {
        return false;
    }
    in->announced -= message->bytes;
    return true;
}

/* Reads of a former queue pair are repeated. False: the device does not know the memory. */
static bool read_again(struct bps_channel *channel, const struct verbs_slot *slot)
{
    const struct verbs_device *device = channel->pair->device;
    const struct ibv_mr *mr =
        slot->block != NULL ? device->receive_mr : verbs_window_find(device, slot->place, slot->message.bytes);
    if (mr != NULL) {
        verbs_post_read(channel->pair, slot->block != NULL ? slot->block : slot->place, mr->lkey, &slot->message);
        verbs_post_flush(channel->pair);
    }
    return mr != NULL;
}

static struct verbs_slot *find_stale(const struct verbs_slots *slots, const struct verbs_message *key)
{
    struct verbs_slot *slot;
    STAILQ_FOREACH(slot, slots, entry) {
        if (slot->stale && slot->message.address == key->address && slot->message.bytes == key->bytes) {
            return slot;
        }
    }
    return NULL;
}

/* The new key of a piece. There may be no such piece, if the peer does not know yet that it was read. */
static void take_key(struct bps_channel *channel, const struct verbs_message *key)
{
    struct verbs_pair *pair = channel->pair;
    struct verbs_slot *reading = find_stale(&pair->reading, key);
    struct verbs_slot *slot = reading != NULL ? reading : find_stale(&pair->arrived, key);
    if (slot == NULL) {
        return;
    }
    slot->stale = false;
    slot->message.rkey = key->rkey;
    if (reading != NULL && !read_again(channel, slot)) {
        verbs_channel_end(channel, BPS_ERR_IO, "another RDMA device refused the address of a payload");
    }
}

void verbs_receive_message(struct bps_channel *channel, struct verbs_slot *slot, uint32_t bytes)
{
    struct verbs_pair *pair = channel->pair;
    const struct verbs_message *message = &slot->message;
    slot->ready = slot->stale = false;
    slot->block = slot->place = NULL;
    bool good = verbs_message_get(slot->data, bytes, &slot->message);
    if (good && message->kind == VERBS_KEY) {
        take_key(channel, message);
        verbs_slot_free(slot);
        verbs_channel_queue(channel);
        return;
    }
    bool news = good && pair->narrived < pair->own.credits && verbs_send_news(channel, message->credits, message->done);
    if (verbs_is_over(channel)) { /* it was dropped as it heard what was sent */
        verbs_slot_free(slot);
        return;
    }
    if (!news || (message->kind != VERBS_CREDIT && !fits(channel, message))) {
        verbs_slot_free(slot);
        protocol_error(channel, "a message was not understood");
        return;
    }
    channel->received++;
    if (message->kind == VERBS_CREDIT) {
        verbs_slot_free(slot);
        channel->out.owed++;
    } else {
        STAILQ_INSERT_TAIL(&pair->arrived, slot, entry);
        pair->narrived++;
    }
    verbs_channel_queue(channel);
}

/* ---- to the core ---- */

/*
 * Tells the core of the frame that the message begins; it gives a place for the payload, or a sink. False:
 * nobody wants the payload.
 */
static bool begin_frame(struct bps_channel *channel, const struct verbs_message *message)
{
    struct verbs_incoming *in = &channel->in;
    struct bps_sink *sink = NULL;
    uint32_t length = bps_util_payload_bytes(message->header);
    ++*channel->verbs->count.frames_received;
    bps_status status = channel->events->header(channel->user, message->header, &sink);
    if (channel->state != VERBS_OPEN) {
        return false;
    }
    if (status == BPS_OK && length > 0 && sink == NULL) {
        status = BPS_ERR_PROTOCOL;
    }
    if (status != BPS_OK) {
        verbs_channel_end(channel, status < 0 ? status : BPS_ERR_PROTOCOL, "a frame was not accepted");
        return false;
    }
    bool pieces = message->kind == VERBS_BEGIN;
    in->length = length;
    in->fetched = pieces ? 0 : length;
    in->offset = in->kept = 0;
    in->place = pieces && is_receiving(channel) && sink->open != NULL ? sink->open(sink, &in->ticket) : NULL;
    in->sink = length > 0 && in->place == NULL ? sink : NULL;
    return is_receiving(channel);
}

/* Hands over in->kept bytes that have come before, and new ones behind them; `data` has room in front. */
static void hand_over(struct bps_channel *channel, uint8_t *data, uint32_t new_bytes)
{
    struct verbs_incoming *in = &channel->in;
    uint32_t bytes = in->kept + new_bytes;
    data -= in->kept;
    memcpy(data, in->keep, in->kept);
    uint32_t taken = in->sink->take(in->sink, in->offset, data, bytes);
    if (channel->state != VERBS_OPEN) {
        return;
    }
    uint32_t rest = bytes - taken;
    bool last = in->offset + bytes == in->length;
    if (taken > bytes || rest >= BPS_SINK_GRAIN || (last && rest > 0)) {
        protocol_error(channel, "a payload does not consist of whole elements");
        return;
    }
    memcpy(in->keep, data + taken, rest);
    in->kept = rest;
    in->offset += taken;
    in->sink = last ? NULL : in->sink;
    *channel->verbs->count.bytes_received += new_bytes;
}

/* The first message of the list has been dealt with, and its piece. */
static void done_with(struct bps_channel *channel, struct verbs_slots *list)
{
    struct verbs_pair *pair = channel->pair;
    struct verbs_slot *slot = STAILQ_FIRST(list);
    bool block = slot->block != NULL;
    STAILQ_REMOVE_HEAD(list, entry);
    pair->narrived--;
    channel->out.owed++;
    channel->out.done += verbs_has_piece(slot) ? 1 : 0;
    verbs_slot_free(slot);
    if (block) {
        verbs_wake_starved(pair->device->verbs);
    }
}

/* ---- pieces ---- */

void verbs_receive_read(struct verbs_pair *pair)
{
    struct verbs_slot *slot;
    STAILQ_FOREACH(slot, &pair->reading, entry) {
        if (!slot->ready) {
            slot->ready = true;
            return;
        }
    }
}

static void fill_place(struct bps_channel *channel, const struct verbs_slot *slot)
{
    const struct verbs_counters *count = &channel->verbs->count;
    uint32_t bytes = slot->message.bytes;
    *count->bytes_received += bytes;
    if (slot->block == NULL) {
        *count->bytes_placed += bytes;
    } else {
        memcpy(slot->place, slot->block, bytes);
    }
    if (slot->last) {
        channel->events->placed(channel->user, slot->ticket);
    }
}

/* The first piece of those that are read is there. */
static void piece_came(struct bps_channel *channel, struct verbs_slot *slot)
{
    if (is_receiving(channel) && slot->place != NULL) {
        fill_place(channel, slot);
    } else if (is_receiving(channel)) {
        hand_over(channel, slot->block, slot->message.bytes);
    }
    if (channel->state == VERBS_OPEN) { /* else the slot is the pair's, which has been left */
        done_with(channel, &channel->pair->reading);
    }
}

/* Reads the piece to its place, or to a block. False: there is no block now. */
static bool read_piece(struct bps_channel *channel, struct verbs_slot *slot)
{
    struct verbs_pair *pair = channel->pair;
    struct verbs_device *device = pair->device;
    struct verbs_incoming *in = &channel->in;
    uint32_t bytes = slot->message.bytes;
    const struct ibv_mr *mr = NULL;
    if (in->place != NULL) {
        slot->place = in->place + in->fetched;
        mr = verbs_window_find(device, slot->place, bytes);
    }
    if (mr == NULL && slot->place != NULL && verbs_is_on_device(channel->verbs, slot->place)) {
        verbs_channel_end(channel, BPS_ERR_IO, "the RDMA device refused the address of a payload");
        return true;
    }
    if (mr == NULL) {
        mr = device->receive_mr;
        slot->block = verbs_arena_take(&channel->verbs->receive);
        if (slot->block == NULL) {
            return false;
        }
    }
    in->fetched += bytes;
    slot->last = in->fetched == in->length;
    slot->ticket = in->ticket;
    STAILQ_REMOVE_HEAD(&pair->arrived, entry);
    STAILQ_INSERT_TAIL(&pair->reading, slot, entry);
    verbs_post_read(pair, slot->block != NULL ? slot->block : slot->place, mr->lkey, &slot->message);
    return true;
}

/* The first message announces a piece: reads it. False: that is not possible now. */
static bool fetch(struct bps_channel *channel, struct verbs_slot *slot)
{
    struct verbs_pair *pair = channel->pair;
    const struct verbs_incoming *in = &channel->in;
    if (slot->stale || channel->out.lost || pair->reads >= pair->reads_room || !verbs_post_room(pair)) {
        return false;
    }
    if (in->fetched == in->length) { /* it begins a frame */
        if (in->sink != NULL) {
            return false;
        }
        if (!begin_frame(channel, &slot->message)) {
            return channel->state == VERBS_OPEN;
        }
    }
    if (!read_piece(channel, slot)) {
        verbs_channel_wait(channel);
        return false;
    }
    return true;
}

/* ---- messages ---- */

static void end_of_frames(struct bps_channel *channel)
{
    if (channel->finishing) {
        channel->eof = true;
    } else {
        verbs_channel_end(channel, BPS_ERR_IO, "connection closed by peer");
    }
}

/* A message without a piece, or one that nobody wants any more. */
static void present(struct bps_channel *channel, struct verbs_slot *slot)
{
    const struct verbs_message *message = &slot->message;
    if (message->kind == VERBS_FINISH) {
        end_of_frames(channel);
    } else if (is_receiving(channel) && begin_frame(channel, message) && message->bytes > 0) {
        hand_over(channel, slot->data + VERBS_WHOLE_BYTES, message->bytes);
    }
    if (channel->state == VERBS_OPEN) {
        done_with(channel, &channel->pair->arrived);
    }
}

/* Small frames overtake payloads on the way to their places, but not one that a sink takes; the end none. */
static bool may_present(const struct bps_channel *channel, const struct verbs_slot *slot)
{
    if (channel->finishing || slot->message.kind == VERBS_FINISH) {
        return STAILQ_EMPTY(&channel->pair->reading);
    }
    return channel->in.sink == NULL;
}

/* One piece that has come, or else the first message. False: there is nothing to do now. */
static bool receive_one(struct bps_channel *channel)
{
    struct verbs_pair *pair = channel->pair;
    struct verbs_slot *slot = STAILQ_FIRST(&pair->reading);
    if (slot != NULL && slot->ready) {
        piece_came(channel, slot);
        return true;
    }
    slot = STAILQ_FIRST(&pair->arrived);
    if (slot == NULL) {
        return false;
    }
    if (verbs_has_piece(slot) && !channel->finishing) {
        return fetch(channel, slot);
    }
    if (!may_present(channel, slot)) {
        return false;
    }
    present(channel, slot);
    return true;
}

bool verbs_receive(struct bps_channel *channel)
{
    for (uint32_t n = 0; n < VERBS_TURN_FRAMES; n++) {
        if (channel->state != VERBS_OPEN || !receive_one(channel)) {
            return false;
        }
    }
    verbs_channel_queue(channel);
    return true;
}
