/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_peer.c - peers with known streams, for the tests of transports between hosts. */
#include "tcp_peer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- streams ---- */

static uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

uint32_t stream_size(const struct stream *stream, uint32_t index)
{
    uint32_t r = mix(stream->seed * 7919 + index), size;
    switch (r % 8) {
    case 0:
        size = 0;
        break;
    case 1:
    case 2:
    case 3:
        size = (r >> 8) % 300;
        break;
    case 4:
    case 5:
        size = (r >> 8) % 70000;
        break;
    default:
        size = (r >> 8) % (stream->largest + 1);
    }
    size = size < stream->largest ? size : stream->largest;
    return size - size % stream->grain;
}

const uint8_t *stream_pattern(void)
{
    static uint32_t *pattern;
    if (pattern == NULL) {
        pattern = malloc(PATTERN_BYTES);
        ck_assert_ptr_nonnull(pattern);
        for (uint32_t i = 0; i < PATTERN_BYTES / 4; i++) {
            pattern[i] = mix(i + 1);
        }
    }
    return (const uint8_t *)pattern;
}

const uint8_t *stream_payload(const struct stream *stream, uint32_t index)
{
    ck_assert_uint_le(stream->largest, PATTERN_BYTES / 2);
    return stream_pattern() + mix(stream->seed + index) % (PATTERN_BYTES / 2);
}

void stream_header(const struct stream *stream, uint32_t index, uint8_t *header)
{
    uint32_t size = stream_size(stream, index);
    for (uint32_t i = 0; i < BPS_HEADER_BYTES; i++) {
        header[i] = (uint8_t)mix(stream->seed ^ index ^ i << 20);
    }
    for (uint32_t i = 0; i < 4; i++) {
        header[i] = (uint8_t)(size >> 8 * i);
    }
}

/* ---- what every callback does ---- */

static void callback(struct peer *peer)
{
    ck_assert_msg(!peer->ended, "a callback after the end");
    peer->callbacks++;
    if (peer->callbacks == peer->drop_at) {
        peer_drop(peer->victim);
    } else if (peer->callbacks == peer->finish_at && peer->victim->channel != NULL) {
        peer->side->ops->finish(peer->victim->channel);
    }
}

/* The channel has ended: nobody writes there any more. */
static void spoil_places(struct peer *peer)
{
    if (peer->take == TAKE_OPENED) {
        memset(peer->room.memory, 0xdd, peer->room.bytes);
    }
}

void peer_drop(struct peer *peer)
{
    struct bps_channel *channel = peer->channel;
    if (channel == NULL) {
        return;
    }
    peer->ended = true;
    peer->channel = NULL;
    peer->side->ops->drop(channel);
    free(peer->memory);
    peer->memory = NULL;
    memset(peer->headers, 0xdd, sizeof peer->headers);
    spoil_places(peer);
    if (peer->on_closed != NULL) {
        peer->on_closed(peer);
    }
}

/* ---- receiving ---- */

static struct peer *peer_of(struct bps_sink *sink)
{
    return (struct peer *)((char *)sink - offsetof(struct peer, sink));
}

static uint32_t draw(struct peer *peer)
{
    peer->random = mix(peer->random + 0x9e3779b9u);
    return peer->random;
}

static void *sink_place(struct bps_sink *sink, uint32_t offset, uint32_t *bytes)
{
    struct peer *peer = peer_of(sink);
    callback(peer);
    ck_assert_uint_eq(offset, peer->offset);
    ck_assert_uint_eq(*bytes, peer->size - offset);
    peer->placed = NULL;
    if (peer->ended || peer->take == TAKE_COPIED || (peer->take == TAKE_MIXED && draw(peer) % 2 == 0)) {
        return NULL;
    }
    if (peer->take == TAKE_MIXED) {
        *bytes = 1 + draw(peer) % *bytes;
    }
    peer->placed = peer->memory + offset;
    return peer->placed;
}

