/* SPDX-License-Identifier: Apache-2.0 */
/*
 * send.c - from the core's frames to messages.
 *
 * The core is asked for a frame only when a work request and a credit are free and few bytes are in flight,
 * so that the most urgent one is chosen as late as possible. A small payload travels with its header. Of a
 * large one the peer is told where to read it, in pieces: where it lies, if that memory is registered, else
 * in a block that it is copied to. The last credit is kept for a message that gives credits back, so that
 * both ends can always go on.
 */
#include "verbs.h"

#include <string.h>

static bool can_message(const struct bps_channel *channel)
{
    return channel->out.credits >= 2 && verbs_post_room(channel->pair);
}

/* Takes what the peer is to be told, and a credit. */
static uint8_t *begin_message(struct bps_channel *channel, struct verbs_message *message)
{
    struct verbs_pair *pair = channel->pair;
    struct verbs_outgoing *out = &channel->out;
    message->credits = (uint16_t)out->owed;
    message->done = (uint16_t)out->done;
    out->owed = out->done = 0;
    out->credits--;
    /* As many slots as credits: the peer has dealt with what was in this one. */
    return pair->memory + (size_t)(pair->slot++ % pair->peer.credits) * pair->slot_bytes;
}

static void send_plain(struct bps_channel *channel, uint8_t kind)
{
    struct verbs_message message = {.kind = kind};
    uint8_t *slot = begin_message(channel, &message);
    uint32_t bytes = verbs_message_put(&message, slot);
    verbs_post_message(channel->pair, slot, bytes, kind == VERBS_FINISH ? VERBS_FINISH_SENT : VERBS_MESSAGE_SENT);
}

/* ---- news of the peer ---- */

static void piece_read(struct bps_channel *channel)
{
    struct verbs_pair *pair = channel->pair;
    const struct verbs_piece piece = *verbs_piece_take(pair);
    struct verbs_outgoing *out = &channel->out;
    out->in_flight -= piece.bytes;
    out->read += piece.bytes;
    if (piece.bytes > 0 && out->in_flight == 0) {
        out->waited += channel->verbs->host->now() - out->since;
    }
    if (piece.block != NULL) {
        verbs_arena_give(&pair->device->verbs->send, piece.block);
        verbs_wake_starved(pair->device->verbs);
    }
    if (piece.last) {
        out->held--;
        channel->events->sent(channel->user, piece.cookie);
    }
}

/* A frame that had nothing to be read has waited for those before it. */
static bool first_has_no_bytes(const struct verbs_pair *pair)
{
    return pair->npieces > 0 && verbs_piece_at(pair, 0)->bytes == 0;
}

bool verbs_send_news(struct bps_channel *channel, uint32_t credits, uint32_t done)
{
    struct verbs_pair *pair = channel->pair;
    if (credits > pair->peer.credits - channel->out.credits) {
        return false;
    }
    channel->out.credits += credits;
    for (; done > 0 && !verbs_is_over(channel); done--) {
        if (pair->npieces == 0) {
            return false;
        }
        piece_read(channel);
        while (!verbs_is_over(channel) && first_has_no_bytes(pair)) {
            piece_read(channel);
        }
    }
    return true;
}

/* ---- frames ---- */

static void send_whole(struct bps_channel *channel, const struct bps_frame *frame)
{
    struct verbs_message message = {.kind = VERBS_WHOLE, .header = frame->header};
    uint8_t *slot = begin_message(channel, &message);
    uint32_t bytes = verbs_message_put(&message, slot);
    if (frame->bytes > 0) {
        memcpy(slot + bytes, frame->payload, frame->bytes);
    }
    verbs_post_message(channel->pair, slot, bytes + frame->bytes, VERBS_MESSAGE_SENT);
}

static struct verbs_piece *add_piece(struct bps_channel *channel)
{
    struct verbs_pair *pair = channel->pair;
    struct verbs_piece *piece = verbs_piece_at(pair, pair->npieces++);
    *piece = (struct verbs_piece){.cookie = channel->out.frame.cookie};
    return piece;
}

/*
 * All of the frame is announced. Its memory is the core's again at once, unless the peer has yet to read
 * there, or memory of a frame before it: they are given back in order.
 */
