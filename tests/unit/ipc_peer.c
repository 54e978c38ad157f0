/* SPDX-License-Identifier: Apache-2.0 */
/* ipc_peer.c - instances of the transport over shared memory and peers with known streams, for its tests. */
#include "ipc_peer.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PATTERN_BYTES (32u << 20)
#define TYPE_DATA     1u
#define TYPE_RETURN   2u

const struct side_kind side_kind = {"ipc", "local", "transports.local"};

/* ---- streams ---- */

uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

static uint32_t stream_size(const struct stream *stream, uint32_t index)
{
    uint32_t r = mix(stream->seed * 7919 + index), size;
    if (stream->same) {
        return stream->largest;
    }
    switch (r % 8) {
    case 0:
        size = 0;
        break;
    case 1:
    case 2:
        size = (r >> 8) % 300;
        break;
    case 3:
    case 4:
    case 5:
        size = (r >> 8) % 70000;
        break;
    default:
        size = (r >> 8) % (stream->largest + 1);
    }
    size = size < stream->largest ? size : stream->largest;
    return size - size % 4;
}

static bool stream_answers(const struct stream *stream, uint32_t index)
{
    return mix(stream->seed * 31 + index) % 8 < stream->answers;
}

static uint32_t *pattern;

void make_pattern(void)
{
    if (pattern == NULL) {
        pattern = malloc(PATTERN_BYTES);
        must(pattern != NULL);
        for (uint32_t i = 0; i < PATTERN_BYTES / 4; i++) {
            pattern[i] = mix(i + 1);
        }
    }
}

static const uint8_t *stream_payload(const struct stream *stream, uint32_t index)
{
    must(stream->largest <= PATTERN_BYTES / 2);
    return (const uint8_t *)pattern + mix(stream->seed + index) % (PATTERN_BYTES / 2);
}

static void make_header(uint32_t seed, uint32_t type, uint32_t index, uint32_t size, uint8_t *header)
{
    const uint32_t words[3] = {size, index, type};
    for (uint32_t i = 0; i < BPS_HEADER_BYTES; i++) {
        header[i] = (uint8_t)mix(seed ^ index ^ i << 20);
    }
    memcpy(header, words, sizeof words);
}

/* ---- what every callback does ---- */

static void callback(struct peer *peer)
{
    must(!peer->ended, "a callback after the end");
    peer->callbacks++;
    if (peer->callbacks == peer->drop_at) {
        peer_drop(peer->victim);
    } else if (peer->callbacks == peer->finish_at && peer->victim->channel != NULL) {
        peer->side->ops->finish(peer->victim->channel);
    }
}

static void forget_memory(struct peer *peer)
{
    if (peer->memory.memory == NULL) {
        return;
    }
    if (peer->region) {
        peer->side->ops->detach(peer->side->instance->self, &peer->memory);
    }
    munmap(peer->memory.memory, peer->memory.bytes);
    close(peer->memory.fd);
    peer->memory.memory = NULL;
    free(peer->place);
    free(peer->scratch);
    peer->place = peer->scratch = NULL;
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
    forget_memory(peer);
    memset(peer->slots, 0xdd, sizeof peer->slots);
    memset(peer->return_headers, 0xdd, sizeof peer->return_headers);
    if (peer->on_closed != NULL) {
        peer->on_closed(peer);
    }
}

bool peer_is_complete(const struct peer *peer)
{
    return peer->handed == peer->out.frames && peer->sent == peer->handed + peer->returned &&
           peer->received == peer->in.frames && peer->nheld == 0;
}

static void progress(struct peer *peer)
{
    if (peer->ended) {
        return;
    }
    if (peer->finish_when_complete && peer_is_complete(peer) && peer->channel != NULL) {
        peer->side->ops->finish(peer->channel);
    }
    if (peer->on_progress != NULL) {
        peer->on_progress(peer);
    }
}

static uint32_t draw(struct peer *peer)
{
    peer->random = mix(peer->random + 0x9e3779b9u);
    return peer->random;
}

/* ---- receiving ---- */

static uint8_t *slot_memory(const struct peer *peer, uint32_t slot)
{
    return (uint8_t *)peer->memory.memory + (size_t)slot * (peer->out.largest + 64);
}

static uint8_t *slot_answer(const struct peer *peer, uint32_t slot)
{
    return peer->in_place ? slot_memory(peer, slot) : slot_memory(peer, slot + SLOTS);
}

