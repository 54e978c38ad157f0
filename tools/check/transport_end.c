/* SPDX-License-Identifier: Apache-2.0 */
/* transport_end.c - one end of a channel, played as a script says: how it begins, what it sends, and how it ends. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/layout.h"
#include "tools/check/transport_end.h"
#include "tools/check/values.h"

const char *bps_call_name(enum bps_call call)
{
    static const char *const names[BPS_CALLS] = {"connected", "header", "next", "sent", "closed",
                                                 "placed",    "place",  "take", "lend", "open"};
    return names[call];
}

uint64_t bps_end_draw(struct bps_end *end)
{
    return bps_check_random(&end->random);
}

/* ---- what is looked at in every call ---- */

static bool may_come_from_within(const char *inside, enum bps_call call)
{
    return strcmp(inside, "finish") == 0 ? call != BPS_CALL_CLOSED : strcmp(inside, "kick") == 0;
}

bool bps_end_enter(struct bps_end *end, enum bps_call call)
{
    const char *name = bps_call_name(call);
    BPS_CHECK(end->check, !end->dropped, "%s is called after drop, at %s", name, end->name);
    BPS_CHECK(end->check, end->closed == 0, "%s is called after closed, at %s", name, end->name);
    BPS_CHECK(end->check, end->inside == NULL || may_come_from_within(end->inside, call),
              "%s is called from within %s, at %s", name, end->inside, end->name);
    BPS_CHECK(end->check, end->connected || call == BPS_CALL_CONNECTED || call == BPS_CALL_CLOSED,
              "%s is called before connected, at %s", name, end->name);
    end->calls[call]++;
    if (end->act.nth == end->calls[call] && end->act.call == call) {
        end->act.fn(end->act.end);
    }
    return !end->dropped;
}

/* ---- its memory ---- */

static struct bps_guarded *memory_of(struct bps_end *end, unsigned index)
{
    struct bps_guarded *all[] = {&end->headers, &end->payloads, &end->answers, &end->room, &end->places};
    return index < sizeof all / sizeof *all ? all[index] : NULL;
}

/* From now on a transport that touches any of it ends the test. */
static void forbid_memory(struct bps_end *end)
{
    struct bps_guarded *memory;
    for (unsigned i = 0; (memory = memory_of(end, i)) != NULL; i++) {
        bps_guarded_forbid(memory);
    }
}

/* An odd number, so that payloads lie at all alignments. */
static size_t step_of(const struct bps_stream *stream)
{
    return (size_t)stream->largest | 1;
}

void bps_end_begin(struct bps_end *end)
{
    struct bps_check *check = end->check = end->side->check;
    size_t out = BPS_END_SLOTS * step_of(&end->out), in = step_of(&end->in);
    end->slots = BPS_END_SLOTS;
    end->open_for = UINT32_MAX;
    end->random = end->out.seed;
    end->headers =
        bps_guarded_new(check, "a header", sizeof(end->slot) / sizeof *end->slot * BPS_HEADER_BYTES, BPS_GUARDED_BACK);
    end->payloads = bps_guarded_new(check, "a payload", out, BPS_GUARDED_BACK);
    end->answers = bps_guarded_new(check, "the place of an answer", out, BPS_GUARDED_BACK);
    end->room = bps_guarded_new(check, "memory that place has lent", in + 2 * BPS_END_MARGIN, BPS_GUARDED_BACK);
    end->places = bps_guarded_new(check, "memory that open has lent", BPS_PLACES_LIMIT * in, BPS_GUARDED_BACK);
    bps_end_sink(end);
}