static void frame_ends(struct bps_channel *channel, struct verbs_piece *last)
{
    struct verbs_outgoing *out = &channel->out;
    out->busy = false;
    ++*channel->verbs->count.frames_sent;
    *channel->verbs->count.bytes_sent += out->frame.bytes;
    if (out->window == NULL && out->held == 0) {
        channel->events->sent(channel->user, out->frame.cookie);
        return;
    }
    if (last == NULL) {
        last = add_piece(channel);
    }
    last->last = true;
    out->held++;
}

/* Where the peer reads the next piece; NULL: there is no block now. */
static struct verbs_piece *find_place(struct bps_channel *channel, uint32_t bytes, struct verbs_message *message)
{
    struct verbs_device *device = channel->pair->device;
    const struct verbs_outgoing *out = &channel->out;
    const uint8_t *from = (const uint8_t *)out->frame.payload + out->offset;
    uint8_t *block = out->window == NULL ? verbs_arena_take(&channel->verbs->send) : NULL;
    if (out->window != NULL) {
        message->address = (uintptr_t)from;
        message->rkey = out->window->rkey;
        *channel->verbs->count.bytes_in_place += bytes;
    } else if (block != NULL) {
        memcpy(block, from, bytes);
        message->address = (uintptr_t)block;
        message->rkey = device->send_mr->rkey;
        *channel->verbs->count.bytes_copied += bytes;
    } else {
        return NULL;
    }
    struct verbs_piece *piece = add_piece(channel);
    piece->from = block != NULL ? block : from;
    piece->block = block;
    piece->bytes = message->bytes = bytes;
    return piece;
}

/* False: there is no block now. */
static bool send_piece(struct bps_channel *channel)
{
    struct verbs_pair *pair = channel->pair;
    struct verbs_outgoing *out = &channel->out;
    uint32_t rest = out->frame.bytes - out->offset, bytes = rest < pair->peer.block ? rest : pair->peer.block;
    struct verbs_message message = {.kind = out->offset == 0 ? VERBS_BEGIN : VERBS_PIECE, .header = out->frame.header};
    struct verbs_piece *piece = find_place(channel, bytes, &message);
    if (piece == NULL) {
        verbs_channel_wait(channel);
        return false;
    }
    out->since = out->in_flight == 0 ? channel->verbs->host->now() : out->since;
    out->in_flight += bytes;
    out->offset += bytes;
    uint8_t *slot = begin_message(channel, &message);
    verbs_post_message(pair, slot, verbs_message_put(&message, slot), VERBS_MESSAGE_SENT);
    if (bytes == rest) {
        frame_ends(channel, piece);
    }
    return true;
}

/* Asks the core for a frame; false: there is none. */
static bool next_frame(struct bps_channel *channel)
{
    struct verbs_outgoing *out = &channel->out;
    out->frame = (struct bps_frame){.size = sizeof out->frame};
    out->kicked = false; /* a kick from within `next` counts */
    bps_status status = channel->events->next(channel->user, &out->frame);
    if (channel->state != VERBS_OPEN || status != BPS_OK) {
        return false;
    }
    out->kicked = true;
    out->busy = true;
    out->offset = 0;
    out->window = out->frame.bytes > channel->pair->peer.eager
                      ? verbs_window_find(channel->pair->device, out->frame.payload, out->frame.bytes)
                      : NULL;
    if (out->window == NULL && verbs_is_on_device(channel->verbs, out->frame.payload)) {
        verbs_channel_end(channel, BPS_ERR_IO, "the memory of a tensor is not registered with the RDMA device");
        return false;
    }
    return true;
}

/* One message; false: no more can be sent now. */
static bool send_some(struct bps_channel *channel)
{
    struct verbs_outgoing *out = &channel->out;
    const struct verbs_pair *pair = channel->pair;
    if (!can_message(channel) || out->in_flight >= channel->verbs->options.window ||
        pair->npieces >= pair->peer.credits || (!out->busy && (!out->kicked || !next_frame(channel)))) {
        return false;
    }
    if (out->frame.bytes > pair->peer.eager) {
        return send_piece(channel);
    }
    send_whole(channel, &out->frame);
    frame_ends(channel, NULL);
    return true;
}

