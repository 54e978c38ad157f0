/* SPDX-License-Identifier: Apache-2.0 */
/* transport_sink.c - the receiving half of an end: where payloads go, and whether all that comes is what was sent. */
#include <string.h>

#include "base/container.h"
#include "base/layout.h"
#include "tools/check/transport_end.h"

enum { MARK = 0xc5 };

static struct bps_end *end_of(struct bps_sink *sink)
{
    return bps_container(sink, struct bps_end, sink);
}

static uint32_t current(const struct bps_end *end)
{
    return end->begun - 1;
}

/* What place has lent is no longer lent when another sink is called. */
static bool enter(struct bps_end *end, enum bps_call call)
{
    struct bps_side *side = end->side;
    if (side->lending != NULL && side->lending != end) {
        side->lending->lent_at = NULL;
    }
    side->lending = end;
    return bps_end_enter(end, call);
}

/* ---- into its own memory ---- */

static uint8_t *own_memory(const struct bps_end *end)
{
    return end->room.at + BPS_END_MARGIN;
}

static void *sink_place(struct bps_sink *sink, uint32_t offset, uint32_t *bytes)
{
    struct bps_end *end = end_of(sink);
    uint32_t left = end->bytes - end->offset;
    if (!enter(end, BPS_CALL_PLACE)) {
        return NULL;
    }
    BPS_CHECK(end->check, offset == end->offset && *bytes > 0 && *bytes <= left,
              "place is called for %u bytes from %u on, of frame %u; expected are at most %u from %u on, at %s", *bytes,
              offset, current(end), left, end->offset, end->name);
    end->asked = true;
    end->lent_at = NULL;
    if (end->taking == BPS_TAKING_TAKEN || (end->taking == BPS_TAKING_MIXED && bps_end_draw(end) % 2 == 0)) {
        return NULL;
    }
    if (end->taking == BPS_TAKING_MIXED) {
        *bytes = 1 + (uint32_t)(bps_end_draw(end) % *bytes);
    }
    end->lent_at = own_memory(end) + offset;
    end->lent_bytes = *bytes;
    memset(end->lent_at + *bytes, MARK, BPS_END_MARGIN);
    return end->lent_at;
}

/* ---- piece by piece ---- */

static void check_piece(const struct bps_end *end, uint32_t offset, const uint8_t *data, uint32_t bytes)
{
    struct bps_check *check = end->check;
    BPS_CHECK(check, offset == end->offset && bytes <= end->bytes - end->offset,
              "take is called with %u bytes from %u on, of frame %u; expected are at most %u from %u on, at %s", bytes,
              offset, current(end), end->bytes - end->offset, end->offset, end->name);
    bool own = data >= end->room.at && data < end->room.at + end->room.bytes;
    BPS_CHECK(
        check, !own || data == end->lent_at,
        "take is called with an address that place has not lent for these bytes, or another sink was called since, "
        "at %s",
        end->name);
    BPS_CHECK(check, !own || bytes <= end->lent_bytes, "take is called with %u bytes where place has lent %u, at %s",
              bytes, end->lent_bytes, end->name);
    for (uint32_t i = 0; own && i < BPS_END_MARGIN; i++) {
        BPS_CHECK(check, end->lent_at[end->lent_bytes + i] == MARK,
                  "it has written beyond the %u bytes that place has lent, at %s", end->lent_bytes, end->name);
    }
    const uint8_t *expected = bps_stream_payload(check, &end->in, current(end)) + offset;
    BPS_CHECK(check, memcmp(data, expected, bytes) == 0,
              "frame %u of %u bytes: the %u bytes from %u on are not what was sent, at %s", current(end), end->bytes,
              bytes, offset, end->name);
}

static uint32_t sink_take(struct bps_sink *sink, uint32_t offset, const void *data, uint32_t bytes)
{
    struct bps_end *end = end_of(sink);
    if (!enter(end, BPS_CALL_TAKE)) {
        return bytes;
    }
    check_piece(end, offset, data, bytes);
    bool last = offset + bytes == end->bytes;
    uint32_t taken = last ? bytes : bytes - (offset + bytes) % end->grain;
    end->asked = true;
    end->lent_at = NULL;
    end->offset += taken;
    end->received += last;
    return taken;
}

/* ---- loans ---- */

