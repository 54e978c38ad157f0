/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slice.c - contributions as they come: in pieces, whole in a block that the transport has fetched, or as a
 * loan. What becomes of their bytes is the policy's.
 */
#include "sum/round.h"

#include "base/assert.h"

void *bps_sum_place(struct bps_sink *sink, uint32_t offset, uint32_t *bytes)
{
    struct bps_sum_cursor *cursor = (struct bps_sum_cursor *)sink;
    struct bps_round *round = bps_cursor_round(cursor);
    if (round == NULL || round->base.failure != NULL || cursor->hollow) {
        return NULL;
    }
    size_t room;
    struct bps_block *entry = round->policy->entry(cursor, offset, &room);
    char *block = entry != NULL ? bps_block_get(cursor->sum, entry, room) : NULL;
    *bytes = cursor->bytes - offset;
    return block != NULL ? block + offset : NULL;
}

static void finish_cursor(struct bps_sum_cursor *cursor)
{
    struct bps_round *round = bps_cursor_round(cursor);
    struct bps_sum_slice *slice = bps_cursor_slice(cursor);
    cursor->round = NULL;
    bps_assert(round->base.holds > 0);
    bps_check(bps_round_check(round));
    if (round->base.failure == NULL) {
        bps_slice_arrived(slice, cursor->rank, cursor->for_group);
    }
    bps_round_release(round);
}

uint32_t bps_sum_take(struct bps_sink *sink, uint32_t offset, const void *data, uint32_t bytes)
{
    bps_assert(offset <= ((struct bps_sum_cursor *)sink)->bytes);
    bps_assert(bytes <= ((struct bps_sum_cursor *)sink)->bytes - offset);
    struct bps_sum_cursor *cursor = (struct bps_sum_cursor *)sink;
    struct bps_round *round = bps_cursor_round(cursor);
    if (round == NULL) {
        return bytes;
    }
    bytes -= bytes % round->element;
    if (round->base.failure == NULL && !cursor->hollow) {
        bps_status status = round->policy->take(cursor, offset, data, bytes);
        if (status != BPS_OK) {
            bps_round_fail_here(round, status, NULL);
        }
    }
    if (offset + bytes == cursor->bytes) {
        finish_cursor(cursor);
    }
    return bytes;
}

bps_status bps_sum_lend(struct bps_sink *sink, struct bps_loan *loan)
{
    struct bps_sum_cursor *cursor = (struct bps_sum_cursor *)sink;
    struct bps_round *round = bps_cursor_round(cursor);
    if (round == NULL || round->base.failure != NULL || !bps_aggregates(round->sum)) {
        if (round != NULL && cursor->bytes == 0) {
            finish_cursor(cursor); /* there are no bytes to wait for */
        }
        return BPS_AGAIN;
    }
    if (loan->bytes != bps_cursor_slice(cursor)->bytes) {
        return BPS_ERR_PROTOCOL;
    }
    bps_parts(bps_cursor_slice(cursor))[cursor->slot] = (struct bps_part){.loan = loan, .scale = cursor->scale};
    finish_cursor(cursor);
    return BPS_OK;
}

void *bps_sum_open(struct bps_sum_cursor *cursor, struct bps_sum_cursor *opened)
{
    const struct bps_round_base *round = cursor->round;
    if (round == NULL || round->failure != NULL || cursor->hollow) {
        return NULL;
    }
    void *block = bps_pool_get(cursor->sum->pool, cursor->bytes);
    if (block != NULL) {
        *opened = *cursor;
        opened->block = block;
        cursor->round = NULL;
    }
    return block;
}

/* Where a round notes a block that may become its own. */
static struct bps_block *placed_entry(const struct bps_sum_cursor *opened)
{
    const struct bps_round *round = bps_cursor_round(opened);
    size_t room;
    bool sums = opened->sink.take == bps_sum_take && round->base.failure == NULL;
    return sums ? round->policy->entry(opened, 0, &room) : NULL;
}

/* The block becomes the one that its bytes go to, unless there is one, or they may not stay as they are. */
void bps_sum_placed(struct bps_sum_cursor *opened)
{
    bps_assert(opened->block != NULL && opened->round != NULL);
    struct bps_pool *pool = opened->sum->pool;
    void *block = opened->block;
    uint32_t bytes = opened->bytes;
    struct bps_block *entry = placed_entry(opened);
    bool adopted = entry != NULL && entry->data == NULL;
    if (adopted) {
        *entry = (struct bps_block){block, bytes};
    }
    opened->block = NULL;
    opened->sink.take(&opened->sink, 0, block, bytes);
    if (!adopted) {
        bps_pool_put(pool, block, bytes);
    }
}

void bps_slice_arrived(struct bps_sum_slice *slice, uint32_t rank, bool for_group)
{
    bps_assert(slice->round->base.failure == NULL);
    bps_assert(bps_bit(slice->round->spoke_bits, rank) || bps_is_absent(slice->round->sum, rank));
    const struct bps_sum *sum = slice->round->sum;
    const struct bps_ranks *ranks = slice->round->ranks;
    uint64_t *arrived = bps_arrived(slice->round, slice->index);
    uint32_t before = slice->arrived, i = rank;
    bps_sum_trace(slice, BPS_TRACE_RECEIVE, rank, true, BPS_TRACE_NOW);
    if (before == 0) {
        bps_sum_trace(slice, BPS_TRACE_GATHER, 0, false, BPS_TRACE_ALSO);
    }
    do {
        slice->arrived += !bps_bit(arrived, i) && (i == rank || bps_ranks_has(ranks, i));
        bps_set_bit(arrived, i);
        i = for_group ? sum->mate[i] : rank;
    } while (i != rank);
    if (slice->ended && slice->arrived > before) {
        bps_slice_came_late(slice, rank);
    } else if (slice->arrived >= slice->round->quorum && before < slice->round->quorum) {
        bps_sum_trace(slice, BPS_TRACE_GATHER, 0, true, BPS_TRACE_ALSO);
        bps_slice_complete(slice);
    }
}