/* What the peer must know and no frame has told it. */
static void send_credit(struct bps_channel *channel)
{
    const struct verbs_pair *pair = channel->pair;
    const struct verbs_outgoing *out = &channel->out;
    bool many = out->owed >= pair->peer.credits / 2;
    if (verbs_post_room(pair) && ((many && out->credits >= 1) || (out->done > 0 && out->credits >= 2))) {
        send_plain(channel, VERBS_CREDIT);
    }
}

static void finish_if_done(struct bps_channel *channel)
{
    struct verbs_outgoing *out = &channel->out;
    if (!channel->finishing || out->kicked || out->busy) {
        return;
    }
    if (!out->finished && can_message(channel)) {
        out->finished = true;
        send_plain(channel, VERBS_FINISH);
    }
    if (out->finish_done && channel->eof) {
        verbs_channel_end(channel, BPS_OK, "closed");
    }
}

void verbs_send(struct bps_channel *channel)
{
    uint32_t n = 0;
    while (n < VERBS_TURN_FRAMES && send_some(channel) && channel->state == VERBS_OPEN) {
        n++;
    }
    if (channel->state != VERBS_OPEN) {
        return;
    }
    if (n >= VERBS_TURN_FRAMES) {
        verbs_channel_queue(channel);
    }
    send_credit(channel);
    finish_if_done(channel);
    if (channel->state == VERBS_OPEN) {
        verbs_post_flush(channel->pair);
    }
}

/* ---- on another queue pair ---- */

/* Of memory that the peer has been told of. */
static const struct ibv_mr *find_mr(const struct verbs_device *device, uint64_t address, uint32_t bytes)
{
    const struct verbs_arena *arena = &device->verbs->send;
    return address - (uintptr_t)arena->memory < verbs_arena_bytes(arena)
               ? device->send_mr
               : verbs_window_find(device, (const void *)(uintptr_t)address, bytes);
}

/* The keys of all pieces that the peer may not have read. */
static bool send_keys(struct verbs_pair *pair)
{
    uint8_t *slot = pair->memory + (size_t)pair->own.credits * pair->slot_bytes;
    for (uint32_t i = 0; i < pair->npieces; i++, slot += pair->slot_bytes) {
        const struct verbs_piece *piece = verbs_piece_at(pair, i);
        if (piece->bytes == 0) {
            continue;
        }
        struct verbs_message message = {.kind = VERBS_KEY, .address = (uintptr_t)piece->from, .bytes = piece->bytes};
        const struct ibv_mr *mr = find_mr(pair->device, message.address, message.bytes);
        if (mr == NULL) {
            return false;
        }
        message.rkey = mr->rkey;
        verbs_post_message(pair, slot, verbs_message_put(&message, slot), VERBS_MESSAGE_SENT);
    }
    return true;
}

static bool repeat_message(struct verbs_pair *pair, uint8_t *slot)
{
    struct verbs_message message = {0};
    uint32_t bytes = verbs_message_bytes(slot);
    if (verbs_message_get(slot, bytes, &message) && message.address != 0) {
        const struct ibv_mr *mr = find_mr(pair->device, message.address, message.bytes);
        if (mr == NULL) {
            return false;
        }
        verbs_message_rekey(slot, mr->rkey);
    }
    verbs_post_message(pair, slot, bytes, message.kind == VERBS_FINISH ? VERBS_FINISH_SENT : VERBS_MESSAGE_SENT);
    return true;
}

bool verbs_send_again(struct bps_channel *channel, uint32_t messages)
{
    struct verbs_pair *pair = channel->pair;
    struct verbs_outgoing *out = &channel->out;
    bool good = send_keys(pair);
    for (uint32_t i = messages; i > 0 && good; i--) {
        uint32_t slot = (pair->slot - i) % pair->peer.credits;
        good = repeat_message(pair, pair->memory + (size_t)slot * pair->slot_bytes);
    }
    if (out->busy && out->window != NULL) {
        out->window = verbs_window_find(pair->device, out->frame.payload, out->frame.bytes);
        good = good && out->window != NULL;
    }
    verbs_post_flush(pair);
    return good;
}