static bps_status sink_lend(struct bps_sink *sink, struct bps_loan *loan)
{
    struct bps_end *end = end_of(sink);
    if (!enter(end, BPS_CALL_LEND)) {
        return BPS_AGAIN;
    }
    BPS_CHECK(end->check, !end->asked && end->offset == 0, "lend is called after place or take, at %s", end->name);
    BPS_CHECK(end->check, loan->size >= BPS_LEAST(bps_loan), "`size` of a loan is %zu; expected %zu, at %s", loan->size,
              sizeof *loan, end->name);
    BPS_CHECK(end->check, loan->bytes == end->bytes, "a loan has %u bytes, its frame %u, at %s", loan->bytes,
              end->bytes, end->name);
    BPS_CHECK(end->check, (loan->data == NULL) == (loan->answer == NULL),
              "of `data` and `answer` of a loan one is NULL, at %s", end->name);
    end->asked = true;
    if (end->lending == BPS_LENDING_REFUSED || end->loans == BPS_END_SLOTS || bps_end_draw(end) % 4 == 0) {
        return BPS_AGAIN;
    }
    end->loan[end->loans++] = (struct bps_end_loan){loan, current(end)};
    end->offset = end->bytes;
    end->lent++;
    end->received++;
    bps_end_kick(end);
    return BPS_OK;
}

/* ---- places of whole payloads ---- */

static void *sink_open(struct bps_sink *sink, void **ticket)
{
    struct bps_end *end = end_of(sink);
    uint32_t place = 0;
    if (!enter(end, BPS_CALL_OPEN)) {
        return NULL;
    }
    BPS_CHECK(end->check, !end->asked && end->offset == 0, "open is called after place, take or lend, at %s",
              end->name);
    end->asked = true;
    while (place < BPS_PLACES_LIMIT && end->place[place].used) {
        place++;
    }
    BPS_CHECK(end->check, place < BPS_PLACES_LIMIT, "open is called while %u places are open, at %s", place, end->name);
    if (end->taking == BPS_TAKING_MIXED && bps_end_draw(end) % 4 == 0) {
        return NULL;
    }
    end->place[place].used = true;
    end->place[place].index = current(end);
    end->offset = end->bytes;
    end->opened++;
    *ticket = &end->place[place];
    return bps_end_place(end, place);
}

void bps_end_placed(void *user, void *ticket)
{
    struct bps_end *end = user;
    uint32_t place = 0;
    if (!bps_end_enter(end, BPS_CALL_PLACED)) {
        return;
    }
    while (place < BPS_PLACES_LIMIT && (ticket != &end->place[place] || !end->place[place].used)) {
        place++;
    }
    BPS_CHECK(end->check, place < BPS_PLACES_LIMIT, "placed is called with a ticket of no place that is open, at %s",
              end->name);
    uint32_t index = end->place[place].index, bytes = bps_stream_bytes(&end->in, index);
    BPS_CHECK(
        end->check, memcmp(bps_end_place(end, place), bps_stream_payload(end->check, &end->in, index), bytes) == 0,
        "frame %u of %u bytes is not what was sent in the place that open has lent, at %s", index, bytes, end->name);
    end->place[place].used = false;
    end->received++;
}

/* ---- headers ---- */

void bps_end_sink(struct bps_end *end)
{
    end->sink = (struct bps_sink){.place = sink_place, .take = sink_take};
}

static bool is_expected(const struct bps_end *end, const uint8_t *header)
{
    uint8_t expected[BPS_HEADER_BYTES];
    bps_stream_header(&end->in, end->begun, BPS_STREAM_FRAME, expected);
    return memcmp(header, expected, sizeof expected) == 0;
}

static void check_header(const struct bps_end *end, const uint8_t *header)
{
    BPS_CHECK(end->check, end->offset == end->bytes, "header is called while %u bytes of frame %u are missing, at %s",
              end->bytes - end->offset, current(end), end->name);
    BPS_CHECK(end->check, end->begun < end->in.frames, "header is called for frame %u, of %u that were sent, at %s",
              end->begun, end->in.frames, end->name);
    BPS_CHECK(end->check, is_expected(end, header),
              "the header of frame %u is not what was sent: it says frame %u, %u bytes; expected %u bytes, at %s",
              end->begun, bps_header_index(header), bps_header_bytes(header), bps_stream_bytes(&end->in, end->begun),
              end->name);
}

bps_status bps_end_header(void *user, const uint8_t *header, struct bps_sink **sink)
{
    struct bps_end *end = user;
    if (!bps_end_enter(end, BPS_CALL_HEADER)) {
        return BPS_OK;
    }
    if (bps_header_type(header) == BPS_STREAM_RETURN && bps_header_bytes(header) == 0) {
        bps_end_came_back(end, bps_header_index(header));
        return BPS_OK;
    }
    if (end->mistrusts && !is_expected(end, header)) {
        return BPS_ERR_PROTOCOL;
    }
    check_header(end, header);
    end->begun++;
    end->bytes = bps_header_bytes(header);
    end->offset = 0;
    end->asked = false;
    end->lent_at = NULL;
    end->grain = end->taking == BPS_TAKING_MIXED ? BPS_SINK_GRAIN >> bps_end_draw(end) % 5 : 1;
    end->sink.lend = end->lending != BPS_LENDING_NONE ? sink_lend : NULL;
    end->sink.open = end->opens ? sink_open : NULL;
    end->received += end->bytes == 0;
    *sink = &end->sink;
    return end->begun == end->refuse_header ? BPS_ERR_MISMATCH : BPS_OK;
}