/* The memory becomes that of a sealed file, which other processes can map. */
static struct bps_region share(struct bps_check *check, const struct bps_guarded *memory)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct bps_region region = {.memory = memory->map + page, .bytes = memory->mapped - 2 * page};
    region.fd = memfd_create("byteps plugin check", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    bool there = region.fd >= 0 && ftruncate(region.fd, (off_t)region.bytes) == 0 &&
                 fcntl(region.fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0 &&
                 mmap(region.memory, region.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, region.fd, 0) ==
                     region.memory;
    BPS_CHECK(check, there, "out of memory for regions");
    return region;
}

void bps_end_attach(struct bps_end *end)
{
    const struct bps_guarded *memory[] = {&end->payloads, &end->answers, &end->places};
    struct bps_side *side = end->side;
    if (side->ops->attach == NULL) {
        return;
    }
    for (unsigned i = 0; i < sizeof memory / sizeof *memory; i++) {
        struct bps_report report = {""};
        end->regions[i] = share(end->check, memory[i]);
        bps_status status = side->ops->attach(side->instance->self, &end->regions[i], &report);
        BPS_CHECK(end->check, status == BPS_OK, "attach returns %d (%s): %s", status, bps_strerror(status),
                  report.text);
        end->attached = i + 1;
    }
}

void bps_end_free(struct bps_end *end)
{
    if (end->side->lending == end) {
        end->side->lending = NULL;
    }
    struct bps_guarded *memory;
    bps_end_drop(end);
    for (unsigned i = 0; i < end->attached; i++) {
        end->side->ops->detach(end->side->instance->self, &end->regions[i]);
        close(end->regions[i].fd);
    }
    for (unsigned i = 0; (memory = memory_of(end, i)) != NULL; i++) {
        bps_guarded_free(memory);
    }
}

uint8_t *bps_end_place(const struct bps_end *end, uint32_t place)
{
    return end->places.at + place * step_of(&end->in);
}

/* A payload ends where its slot does: behind that of the last one nobody may read. */
static uint8_t *slot_memory(const struct bps_guarded *memory, const struct bps_stream *stream, size_t slot,
                            uint32_t bytes)
{
    return memory->at + (slot + 1) * step_of(stream) - bytes;
}

static uint8_t *slot_answer(const struct bps_end *end, size_t slot)
{
    uint32_t index = end->slot[slot].index;
    const struct bps_guarded *memory = index % 2 != 0 ? &end->payloads : &end->answers;
    return slot_memory(memory, &end->out, slot, bps_stream_bytes(&end->out, index));
}

/* ---- what the core does ---- */

void bps_end_drop(struct bps_end *end)
{
    struct bps_channel *channel = end->channel;
    if (channel == NULL) {
        return;
    }
    end->channel = NULL;
    end->dropped = true;
    end->side->ops->drop(channel);
    forbid_memory(end);
}

void bps_end_finish(struct bps_end *end)
{
    if (end->channel != NULL) {
        const char *outer = end->inside;
        end->unasked = !end->finished ? end->wants : end->unasked;
        end->finished = true;
        end->inside = "finish";
        end->side->ops->finish(end->channel);
        end->inside = outer;
    }
}

void bps_end_kick(struct bps_end *end)
{
    if (end->channel != NULL) {
        const char *outer = end->inside;
        end->inside = "kick";
        end->wants = true;
        end->side->ops->kick(end->channel);
        end->inside = outer;
    }
}

/* ---- sending ---- */

/* The last slot first: beyond its end there is nothing. */
static size_t free_slot(const struct bps_end *end, size_t from)
{
    uint32_t used = 0;
    size_t found = SIZE_MAX;
    for (size_t i = from; i < from + BPS_END_SLOTS; i++) {
        used += end->slot[i].used;
        found = end->slot[i].used ? found : i;
    }
    return used < end->slots ? found : SIZE_MAX;
}

static uint8_t *slot_header(const struct bps_end *end, size_t slot)
{
    return end->headers.at + slot * BPS_HEADER_BYTES;
}

static bps_status send_frame(struct bps_end *end, struct bps_frame *out)
{
    size_t slot = free_slot(end, 0);
    if (slot == SIZE_MAX) {
        return BPS_AGAIN;
    }
    uint32_t index = end->handed++, bytes = bps_stream_bytes(&end->out, index);
    uint8_t *payload = slot_memory(&end->payloads, &end->out, slot, bytes);
    end->slot[slot] = (struct bps_end_slot){.used = true, .index = index};
    bps_stream_header(&end->out, index, BPS_STREAM_FRAME, slot_header(end, slot));
    memcpy(payload, bps_stream_payload(end->check, &end->out, index), bytes);
    *out = (struct bps_frame){.header = slot_header(end, slot),
                              .payload = bytes > 0 ? payload : NULL,
                              .bytes = bytes,
                              .cookie = &end->slot[slot],
                              .answer = bps_stream_answers(&end->out, index) ? slot_answer(end, slot) : NULL};
    return BPS_OK;
}

/* Where the memory is not mapped, in two parts, the second one first. */
static bps_status write_answer(struct bps_end *end, const struct bps_end_loan *loan)
{
    const struct bps_transport_ops *ops = end->side->ops;
    const uint8_t *expected = bps_stream_payload(end->check, &end->in, loan->index);
    uint32_t bytes = loan->loan->bytes, half = bytes / 2;
    uint8_t *memory = loan->loan->answer != NULL ? loan->loan->answer : malloc(bytes);
    bps_status status = BPS_OK;
    BPS_CHECK(end->check, memory != NULL, "out of memory for an answer");
    if (loan->loan->answer == NULL) {
        status = ops->loan_read(end->channel, loan->loan, 0, memory, bytes);
    }
    const void *data = loan->loan->answer != NULL ? loan->loan->data : memory;
    BPS_CHECK(end->check, status != BPS_OK || memcmp(data, expected, bytes) == 0,
              "the payload of frame %u, %u bytes that are lent, is not what was sent, at %s", loan->index, bytes,
              end->name);
    for (uint32_t i = 0; i < bytes && status == BPS_OK; i++) {
        memory[i] = bps_stream_answer(expected[i]);
    }
    if (loan->loan->answer == NULL) {
        status =
            status == BPS_OK ? ops->loan_write(end->channel, loan->loan, half, memory + half, bytes - half) : status;
        status = status == BPS_OK ? ops->loan_write(end->channel, loan->loan, 0, memory, half) : status;
        free(memory);
    }
    BPS_CHECK(end->check, status == BPS_OK || end->may_close, "a loan cannot be read or written: %d (%s), at %s",
              status, bps_strerror(status), end->name);
    return status;
}

static bps_status return_loan(struct bps_end *end, struct bps_frame *out)
{
    size_t slot = free_slot(end, BPS_END_SLOTS), which = bps_end_draw(end) % end->loans;
    const struct bps_end_loan loan = end->loan[which];
    if (slot == SIZE_MAX || write_answer(end, &loan) != BPS_OK) {
        return BPS_AGAIN;
    }
    end->loan[which] = end->loan[--end->loans];
    end->slot[slot] = (struct bps_end_slot){.used = true, .index = loan.index};
    end->returning++;
    end->returned++;
    bps_stream_header(&end->in, loan.index, BPS_STREAM_RETURN, slot_header(end, slot));
    *out = (struct bps_frame){.header = slot_header(end, slot), .cookie = &end->slot[slot], .returns = loan.loan};
    return BPS_OK;
}

static bps_status next(struct bps_end *end, struct bps_frame *out)
{
    if (!bps_end_enter(end, BPS_CALL_NEXT)) {
        return BPS_AGAIN;
    }
    if (end->again && bps_end_draw(end) % 4 == 0) {
        bps_end_kick(end);
        return BPS_AGAIN;
    }
    bool has_frame = end->handed < end->out.frames && end->handed < end->open_for;
    if (end->loans > 0 && (!has_frame || bps_end_draw(end) % 2 == 0)) {
        return return_loan(end, out);
    }
    return has_frame ? send_frame(end, out) : BPS_AGAIN;
}

static bps_status on_next(void *user, struct bps_frame *out)
{
    struct bps_end *end = user;
    size_t size = out->size;
    end->wants = false;
    BPS_CHECK(end->check, size >= BPS_LEAST(bps_frame), "`size` of the frame for `next` is %zu; expected %zu, at %s",
              size, sizeof *out, end->name);
    struct bps_frame own;
    bps_status status = next(end, &own);
    own.size = size;
    if (status == BPS_OK) {
        memcpy(out, &own, size < sizeof own ? size : sizeof own);
    }
    end->wants = end->wants || status == BPS_OK;
    end->unasked = end->unasked && end->wants;
    return status;
}

/* There may be more to send. A channel that was finished asks by itself. */
static void ask(struct bps_end *end)
{
    if (!end->finished) {
        bps_end_kick(end);
    }
}

/* What is not needed any longer may become anything; but an answer may have come with it. */
static void spoil(struct bps_end *end, size_t slot)
{
    uint32_t index = end->slot[slot].index, bytes = bps_stream_bytes(&end->out, index);
    memset(slot_header(end, slot), 0xee, BPS_HEADER_BYTES);
    if (slot < BPS_END_SLOTS && !bps_stream_answers(&end->out, index)) {
        memset(slot_memory(&end->payloads, &end->out, slot, bytes), 0xee, bytes);
    }
}

static void on_sent(void *user, void *cookie)
{
    struct bps_end *end = user;
    size_t slot = 0;
    while (slot < 2 * BPS_END_SLOTS && (cookie != &end->slot[slot] || !end->slot[slot].used)) {
        slot++;
    }
    bool known = slot < 2 * BPS_END_SLOTS && !end->dropped && end->closed == 0;
    if (known) {
        spoil(end, slot);
        end->slot[slot].used = false;
        end->sent += slot < BPS_END_SLOTS;
        end->returning -= slot >= BPS_END_SLOTS;
        end->came_back = (uint32_t)slot + 1;
    }
    if (bps_end_enter(end, BPS_CALL_SENT)) {
        BPS_CHECK(end->check, known, "sent is called with a cookie of no frame that is under way, at %s", end->name);
        ask(end);
    }
}

/* The loan of a frame is back: with the answer where the frame has said, and just after `sent`. */
void bps_end_came_back(struct bps_end *end, uint32_t index)
{
    size_t slot = end->came_back - 1u;
    BPS_CHECK(end->check, end->came_back > 0 && slot < BPS_END_SLOTS && end->slot[slot].index == index,
              "sent was not called just before the header of the frame that returns the loan of frame %u, at %s", index,
              end->name);
    uint32_t bytes = bps_stream_bytes(&end->out, index), same = 0;
    const uint8_t *payload = bps_stream_payload(end->check, &end->out, index), *answer = slot_answer(end, slot);
    while (same < bytes && answer[same] == bps_stream_answer(payload[same])) {
        same++;
    }
    BPS_CHECK(end->check, same == bytes, "byte %u of %u of the answer to frame %u is not what was written, at %s", same,
              bytes, index, end->name);
    end->came_back = 0;
    end->answered++;
}

/* ---- beginning and end ---- */

static void on_connected(void *user)
{
    struct bps_end *end = user;
    BPS_CHECK(end->check, !end->connected, "connected is called twice, at %s", end->name);
    if (bps_end_enter(end, BPS_CALL_CONNECTED)) {
        end->connected = true;
        ask(end);
    }
}

/* Loans are there until this returns. */
static void read_loans(const struct bps_end *end)
{
    for (uint32_t i = 0; i < end->loans; i++) {
        const struct bps_end_loan *loan = &end->loan[i];
        const uint8_t *expected = bps_stream_payload(end->check, &end->in, loan->index);
        BPS_CHECK(end->check, loan->loan->data == NULL || memcmp(loan->loan->data, expected, loan->loan->bytes) == 0,
                  "the payload of frame %u, which is lent, has changed, at %s", loan->index, end->name);
    }
}

static void on_closed(void *user, bps_status status, const char *text)
{
    struct bps_end *end = user;
    if (end->closed == 0 && !end->dropped) {
        read_loans(end);
        end->channel = NULL; /* nothing may be called with it from here */
    }
    bps_end_enter(end, BPS_CALL_CLOSED);
    end->closed++;
    end->status = status;
    snprintf(end->text, sizeof end->text, "%s", text != NULL ? text : "");
    BPS_CHECK(end->check, status <= 0, "closed is called with status %d; allowed are BPS_OK and BPS_ERR_*, at %s",
              status, end->name);
    BPS_CHECK(end->check, end->text[0] != '\0', "closed is called without a text, at %s", end->name);
    BPS_CHECK(end->check, end->may_close || end->finished, "closed is called with %d (%s) and '%s', at %s", status,
              bps_strerror(status), end->text, end->name);
    forbid_memory(end);
}

const struct bps_channel_events bps_end_events = {
    .connected = on_connected,
    .header = bps_end_header,
    .next = on_next,
    .sent = on_sent,
    .closed = on_closed,
    .placed = bps_end_placed,
};

/* ---- how far it is ---- */

bool bps_end_is_complete(const struct bps_end *end)
{
    return end->handed == end->out.frames && end->sent == end->handed && end->received == end->in.frames &&
           end->loans == 0 && end->returning == 0;
}

void bps_end_tell(const struct bps_end *end, char *text, size_t n)
{
    snprintf(text, n, "%s: %s, `next` has given %u of %u frames, `sent` was called for %u, %u of %u have come",
             end->name,
             end->closed > 0   ? "closed"
             : end->dropped    ? "dropped"
             : !end->connected ? "not connected"
             : end->finished   ? "finishing"
                               : "connected",
             end->handed, end->out.frames, end->sent, end->received, end->in.frames);
}
