/* SPDX-License-Identifier: Apache-2.0 */
/*
 * send.c - from the core's frames to the ring.
 *
 * The core is asked for a frame only when the ring has room for any, and while the peer has not too many
 * bytes before it that it has not come to: so the most urgent frame is chosen as late as possible.
 */
#include "ipc.h"

#include <string.h>

static uint32_t round_up(uint32_t bytes)
{
    return (bytes + IPC_LINE - 1) & ~(IPC_LINE - 1);
}

static void count(struct bps_channel *channel, enum ipc_way way, uint32_t bytes)
{
    const struct ipc_counters *counters = &channel->ipc->count;
    ++*counters->frames_sent;
    ++*counters->frames[way];
    *counters->bytes[way] += bytes;
}

/* ---- which way ---- */

static void why_not_remote(const struct bps_channel *channel, char *text, size_t n)
{
    uint32_t copy = channel->ipc->options.copy;
    if (copy == IPC_COPY_ARENA || copy == IPC_COPY_RING) {
        snprintf(text, n, ", as the option copy says");
    } else if (channel->reach == 0) {
        snprintf(text, n, " while it has room");
    } else if (channel->reach == IPC_NONE) {
        snprintf(text, n, ", as the peer's option copy says");
    } else {
        snprintf(text, n, ", since process_vm_readv is not permitted (%s; see Yama's ptrace_scope, seccomp)",
                 strerror((int)channel->reach));
    }
}

/*
 * Tells once for each way why it is taken: at first to people, for further peers only to those who look
 * closely.
 */
static void say(struct bps_channel *channel, enum ipc_way way)
{
    static const char *const texts[IPC_WAYS] = {
        [IPC_BY_REGION] = "payloads in shared regions are used in place",
        [IPC_BY_REMOTE] = "large payloads in ordinary memory go by process_vm_readv",
        [IPC_BY_ARENA] = "large payloads go through a shared arena",
        [IPC_BY_STREAM] = "large payloads go through the ring in pieces",
    };
    struct ipc *ipc = channel->ipc;
    uint32_t bit = 1u << way;
    char reason[160] = "";
    if ((channel->said & bit) != 0) {
        return;
    }
    if (way == IPC_BY_ARENA) {
        why_not_remote(channel, reason, sizeof reason);
    } else if (way == IPC_BY_STREAM) {
        snprintf(reason, sizeof reason, "%s",
                 ipc->options.copy == IPC_COPY_RING ? ", as the option copy says"
                 : ipc->options.arena == 0          ? ", as there is no arena"
                                                    : " while the arena has no room");
    }
    ipc->host->log(ipc->host, (ipc->said & bit) != 0 ? BPS_LOG_DEBUG : BPS_LOG_INFO, "to %s: %s%s", channel->peer,
                   texts[way], reason);
    channel->said |= bit;
    ipc->said |= bit;
}

/* ---- frames of each way ---- */

static struct ipc_record *reserve(struct bps_channel *channel, uint16_t kind, uint32_t size, const uint8_t *header)
{
    struct ipc_record *record = ipc_ring_reserve(&channel->ring, size);
    if (record != NULL) {
        *record = (struct ipc_record){.size = size, .kind = kind};
        if (header != NULL) {
            memcpy(record + 1, header, BPS_HEADER_BYTES);
        }
    }
    return record;
}

/* The core has filled the room that was there before it was asked. */
static void send_inline(struct bps_channel *channel, const struct bps_frame *frame)
{
    uint32_t size = IPC_HEAD + round_up(frame->bytes);
    struct ipc_record *record = reserve(channel, IPC_INLINE, size, frame->header);
    record->bytes = frame->bytes;
    if (frame->bytes > 0) {
        memcpy((uint8_t *)record + IPC_HEAD, frame->payload, frame->bytes);
    }
    ipc_ring_publish(&channel->ring, record);
    count(channel, IPC_BY_INLINE, frame->bytes);
    channel->events->sent(channel->user, frame->cookie);
}

static void send_return(struct bps_channel *channel, const struct bps_frame *frame)
{
    struct ipc_loan *loan = (struct ipc_loan *)frame->returns;
    if (loan->channel != channel || frame->bytes != 0) {
        ipc_channel_end(channel, BPS_ERR_INVALID, "a loan was returned to another peer, or with a payload");
        return;
    }
    struct ipc_record *record = reserve(channel, IPC_RETURN, IPC_HEAD, frame->header);
    record->ticket = loan->ticket;
    record->serial = loan->serial;
    ipc_ring_publish(&channel->ring, record);
    ipc_loan_end(loan);
    count(channel, IPC_BY_INLINE, 0);
    channel->events->sent(channel->user, frame->cookie);
}

