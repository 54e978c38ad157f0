/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slice.c - the bytes of contributions as they come: they land in a block, or are added to what is there.
 *
 * `landed` is how far from the front of the slice some contribution has come. Bytes of any contribution below
 * it are added to what is there, bytes beyond it are the first and land as they are. Each contribution comes
 * in order from the front, so none can leave a gap. One that the transport fetches into a block of its own
 * comes at once, when it is whole.
 */
#include <string.h>

#include "sum/round.h"

static struct bps_sum_slice *cursor_slice(const struct bps_sum_cursor *cursor)
{
    return &cursor->round->slice[cursor->slice];
}

/* Bytes of the accumulator that stand for `bytes` on the wire. */
static size_t widened(const struct bps_round *round, size_t bytes)
{
    return bytes / bps_element(round) * bps_dtype_size(round->kernels.accumulator);
}

size_t bps_slice_room(const struct bps_sum_slice *slice)
{
    /* The sum of parts is made at once, without an accumulator. */
    return slice->round->part != NULL ? slice->bytes : widened(slice->round, slice->bytes);
}

/* Where the block is noted that the bytes of this cursor go to: the sum, or the contribution's own. */
static void **block_entry(const struct bps_sum_cursor *cursor)
{
    struct bps_sum_slice *slice = cursor_slice(cursor);
    return cursor->round->part != NULL ? &bps_parts(slice)[cursor->slot].block : &slice->block;
}

/* NULL: no memory. */
static char *block_of(const struct bps_sum_cursor *cursor)
{
    void **block = block_entry(cursor);
    if (*block == NULL) {
        *block = bps_pool_get(&cursor->sum->pool, bps_slice_room(cursor_slice(cursor)));
    }
    return *block;
}

void *bps_sum_place(struct bps_sum_cursor *cursor, uint32_t offset, uint32_t *bytes)
{
    struct bps_round *round = cursor->round;
    if (round == NULL || round->failure != NULL) {
        return NULL;
    }
    bool own = round->part != NULL;
    bool here =
        own ? !cursor->hollow : cursor_slice(cursor)->landed == offset && bps_is_plain(round, cursor->scale);
    if (!here) {
        return NULL;
    }
    char *block = block_of(cursor);
    *bytes = cursor->bytes - offset;
    return block == NULL ? NULL : block + offset;
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
        round->kernels.first(place, data, bytes / bps_element(round), scale);
    }
}

/* Adds what others have reached before, lands the rest. */
static void add(const struct bps_sum_cursor *cursor, char *block, uint32_t offset, const char *data,
                uint32_t bytes)
{
    struct bps_round *round = cursor->round;
    struct bps_sum_slice *slice = cursor_slice(cursor);
    uint32_t known = slice->landed > offset ? slice->landed - offset : 0;
    known = known < bytes ? known : bytes;
    if (known > 0) {
        round->kernels.fold(block + widened(round, offset), data, known / bps_element(round), cursor->scale);
    }
    if (known < bytes) {
        char *place = block + widened(round, offset + known);
        land(round, place, data + known, bytes - known, cursor->scale);
        slice->landed = offset + bytes;
    }
}

static void finish_cursor(struct bps_sum_cursor *cursor)
{
    struct bps_round *round = cursor->round;
    struct bps_sum_slice *slice = cursor_slice(cursor);
    cursor->round = NULL;
    if (round->failure == NULL) {
        bps_slice_arrived(slice, cursor->rank, cursor->grouped);
    }
    bps_round_release(round);
}

/* The last contribution, if it is whole and summed at once, need not be copied to a block. */
static bool borrow(const struct bps_sum_cursor *cursor, uint32_t offset, const void *data, uint32_t bytes)
{
    const struct bps_sum_slice *slice = cursor_slice(cursor);
    struct bps_part *part = slice->round->part != NULL ? &bps_parts(slice)[cursor->slot] : NULL;
    if (part == NULL || part->block != NULL || offset > 0 || bytes < cursor->bytes ||
        slice->arrived + 1 < slice->round->sum->members || !bps_slice_is_quick(slice)) {
        return false;
    }
    part->block = (void *)(uintptr_t)data;
    part->borrowed = true;
    return true;
}

