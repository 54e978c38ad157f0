/* SPDX-License-Identifier: Apache-2.0 */
/*
 * accumulate.c - the policy of a sum that is made as bytes come: they land in the slice's block, the
 * accumulator, or are added to what is there.
 *
 * `landed` is how far from the front of the slice some contribution has come. Bytes of any contribution below
 * it are added to what is there, bytes beyond it are the first and land as they are. Each contribution comes
 * in order from the front, so none can leave a gap.
 *
 * What has landed as it is owes the scale of its contribution (`owed`): no pass is made for that alone, but the next
 * contribution pays it on the way. Below `settled` nothing is owed.
 */
#include <string.h>

#include "sum/round.h"

#include "base/assert.h"

/* Whether bytes on the wire are bytes of the accumulator, but for their scale. */
static bool accumulate_is_plain(const struct bps_round *round)
{
    return !bps_sums(&round->spec.roles) || round->kernels.accumulator == round->spec.dtype;
}

static size_t room_of(const struct bps_sum_cursor *cursor)
{
    return bps_widened(bps_cursor_round(cursor), bps_cursor_slice(cursor)->bytes);
}

static struct bps_block *accumulate_entry(const struct bps_sum_cursor *cursor, uint32_t offset, size_t *room)
{
    bps_assert(!bps_cursor_round(cursor)->policy->apart);
    struct bps_sum_slice *slice = bps_cursor_slice(cursor);
    *room = room_of(cursor);
    return slice->landed == offset && accumulate_is_plain(bps_cursor_round(cursor)) ? &slice->block : NULL;
}

static char *accumulate_place_of(const struct bps_sum_slice *slice, uint32_t offset)
{
    return (char *)slice->block.data + bps_widened(slice->round, offset);
}

/* Scales what has landed, as nobody adds to it, or what lands next owes another scale. */
static void accumulate_settle(struct bps_sum_slice *slice)
{
    bps_assert(slice->settled <= slice->landed && slice->block.data != NULL);
    const struct bps_round *round = slice->round;
    char *place = accumulate_place_of(slice, slice->settled);
    if (slice->settled < slice->landed && slice->owed != 1.0) {
        round->kernels.first(round->kernels.context, place, place, (slice->landed - slice->settled) / round->element,
                             slice->owed);
    }
    slice->settled = slice->landed;
}

/* The first bytes of a place in the slice; nothing to do where the transport has put them there. */
static void land(const struct bps_sum_cursor *cursor, uint32_t offset, const char *data, uint32_t bytes)
{
    bps_assert(bps_cursor_slice(cursor)->landed == offset);
    bps_assert(bytes % bps_cursor_round(cursor)->element == 0);
    const struct bps_round *round = bps_cursor_round(cursor);
    struct bps_sum_slice *slice = bps_cursor_slice(cursor);
    bool plain = accumulate_is_plain(round);
    double owed = plain && bps_sums(&round->spec.roles) ? cursor->scale : 1.0;
    char *place = accumulate_place_of(slice, offset);
    if (slice->owed != owed) {
        accumulate_settle(slice);
        slice->owed = owed;
    }
    if (!plain) {
        round->kernels.first(round->kernels.context, place, data, bytes / round->element, cursor->scale);
    } else if (place != data) {
        memcpy(place, data, bytes);
    }
    slice->landed = offset + bytes;
}

/* Adds to what has landed. The second contribution to reach a byte scales the first one, too. */
static void accumulate_add(const struct bps_sum_cursor *cursor, uint32_t offset, const char *data, uint32_t bytes)
{
    bps_assert(offset + bytes <= bps_cursor_slice(cursor)->landed);
    bps_assert(bytes % bps_cursor_round(cursor)->element == 0);
    const struct bps_round *round = bps_cursor_round(cursor);
    struct bps_sum_slice *slice = bps_cursor_slice(cursor);
    uint32_t settled = slice->settled > offset ? slice->settled - offset : 0;
    settled = slice->owed == 1.0 || settled > bytes ? bytes : settled;
    if (settled > 0) {
        round->kernels.fold(round->kernels.context, accumulate_place_of(slice, offset), data, settled / round->element,
                            cursor->scale);
    }
    if (settled < bytes) {
        char *place = accumulate_place_of(slice, offset + settled);
        const void *both[] = {place, data + settled};
        const double scales[] = {slice->owed, cursor->scale};
        round->kernels.reduce(round->kernels.context, place, both, scales, 2, (bytes - settled) / round->element, 1.0,
                              1);
    }
    slice->settled = offset + bytes > slice->settled ? offset + bytes : slice->settled;
}

/* Adds what others have reached before, lands the rest. */
static bps_status accumulate_take(const struct bps_sum_cursor *cursor, uint32_t offset, const void *data,
                                  uint32_t bytes)
{
    struct bps_sum_slice *slice = bps_cursor_slice(cursor);
    uint32_t known = slice->landed > offset ? slice->landed - offset : 0;
    known = known < bytes ? known : bytes;
    if (bps_block_get(cursor->sum, &slice->block, room_of(cursor)) == NULL) {
        return BPS_ERR_NOMEM;
    }
    BPS_CALLING_KERNEL(bps_cursor_round(cursor)->reducer, "fold", NULL);
    if (known > 0) {
        accumulate_add(cursor, offset, data, known);
    }
    if (known < bytes) {
        land(cursor, offset + known, (const char *)data + known, bytes - known);
    }
    return BPS_OK;
}

static bps_status accumulate_finish(struct bps_sum_slice *slice, struct bps_report *report)
{
    const struct bps_round *round = slice->round;
    const struct bps_last_factor *last = &round->last;
    (void)report;
    slice->payload = slice->block.data;
    if (slice->bytes > 0 && bps_sums(&round->spec.roles)) {
        BPS_CALLING_KERNEL(round->reducer, "finish", NULL);
        accumulate_settle(slice);
        if (!accumulate_is_plain(round) || last->scale != 1.0 || last->divisor != 1) {
            round->kernels.finish(round->kernels.context, slice->block.data, slice->block.data,
                                  slice->bytes / round->element, last->scale, last->divisor);
        }
    }
    return BPS_OK;
}

const struct bps_sum_policy bps_accumulate = {
    .entry = accumulate_entry,
    .take = accumulate_take,
    .finish = accumulate_finish,
};