static void finish_if_complete(struct peer *peer)
{
    if (peer->finish_when_complete && peer->handed == peer->out.frames && peer->received == peer->in.frames) {
        peer->side->ops->finish(peer->channel);
    }
}

static void frame_received(struct peer *peer)
{
    peer->received++;
    finish_if_complete(peer);
    if (peer->on_received != NULL) {
        peer->on_received(peer);
    }
}

static void *sink_open(struct bps_sink *sink, void **ticket)
{
    struct peer *peer = peer_of(sink);
    callback(peer);
    for (uint32_t i = 0; i < PLACES && !peer->ended; i++) {
        struct peer_place *place = &peer->places[i];
        if (!place->open) {
            place->frame = peer->begun - 1;
            place->open = true;
            *ticket = place;
            return place->memory;
        }
    }
    return NULL;
}

static void on_placed(void *user, void *ticket)
{
    struct peer *peer = user;
    struct peer_place *place = ticket;
    callback(peer);
    if (!peer->ended) {
        const uint8_t *expected = stream_payload(&peer->in, place->frame);
        ck_assert_msg(memcmp(place->memory, expected, stream_size(&peer->in, place->frame)) == 0,
                      "frame %u differs in its place", place->frame);
        place->open = false;
        frame_received(peer);
    }
}

static uint32_t sink_take(struct bps_sink *sink, uint32_t offset, const void *data, uint32_t bytes)
{
    struct peer *peer = peer_of(sink);
    callback(peer);
    if (peer->ended) {
        return bytes;
    }
    ck_assert_uint_eq(offset, peer->offset);
    ck_assert_uint_le(offset + bytes, peer->size);
    uint32_t taken = bytes - bytes % peer->in.grain;
    uint32_t frame = peer->begun - 1;
    ck_assert_msg(memcmp(data, stream_payload(&peer->in, frame) + offset, bytes) == 0,
                  "frame %u differs within %u bytes from %u on", frame, bytes, offset);
    memcpy(peer->memory + offset, data == peer->placed ? peer->memory + offset : data, taken);
    peer->placed = NULL;
    peer->offset += taken;
    if (peer->offset == peer->size) {
        frame_received(peer);
    }
    return taken;
}

static bps_status on_header(void *user, const uint8_t *header, struct bps_sink **sink)
{
    struct peer *peer = user;
    uint8_t expected[BPS_HEADER_BYTES];
    callback(peer);
    stream_header(&peer->in, peer->begun, expected);
    if (memcmp(header, expected, sizeof expected) != 0) {
        return BPS_ERR_PROTOCOL;
    }
    peer->size = stream_size(&peer->in, peer->begun++);
    peer->offset = 0;
    peer->sink.open = peer->take == TAKE_OPENED ? sink_open : NULL;
    *sink = &peer->sink;
    if (peer->size == 0 && !peer->ended) {
        frame_received(peer);
    }
    return BPS_OK;
}

/* ---- sending ---- */

static bps_status on_next(void *user, struct bps_frame *out)
{
    struct peer *peer = user;
    peer->nexts++;
    if (peer->on_next != NULL) {
        peer->on_next(peer);
    }
    callback(peer);
    /* Headers lie in a ring: the transport holds fewer frames than that. */
    if (peer->ended || peer->handed == peer->out.frames || peer->handed - peer->sent == 64) {
        return BPS_AGAIN;
    }
    if (peer->kick_late && draw(peer) % 4 == 0) {
        peer->side->ops->kick(peer->channel);
        return BPS_AGAIN;
    }
    uint8_t *header = peer->headers[peer->handed % 64];
    stream_header(&peer->out, peer->handed, header);
    *out = (struct bps_frame){
        .header = header,
        .payload = stream_payload(&peer->out, peer->handed),
        .bytes = stream_size(&peer->out, peer->handed),
        .cookie = (void *)(uintptr_t)(peer->handed + 1),
    };
    peer->handed++;
    finish_if_complete(peer);
    return BPS_OK;
}

