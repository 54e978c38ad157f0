/* SPDX-License-Identifier: Apache-2.0 */
/*
 * accumulate.c - the policy of a sum that is made as bytes come: they land in the slice's block, the
 * accumulator, or are added to what is there.
 *
 * `landed` is how far from the front of the slice some contribution has come. Bytes of any contribution below
 * it are added to what is there, bytes beyond it are the first and land as they are. Each contribution comes
 * in order from the front, so none can leave a gap.
 */
#include <string.h>

#include "sum/round.h"

/* Whether bytes on the wire, scaled like this, are bytes of the accumulator. */
static bool is_plain(const struct bps_round *round, double scale)
{
    return round->spec.op == BPS_WIRE_BROADCAST || (round->kernels.accumulator == round->spec.dtype && scale == 1.0);
}

static size_t room_of(const struct bps_sum_cursor *cursor)
{
    return bps_widened(cursor->round, bps_cursor_slice(cursor)->bytes);
}

static struct bps_block *entry(const struct bps_sum_cursor *cursor, uint32_t offset, size_t *room)
{
    struct bps_sum_slice *slice = bps_cursor_slice(cursor);
    *room = room_of(cursor);
    return slice->landed == offset && is_plain(cursor->round, cursor->scale) ? &slice->block : NULL;
}

/* The first bytes of a place in the slice; nothing to do where the transport has put them there. */
static void land(const struct bps_round *round, char *place, const char *data, uint32_t bytes, double scale)
{
    if (place == data) {
        return;
    }
    if (round->spec.op == BPS_WIRE_BROADCAST) {
        memcpy(place, data, bytes);
    } else {
        round->kernels.first(place, data, bytes / round->element, scale);
    }
}

/* Adds what others have reached before, lands the rest. */
static bps_status take(const struct bps_sum_cursor *cursor, uint32_t offset, const void *data, uint32_t bytes)
{
    const struct bps_round *round = cursor->round;
    struct bps_sum_slice *slice = bps_cursor_slice(cursor);
    char *block = bps_block_get(cursor->sum, &slice->block, room_of(cursor));
    uint32_t known = slice->landed > offset ? slice->landed - offset : 0;
    known = known < bytes ? known : bytes;
    if (block != NULL && known > 0) {
        round->kernels.fold(block + bps_widened(round, offset), data, known / round->element, cursor->scale);
    }
    if (block != NULL && known < bytes) {
        char *place = block + bps_widened(round, offset + known);
        land(round, place, (const char *)data + known, bytes - known, cursor->scale);
        slice->landed = offset + bytes;
    }
    return block != NULL ? BPS_OK : BPS_ERR_NOMEM;
}

static bps_status finish(struct bps_sum_slice *slice, struct bps_report *report)
{
    struct bps_round *round = slice->round;
    uint64_t divisor = round->spec.op == BPS_AVERAGE ? round->sum->config.workers : 1;
    (void)report;
    slice->payload = slice->block.data;
    if (slice->bytes > 0 && round->spec.op != BPS_WIRE_BROADCAST &&
        (divisor != 1 || !is_plain(round, round->spec.postscale))) {
        round->kernels.finish(slice->block.data, slice->block.data, slice->bytes / round->element,
                              round->spec.postscale, divisor);
    }
    return BPS_OK;
}

const struct bps_sum_policy bps_accumulate = {
    .entry = entry,
    .take = take,
    .finish = finish,
};