static struct peer *peer_of(struct bps_sink *sink)
{
    return (struct peer *)((char *)sink - offsetof(struct peer, sink));
}

static void *sink_place(struct bps_sink *sink, uint32_t offset, uint32_t *bytes)
{
    struct peer *peer = peer_of(sink);
    callback(peer);
    must_equal(offset, peer->offset);
    must_equal(*bytes, peer->size - offset);
    peer->placed = false;
    if (peer->ended || peer->take == TAKE_COPIED || (peer->take == TAKE_MIXED && draw(peer) % 2 == 0)) {
        return NULL;
    }
    if (peer->take == TAKE_MIXED) {
        *bytes = 1 + draw(peer) % *bytes;
    }
    peer->placed = true;
    return peer->place + offset;
}

static uint32_t sink_take(struct bps_sink *sink, uint32_t offset, const void *data, uint32_t bytes)
{
    struct peer *peer = peer_of(sink);
    callback(peer);
    if (peer->ended) {
        return bytes;
    }
    must_equal(offset, peer->offset);
    must(offset + bytes <= peer->size);
    must(memcmp(data, stream_payload(&peer->in, peer->current) + offset, bytes) == 0,
         "frame %u differs within %u bytes from %u on", peer->current, bytes, offset);
    uint32_t taken = bytes - bytes % 4;
    peer->offset += taken;
    if (peer->offset == peer->size) {
        peer->received++;
        peer->side->ops->kick(peer->channel);
        progress(peer);
    }
    return taken;
}

static bps_status sink_lend(struct bps_sink *sink, struct bps_loan *loan)
{
    struct peer *peer = peer_of(sink);
    callback(peer);
    if (peer->ended) {
        return BPS_OK;
    }
    must_equal(loan->bytes, peer->size);
    must_equal(peer->offset, 0);
    must_equal(loan->data == NULL || peer->silent, loan->answer == NULL);
    if (peer->lend == LEND_REFUSE || (peer->lend == LEND_MIXED && draw(peer) % 2 == 0) || peer->nheld == SLOTS) {
        return BPS_AGAIN;
    }
    peer->held[peer->nheld++] = (struct held){loan, peer->current};
    peer->lent++;
    peer->received++;
    peer->side->ops->kick(peer->channel);
    progress(peer);
    return BPS_OK;
}

/* Our own loan has come home: it was the last that was sent, and its answer is in its place. */
static void on_return(struct peer *peer, uint32_t index)
{
    const struct slot *slot = &peer->slots[peer->last_sent];
    const uint8_t *payload = stream_payload(&peer->out, index), *answer = slot_answer(peer, peer->last_sent);
    uint32_t size = stream_size(&peer->out, index), same = 0;
    must(slot->answered && !slot->used);
    must_equal(slot->index, index);
    if (peer->silent) {
        must_equal(memcmp(slot_memory(peer, peer->last_sent), payload, size), 0);
        same = size;
    }
    while (same < size && (answer[same] ^ payload[same]) == 0xff) {
        same++;
    }
    must_equal(same, size);
    peer->answers++;
    progress(peer);
}

static bps_status on_header(void *user, const uint8_t *header, struct bps_sink **sink)
{
    struct peer *peer = user;
    uint8_t expected[BPS_HEADER_BYTES];
    uint32_t words[3];
    callback(peer);
    if (peer->ended) {
        return BPS_OK;
    }
    memcpy(words, header, sizeof words);
    if (words[2] == TYPE_RETURN) {
        must_equal(words[0], 0);
        on_return(peer, words[1]);
        return BPS_OK;
    }
    peer->current = peer->received;
    peer->size = stream_size(&peer->in, peer->current);
    peer->offset = 0;
    make_header(peer->in.seed, TYPE_DATA, peer->current, peer->size, expected);
    if (memcmp(header, expected, sizeof expected) != 0) {
        return BPS_ERR_PROTOCOL;
    }
    *sink = &peer->sink;
    if (peer->size == 0) {
        peer->received++;
        progress(peer);
    }
    return BPS_OK;
}

/* ---- sending ---- */

static void invert(uint8_t *to, const uint8_t *from, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        to[i] = (uint8_t)~from[i];
    }
}