uint32_t bps_sum_take(struct bps_sum_cursor *cursor, uint32_t offset, const void *data, uint32_t bytes)
{
    struct bps_round *round = cursor->round;
    if (round == NULL) {
        return bytes;
    }
    bytes -= bytes % (uint32_t)bps_element(round);
    bool wanted = round->failure == NULL && !cursor->hollow && !borrow(cursor, offset, data, bytes);
    char *block = wanted ? block_of(cursor) : NULL;
    if (block == NULL && wanted) {
        bps_round_fail_nomem(round);
    }
    if (block != NULL && round->part == NULL) {
        add(cursor, block, offset, data, bytes);
    } else if (block != NULL && block + offset != data) {
        memcpy(block + offset, data, bytes);
    }
    if (offset + bytes == cursor->bytes) {
        finish_cursor(cursor);
    }
    return bytes;
}

bps_status bps_sum_lend(struct bps_sum_cursor *cursor, struct bps_loan *loan)
{
    struct bps_round *round = cursor->round;
    if (round == NULL || round->failure != NULL || !bps_aggregates(round->sum)) {
        if (round != NULL && cursor->bytes == 0) {
            finish_cursor(cursor); /* there are no bytes to wait for */
        }
        return BPS_AGAIN;
    }
    if (loan->bytes != cursor_slice(cursor)->bytes) {
        return BPS_ERR_PROTOCOL;
    }
    bps_parts(cursor_slice(cursor))[cursor->slot].loan = loan;
    finish_cursor(cursor);
    return BPS_OK;
}

void *bps_sum_open(struct bps_sum_cursor *cursor, struct bps_sum_cursor *opened)
{
    const struct bps_round *round = cursor->round;
    if (round == NULL || round->failure != NULL || cursor->hollow) {
        return NULL;
    }
    void *block = bps_pool_get(&cursor->sum->pool, cursor->bytes);
    if (block != NULL) {
        *opened = *cursor;
        opened->block = block;
        cursor->round = NULL;
    }
    return block;
}

/* The cursor's block becomes the one that its bytes go to, unless there is one, or the sum is wider. */
static bool adopt(const struct bps_sum_cursor *cursor)
{
    const struct bps_round *round = cursor->round;
    bool plain = round->part != NULL || bps_is_plain(round, cursor->scale);
    void **entry = block_entry(cursor);
    if (round->failure != NULL || !plain || *entry != NULL) {
        return false;
    }
    *entry = cursor->block;
    return true;
}

void bps_sum_placed(struct bps_sum_cursor *opened)
{
    struct bps_pool *pool = &opened->sum->pool;
    void *block = opened->block;
    uint32_t bytes = opened->bytes;
    bool adopted = adopt(opened);
    opened->block = NULL;
    bps_sum_take(opened, 0, block, bytes);
    if (!adopted) {
        bps_pool_put(pool, block, bytes);
    }
}

void bps_sum_abandon(struct bps_sum_cursor *cursor)
{
    struct bps_round *round = cursor->round;
    if (cursor->block != NULL) {
        bps_pool_put(&cursor->sum->pool, cursor->block, cursor->bytes);
        cursor->block = NULL;
    }
    if (round != NULL) {
        cursor->round = NULL;
        bps_round_release(round);
    }
}

void bps_slice_arrived(struct bps_sum_slice *slice, uint32_t rank, bool grouped)
{
    const struct bps_sum *sum = slice->round->sum;
    uint64_t *arrived = bps_arrived(slice->round, slice->index);
    uint32_t before = slice->arrived, i = rank;
    do {
        slice->arrived += !bps_bit(arrived, i);
        bps_set_bit(arrived, i);
        i = grouped ? sum->mate[i] : rank;
    } while (i != rank);
    if (slice->arrived == sum->members && before < sum->members) {
        bps_slice_complete(slice);
    }
}