static void send_reference(struct bps_channel *channel, const struct bps_frame *frame, enum ipc_way way,
                           uint32_t ticket, const struct ipc_record *where)
{
    struct ipc_ring *ring = &channel->ring;
    struct ipc_record *record =
        reserve(channel, way == IPC_BY_REMOTE ? IPC_REMOTE : IPC_MAPPED, IPC_HEAD, frame->header);
    record->at = where->at;
    record->answer = where->answer;
    record->region = where->region;
    record->answer_region = where->answer_region;
    record->ticket = ticket;
    record->serial = channel->tickets.items[ticket].serial;
    record->flags = frame->answer != NULL ? IPC_LENDABLE : frame->lends ? IPC_LENDABLE | IPC_UNANSWERED : 0;
    uint64_t start = ring->tail;
    ipc_ring_publish(ring, record);
    ipc_ticket_queue(channel, ticket, start, ring->tail);
    ipc_flush(channel);
    say(channel, way);
    count(channel, way, frame->bytes);
}

/* In a region of the core's, which the peer knows. */
static bool find_region(const struct bps_channel *channel, const void *memory, uint32_t bytes, uint32_t *id,
                        uint64_t *at)
{
    const struct ipc_own_region *own = ipc_region_find(channel->ipc, memory, bytes);
    if (own == NULL || own->id > channel->announced) {
        return false;
    }
    *id = own->id;
    *at = (uint64_t)((const uint8_t *)memory - (const uint8_t *)own->region->memory);
    return true;
}

static bool by_region(const struct bps_channel *channel, const struct bps_frame *frame, struct ipc_record *where)
{
    const struct ipc *ipc = channel->ipc;
    if (ipc->options.copy != IPC_COPY_AUTO || ipc->nregions == 0 ||
        !find_region(channel, frame->payload, frame->bytes, &where->region, &where->at)) {
        return false;
    }
    return frame->answer == NULL ||
           find_region(channel, frame->answer, frame->bytes, &where->answer_region, &where->answer);
}

static bool by_remote(const struct bps_channel *channel, const struct bps_frame *frame, struct ipc_record *where)
{
    uint32_t copy = channel->ipc->options.copy;
    where->at = (uintptr_t)frame->payload;
    where->answer = (uintptr_t)frame->answer;
    return channel->reach == 0 && (copy == IPC_COPY_AUTO || copy == IPC_COPY_REMOTE);
}

static uint8_t *by_arena(struct bps_channel *channel, const struct bps_frame *frame, struct ipc_record *where,
                         uint64_t most)
{
    bool ring = channel->ipc->options.copy == IPC_COPY_RING;
    uint8_t *slot = ring ? NULL : ipc_arena_take(channel, frame->bytes, most);
    if (slot != NULL) {
        where->region = where->answer_region = channel->arena.id;
        where->at = where->answer = (uint64_t)(slot - channel->arena.memory);
        if ((frame->hints & BPS_HINT_BLANK) == 0) {
            memcpy(slot, frame->payload, frame->bytes);
        }
    }
    return slot;
}

static void begin_stream(struct bps_channel *channel, const struct bps_frame *frame)
{
    struct ipc_record *record = reserve(channel, IPC_STREAM, IPC_HEAD, frame->header);
    ipc_ring_publish(&channel->ring, record);
    channel->stream = *frame;
    channel->streamed = 0;
    say(channel, IPC_BY_STREAM);
    count(channel, IPC_BY_STREAM, frame->bytes);
}

/*
 * Payloads are staged in the arena although the peer could reach them: the system call pins page by page, and makes one
 * process do all copies; to and from the arena each copies its own. What finds no room is left to it.
 */
static bool is_staged(const struct bps_channel *channel, const struct bps_frame *frame)
{
    return channel->ipc->options.copy == IPC_COPY_AUTO && frame->bytes <= IPC_STAGED_FRAME;
}