/* BPS_OK, or BPS_ERR_IO: the peer has just gone. */
static bps_status write_answer(struct peer *peer, const struct held *held)
{
    const struct bps_transport_ops *ops = peer->side->ops;
    struct bps_loan *loan = held->loan;
    const uint8_t *expected = stream_payload(&peer->in, held->index);
    uint32_t half = loan->bytes / 2;
    bps_status status = ops->loan_read(peer->channel, loan, 0, peer->scratch, loan->bytes);
    if (status != BPS_OK) {
        return status;
    }
    must_equal(memcmp(peer->scratch, expected, loan->bytes), 0);
    must_equal(ops->loan_read(peer->channel, loan, 1, peer->scratch, loan->bytes), BPS_ERR_INVALID);
    must_equal(ops->loan_write(peer->channel, loan, loan->bytes, peer->scratch, 1), BPS_ERR_INVALID);
    if (peer->silent) {
        must_equal(ops->loan_write(peer->channel, loan, 0, peer->scratch, loan->bytes), BPS_ERR_INVALID);
        return BPS_OK;
    }
    if (loan->data != NULL && draw(peer) % 2 == 0) {
        must_equal(memcmp(loan->data, expected, loan->bytes), 0);
        invert(loan->answer, loan->data, loan->bytes);
        return BPS_OK;
    }
    invert(peer->scratch, expected, loan->bytes);
    status = ops->loan_write(peer->channel, loan, half, peer->scratch + half, loan->bytes - half);
    return status == BPS_OK ? ops->loan_write(peer->channel, loan, 0, peer->scratch, half) : status;
}

static bool may_return(const struct peer *peer)
{
    return peer->nheld > 0 && !peer->keep_loans && peer->returning < SLOTS &&
           (peer->nheld >= peer->hold || peer->received == peer->in.frames);
}

static bps_status return_loan(struct peer *peer, struct bps_frame *out)
{
    uint32_t which = draw(peer) % peer->nheld;
    const struct held held = peer->held[which];
    uint8_t *header = peer->return_headers[peer->returned % SLOTS];
    bps_status status = write_answer(peer, &held);
    if (status != BPS_OK) {
        must_equal(status, BPS_ERR_IO);
        return BPS_AGAIN;
    }
    make_header(peer->out.seed, TYPE_RETURN, held.index, 0, header);
    peer->held[which] = peer->held[--peer->nheld];
    peer->returned++;
    peer->returning++;
    *out = (struct bps_frame){.header = header, .returns = held.loan};
    return BPS_OK;
}

static bps_status send_data(struct peer *peer, struct bps_frame *out)
{
    uint32_t slot = 0;
    while (slot < SLOTS && peer->slots[slot].used) {
        slot++;
    }
    if (slot == SLOTS) {
        return BPS_AGAIN;
    }
    uint32_t index = peer->handed++, size = stream_size(&peer->out, index);
    struct slot *own = &peer->slots[slot];
    own->used = true;
    own->index = index;
    own->answered = stream_answers(&peer->out, index);
    make_header(peer->out.seed, TYPE_DATA, index, size, own->header);
    memcpy(slot_memory(peer, slot), stream_payload(&peer->out, index), size);
    *out = (struct bps_frame){
        .header = own->header,
        .payload = slot_memory(peer, slot),
        .bytes = size,
        .cookie = own,
        .answer = own->answered && !peer->silent ? slot_answer(peer, slot) : NULL,
        .lends = own->answered && peer->silent,
    };
    if (own->answered && !peer->in_place && !peer->silent) {
        memset(slot_answer(peer, slot), 0x55, size);
    }
    return BPS_OK;
}

static bps_status on_next(void *user, struct bps_frame *out)
{
    struct peer *peer = user;
    if (peer->on_next != NULL) {
        peer->on_next(peer);
    }
    callback(peer);
    if (peer->ended) {
        return BPS_AGAIN;
    }
    if (peer->kick_late && draw(peer) % 4 == 0) {
        peer->side->ops->kick(peer->channel);
        return BPS_AGAIN;
    }
    if (may_return(peer)) {
        return return_loan(peer, out);
    }
    return peer->handed < peer->out.frames ? send_data(peer, out) : BPS_AGAIN;
}

static void on_sent(void *user, void *cookie)
{
    struct peer *peer = user;
    struct slot *slot = cookie;
    peer->sent++;
    if (slot == NULL) {
        peer->returning--;
    } else {
        must(slot->used);
        peer->last_sent = (uint32_t)(slot - peer->slots);
        memset(slot->header, 0xee, sizeof slot->header);
        slot->used = false;
        peer->side->ops->kick(peer->channel);
    }
    callback(peer);
    progress(peer);
}

