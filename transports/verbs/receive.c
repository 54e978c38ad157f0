/* SPDX-License-Identifier: Apache-2.0 */
/*
 * receive.c - from messages to the core's sinks.
 *
 * Messages wait in the order of their arrival. For those that announce a piece of a payload the piece is
 * read, several at a time, into blocks of registered memory; the sink takes it from there. A message's buffer
 * is free for the next one, and the peer gets its credit back, when all of that is done: so a slow core slows
 * only its own peers.
 */
#include "verbs.h"

#include <string.h>

static bool is_receiving(const struct bps_channel *channel)
{
    return channel->state == VERBS_OPEN && !channel->finishing;
}

static bool has_piece(const struct verbs_slot *slot)
{
    return slot->message.kind == VERBS_BEGIN || slot->message.kind == VERBS_PIECE;
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
        in->announced = verbs_payload_bytes(message->header);
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

void verbs_receive_message(struct bps_channel *channel, struct verbs_slot *slot, uint32_t bytes)
{
    struct verbs_pair *pair = channel->pair;
    const struct verbs_message *message = &slot->message;
    slot->block = NULL;
    if (!verbs_message_get(slot->data, bytes, &slot->message) || pair->narrived >= pair->own.credits ||
        !verbs_send_news(channel, message->credits, message->done) ||
        (message->kind != VERBS_CREDIT && !fits(channel, message))) {
        verbs_slot_free(pair->device, slot);
        protocol_error(channel, "a message was not understood");
        return;
    }
    if (message->kind == VERBS_CREDIT) {
        verbs_slot_free(pair->device, slot);
        channel->out.owed++;
    } else {
        slot->state = has_piece(slot) ? VERBS_ARRIVED : VERBS_READY;
        STAILQ_INSERT_TAIL(&pair->arrived, slot, entry);
        pair->narrived++;
    }
    verbs_channel_queue(channel);
}

/* ---- reading what was announced ---- */

void verbs_receive_read(struct verbs_pair *pair)
{
    struct verbs_slot *slot;
    STAILQ_FOREACH(slot, &pair->arrived, entry) {
        if (slot->state == VERBS_READING) {
            slot->state = VERBS_READY;
            pair->reading--;
            return;
        }
    }
}

static void read_pieces(struct bps_channel *channel)
{
    struct verbs_pair *pair = channel->pair;
    struct verbs_slot *slot;
    STAILQ_FOREACH(slot, &pair->arrived, entry) {
        if (slot->state != VERBS_ARRIVED) {
            continue;
        }
        if (channel->finishing) {
            slot->state = VERBS_READY; /* nobody wants it */
            verbs_channel_queue(channel);
            continue;
        }
        if (pair->reading >= pair->reads_room || !verbs_post_room(pair)) {
            return;
        }
        slot->block = verbs_arena_take(&pair->device->receive);
        if (slot->block == NULL) {
            verbs_channel_wait(channel);
            return;
        }
        slot->state = VERBS_READING;
        pair->reading++;
        verbs_post_read(pair, slot->block, &slot->message);
    }
}

/* ---- handing over ---- */

static bool begin_frame(struct bps_channel *channel, const uint8_t *header)
{
    struct verbs_incoming *in = &channel->in;
    uint32_t length = verbs_payload_bytes(header);
    in->sink = NULL;
    ++*channel->verbs->count.frames_received;
    bps_status status = channel->events->header(channel->user, header, &in->sink);
    if (channel->state != VERBS_OPEN) {
        return false;
    }
    if (status == BPS_OK && length > 0 && in->sink == NULL) {
        status = BPS_ERR_PROTOCOL;
    }
    if (status != BPS_OK) {
        verbs_channel_end(channel, status < 0 ? status : BPS_ERR_PROTOCOL, "a frame was not accepted");
        return false;
    }
    in->length = length;
    in->offset = in->kept = 0;
    return true;
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
    *channel->verbs->count.bytes_received += new_bytes;
}

static void end_of_frames(struct bps_channel *channel)
{
    if (channel->finishing) {
        channel->eof = true;
    } else {
        verbs_channel_end(channel, BPS_ERR_IO, "connection closed by peer");
    }
}

static void present(struct bps_channel *channel, struct verbs_slot *slot)
{
    const struct verbs_message *message = &slot->message;
    if (message->kind == VERBS_FINISH) {
        end_of_frames(channel);
        return;
    }
    if (channel->finishing || (message->header != NULL && !begin_frame(channel, message->header))) {
        return;
    }
    if (message->kind == VERBS_WHOLE && message->bytes > 0) {
        hand_over(channel, slot->data + VERBS_WHOLE_BYTES, message->bytes);
    } else if (slot->block != NULL && is_receiving(channel)) {
        hand_over(channel, slot->block, message->bytes);
    }
}

static void present_first(struct bps_channel *channel, struct verbs_slot *slot)
{
    struct verbs_pair *pair = channel->pair;
    present(channel, slot);
    if (channel->state != VERBS_OPEN) {
        return; /* the slot is the pair's, which has been left */
    }
    bool piece = has_piece(slot), block = slot->block != NULL;
    STAILQ_REMOVE_HEAD(&pair->arrived, entry);
    pair->narrived--;
    verbs_slot_free(pair->device, slot);
    channel->out.owed++;
    channel->out.done += piece ? 1 : 0;
    if (block) {
        verbs_wake_starved(pair->device);
    }
}

void verbs_receive(struct bps_channel *channel)
{
    struct verbs_slot *slot;
    for (uint32_t n = 0; channel->state == VERBS_OPEN; n++) {
        slot = STAILQ_FIRST(&channel->pair->arrived);
        if (slot == NULL || slot->state != VERBS_READY) {
            break;
        }
        if (n >= VERBS_TURN_FRAMES) {
            verbs_channel_queue(channel);
            break;
        }
        present_first(channel, slot);
    }
    if (channel->state == VERBS_OPEN && !channel->out.lost) {
        read_pieces(channel);
    }
}