static enum ipc_way choose_way(struct bps_channel *channel, const struct bps_frame *frame, struct ipc_record *where,
                               uint8_t **slot)
{
    if (by_region(channel, frame, where)) {
        return IPC_BY_REGION;
    }
    if (is_staged(channel, frame)) {
        *slot = by_arena(channel, frame, where, IPC_STAGED_MOST);
    }
    if (*slot == NULL && by_remote(channel, frame, where)) {
        return IPC_BY_REMOTE;
    }
    if (*slot == NULL) {
        *slot = by_arena(channel, frame, where, UINT64_MAX);
    }
    return *slot != NULL ? IPC_BY_ARENA : IPC_BY_STREAM;
}

/* Returns how many bytes it has copied, or is going to. */
static uint32_t send_large(struct bps_channel *channel, const struct bps_frame *frame)
{
    struct ipc_record where = {.region = IPC_NONE, .answer_region = IPC_NONE};
    uint8_t *slot = NULL;
    enum ipc_way way = choose_way(channel, frame, &where, &slot);
    uint32_t ticket = way == IPC_BY_STREAM ? IPC_NONE : ipc_ticket_new(channel, frame, slot);
    if (ticket != IPC_NONE) {
        send_reference(channel, frame, way, ticket, &where);
        return slot != NULL ? frame->bytes : 0;
    }
    if (slot != NULL) {
        ipc_arena_give(channel, slot, frame->bytes);
    }
    begin_stream(channel, frame);
    return frame->bytes;
}

/* ---- turns ---- */

/* Sends pieces while there is room. False: the rest has to wait, or the channel has ended. */
static bool continue_stream(struct bps_channel *channel)
{
    const struct bps_frame frame = channel->stream;
    while (channel->streamed < frame.bytes) {
        uint32_t rest = frame.bytes - channel->streamed;
        uint32_t piece = rest < channel->piece ? rest : channel->piece;
        struct ipc_record *record = reserve(channel, IPC_MORE, IPC_LINE + round_up(piece), NULL);
        if (record == NULL) {
            channel->starved = true;
            return false;
        }
        record->bytes = piece;
        memcpy((uint8_t *)record + IPC_LINE, (const uint8_t *)frame.payload + channel->streamed, piece);
        ipc_ring_publish(&channel->ring, record);
        channel->streamed += piece;
        ipc_flush(channel);
        if (!ipc_reap(channel)) {
            return false;
        }
    }
    channel->stream.header = NULL;
    channel->events->sent(channel->user, frame.cookie);
    return channel->state == IPC_OPEN;
}

/* Whether any frame can be begun now. */
static bool has_room(const struct bps_channel *channel)
{
    const struct ipc_ring *ring = &channel->ring;
    uint32_t most = IPC_HEAD + round_up(channel->inline_max);
    uint32_t behind = ring->bytes - (uint32_t)(ring->tail & (ring->bytes - 1));
    uint64_t room = ring->bytes - (ring->tail - ring->peer_head);
    return room >= (uint64_t)most + (behind < most ? behind : 0) &&
           (channel->tickets.first == IPC_NONE || channel->tickets.bytes < channel->ipc->options.window);
}

/* False: the channel has ended. */
static bool send_one(struct bps_channel *channel, uint64_t *copied)
{
    struct bps_frame frame = {.size = sizeof frame};
    channel->kicked = false; /* a kick from within `next` counts */
    bps_status status = channel->events->next(channel->user, &frame);
    if (channel->state != IPC_OPEN || status != BPS_OK) {
        return channel->state == IPC_OPEN;
    }
    channel->kicked = true;
    if (frame.returns != NULL) {
        send_return(channel, &frame);
    } else if (frame.bytes <= channel->inline_max) {
        *copied += frame.bytes;
        send_inline(channel, &frame);
    } else {
        *copied += send_large(channel, &frame);
    }
    return channel->state == IPC_OPEN;
}

void ipc_send(struct bps_channel *channel)
{
    uint64_t copied = 0;
    channel->starved = false;
    for (;;) {
        if (channel->stream.header != NULL && !continue_stream(channel)) {
            break;
        }
        if (!channel->kicked) {
            break;
        }
        if (!has_room(channel) && (!ipc_reap(channel) || !has_room(channel))) {
            channel->starved = true;
            break;
        }
        if (copied >= IPC_TURN_BYTES) {
            ipc_channel_queue(channel);
            break;
        }
        if (!send_one(channel, &copied)) {
            return;
        }
    }
    if (channel->state == IPC_OPEN) {
        ipc_flush(channel);
    }
}