/* ---- life ---- */

static void on_connected(void *user)
{
    struct peer *peer = user;
    must(!peer->connected);
    peer->connected = true;
    callback(peer);
    if (!peer->ended) {
        peer->side->ops->kick(peer->channel);
    }
}

static void on_closed(void *user, bps_status status, const char *text)
{
    struct peer *peer = user;
    for (uint32_t i = 0; i < peer->nheld; i++) {
        const struct bps_loan *loan = peer->held[i].loan;
        if (loan->data != NULL) {
            must_equal(memcmp(loan->data, stream_payload(&peer->in, peer->held[i].index), loan->bytes), 0);
        }
    }
    callback(peer);
    peer->ended = true;
    peer->channel = NULL;
    peer->closed++;
    peer->status = status;
    snprintf(peer->text, sizeof peer->text, "%s", text);
    if (peer->on_closed != NULL) {
        peer->on_closed(peer);
    }
}

static const struct bps_channel_events peer_events = {
    .connected = on_connected,
    .header = on_header,
    .next = on_next,
    .sent = on_sent,
    .closed = on_closed,
};

void peer_init(struct peer *peer, struct side *side, const struct stream *out, const struct stream *in)
{
    make_pattern();
    memset(peer, 0, sizeof *peer);
    peer->side = side;
    peer->out = *out;
    peer->in = *in;
    peer->random = out->seed;
    peer->victim = peer;
    peer->lend = LEND_ALWAYS;
    peer->take = TAKE_MIXED;
    peer->place = malloc(in->largest + 64);
    peer->scratch = malloc(in->largest + 64);
    must(peer->place != NULL && peer->scratch != NULL);
    peer->memory.bytes = (2ull * SLOTS * (out->largest + 64) + 4095) & ~4095ull;
    peer->memory.fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    must_equal(ftruncate(peer->memory.fd, (off_t)peer->memory.bytes), 0);
    must_equal(fcntl(peer->memory.fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    peer->memory.memory = mmap(NULL, peer->memory.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, peer->memory.fd, 0);
    must(peer->memory.memory != MAP_FAILED);
    peer->sink = (struct bps_sink){.place = sink_place, .take = sink_take, .lend = sink_lend};
}

void peer_use_region(struct peer *peer)
{
    struct bps_report report = {""};
    bps_status status = peer->side->ops->attach(peer->side->instance->self, &peer->memory, &report);
    must(status == BPS_OK, "%s", report.text);
    peer->region = true;
}

void peer_fini(struct peer *peer)
{
    peer->on_closed = NULL;
    peer_drop(peer);
    forget_memory(peer);
}

const struct bps_channel_events *peer_accept(void *arg, struct bps_channel *channel, const char *from, void **user,
                                             const struct bps_channel_key **key)
{
    struct peer *peer = arg;
    must_equal(strncmp(from, "process ", 8), 0);
    if (peer->channel != NULL || peer->ended) {
        return NULL;
    }
    if (peer->lend == LEND_NEVER) {
        peer->sink.lend = NULL;
    }
    peer->channel = channel;
    *user = peer;
    *key = NULL;
    peer->side->ops->kick(channel);
    return &peer_events;
}

void peer_listen(struct peer *peer, char *actual, size_t n)
{
    struct bps_report report = {""};
    bps_status status = peer->side->ops->listen(peer->side->instance->self, "", peer_accept, peer, actual, n, &report);
    must(status == BPS_OK, "%s", report.text);
    must_equal(strncmp(actual, "@byteps-", 8), 0);
}

void peer_dial(struct peer *peer, const char *address)
{
    struct bps_report report = {""};
    if (peer->lend == LEND_NEVER) {
        peer->sink.lend = NULL;
    }
    bps_status status = peer->side->ops->dial(peer->side->instance->self, address, 0, NULL, &peer_events, peer,
                                              &peer->channel, &report);
    must(status == BPS_OK, "%s", report.text);
    must_equal(peer->callbacks, 0);
}

static void too_late(void *arg)
{
    (void)arg;
    must(false, "nothing has happened for too long");
}

void run_loop(struct bps_loop *loop)
{
    struct bps_timer *timer = bps_loop_timer(loop, DEADLINE, 0, too_late, NULL);
    bps_loop_run(loop);
    bps_loop_cancel(loop, timer);
}

void turn(struct bps_loop *loop)
{
    bps_loop_stop(loop);
    bps_loop_run(loop);
}