static void on_sent(void *user, void *cookie)
{
    struct peer *peer = user;
    ck_assert_uint_eq((uintptr_t)cookie, peer->sent + 1);
    memset(peer->headers[peer->sent % 64], 0xee, BPS_HEADER_BYTES);
    peer->sent++;
    callback(peer);
}

/* ---- life ---- */

static void on_connected(void *user)
{
    struct peer *peer = user;
    ck_assert(!peer->connected);
    peer->connected = true;
    callback(peer);
    if (!peer->ended) {
        peer->side->ops->kick(peer->channel);
    }
}

static void on_closed(void *user, bps_status status, const char *text)
{
    struct peer *peer = user;
    callback(peer);
    peer->ended = true;
    peer->channel = NULL;
    spoil_places(peer);
    peer->closed++;
    peer->status = status;
    snprintf(peer->text, sizeof peer->text, "%s", text);
    if (peer->on_closed != NULL) {
        peer->on_closed(peer);
    }
}

const struct bps_channel_events peer_events = {
    .connected = on_connected,
    .header = on_header,
    .next = on_next,
    .sent = on_sent,
    .closed = on_closed,
    .placed = on_placed,
};

void peer_init(struct peer *peer, struct side *side, const struct stream *out, const struct stream *in)
{
    memset(peer, 0, sizeof *peer);
    peer->side = side;
    peer->out = *out;
    peer->in = *in;
    peer->random = out->seed;
    peer->victim = peer;
    peer->memory = malloc(in->largest + 1);
    ck_assert_ptr_nonnull(peer->memory);
    uint64_t bytes = (in->largest / 4096 + 1) * 4096ull;
    peer->room = (struct bps_region){.bytes = PLACES * bytes, .fd = -1};
    peer->room.memory = mmap(NULL, peer->room.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert(peer->room.memory != MAP_FAILED);
    for (uint32_t i = 0; i < PLACES; i++) {
        peer->places[i].memory = (uint8_t *)peer->room.memory + i * bytes;
    }
    peer->sink = (struct bps_sink){.place = sink_place, .take = sink_take};
}

void peer_fini(struct peer *peer)
{
    peer->on_closed = NULL;
    peer_drop(peer);
    const uint8_t *room = peer->room.memory;
    bool written = peer->ended && peer->take == TAKE_OPENED &&
                   (room[0] != 0xdd || memcmp(room, room + 1, peer->room.bytes - 1) != 0);
    ck_assert_msg(!written, "a place was written to after the end");
    munmap(peer->room.memory, peer->room.bytes);
    free(peer->memory);
    peer->memory = NULL;
}

const struct bps_channel_events *peer_accept(void *arg, struct bps_channel *channel, const char *from, void **user,
                                             const struct bps_channel_key **key)
{
    struct peer *peer = arg;
    ck_assert_ptr_nonnull(strrchr(from, ':'));
    if (peer->channel != NULL || peer->ended) {
        return NULL;
    }
    peer->channel = channel;
    *user = peer;
    *key = NULL;
    peer->side->ops->kick(channel);
    return &peer_events;
}

void peer_listen(struct peer *peer, const char *address, char *actual, size_t n)
{
    struct bps_report report = {""};
    bps_status status =
        peer->side->ops->listen(peer->side->instance->self, address, peer_accept, peer, actual, n, &report);
    ck_assert_msg(status == BPS_OK, "%s", report.text);
}

void peer_dial(struct peer *peer, const char *address)
{
    struct bps_report report = {""};
    bps_status status = peer->side->ops->dial(peer->side->instance->self, address, peer->lane, NULL, &peer_events, peer,
                                              &peer->channel, &report);
    ck_assert_msg(status == BPS_OK, "%s", report.text);
    ck_assert_uint_eq(peer->callbacks, 0);
}

static void too_late(void *arg)
{
    (void)arg;
    ck_abort_msg("nothing has happened for too long");
}

void run_loop(struct bps_loop *loop)
{
    struct bps_timer *timer = bps_loop_timer(loop, DEADLINE, 0, too_late, NULL);
    bps_loop_run(loop);
    bps_loop_cancel(loop, timer);
}
