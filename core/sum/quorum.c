/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quorum.c - rounds that end without the slowest workers (backup workers: Chen et al., "Revisiting Distributed
 * Synchronous SGD", 2016).
 *
 * Each slice has its result when all but config.backups have contributed. What comes later is dropped, and its sender
 * gets the same result. So results stay until all have come; where too much stays, further rounds wait for all.
 */
#include <string.h>

#include "base/assert.h"
#include "sum/round.h"

uint32_t bps_quorum(const struct bps_sum *sum, const struct bps_ranks *ranks, const struct bps_contribution *c)
{
    const struct bps_spec *spec = &c->spec;
    bool may = bps_sums(&spec->roles) && spec->bytes > 0 && c->id.tensor < BPS_ID_UNNAMED && !bps_aggregates(sum) &&
               sum->backlog < sum->config.held;
    uint32_t without = may ? sum->config.backups : 0;
    return without < ranks->n ? ranks->n - without : 1;
}

void bps_quorum_note(struct bps_sum_slice *slice)
{
    const struct bps_round *round = slice->round;
    slice->ended = true;
    if (slice->may_end_early) {
        memcpy(bps_counted(round, slice->index), bps_arrived(round, slice->index),
               round->sum->words * sizeof(uint64_t));
        round->sum->backlog += slice->block.bytes;
    }
}

void bps_quorum_forget(const struct bps_sum_slice *slice)
{
    if (slice->may_end_early && slice->ended && slice->block.data != NULL) {
        bps_assert(slice->round->sum->backlog >= slice->block.bytes);
        slice->round->sum->backlog -= slice->block.bytes;
    }
}

bool bps_sum_is_late(const struct bps_sum_slice *slice, uint32_t rank)
{
    bps_assert(slice->ended);
    return slice->may_end_early && !bps_bit(bps_counted(slice->round, slice->index), rank);
}

struct bps_last_factor bps_quorum_factor(const struct bps_sum_slice *slice)
{
    const struct bps_round *round = slice->round;
    const struct bps_spec *spec = &round->spec;
    if (slice->arrived == round->ranks->n) {
        return round->last;
    }
    bps_assert(slice->arrived >= round->quorum && round->share > 0);
    return (struct bps_last_factor){spec->postscale / round->share, spec->op == BPS_AVERAGE ? slice->arrived : 1};
}

bool bps_slice_is_over(struct bps_sum_slice *slice)
{
    struct bps_round *round = slice->round;
    if (slice->undelivered > 0 || slice->arrived < round->ranks->n) {
        return false;
    }
    bps_quorum_forget(slice);
    bps_block_put(round->sum, &slice->block);
    round->unfinished--;
    return true;
}

void bps_round_skip(struct bps_round *round, uint32_t rank)
{
    for (uint32_t i = 0; i < round->slices; i++) {
        struct bps_sum_slice *slice = &round->slice[i];
        if (!bps_bit(bps_arrived(round, i), rank)) {
            bps_set_bit(bps_arrived(round, i), rank);
            slice->arrived++;
            (void)bps_slice_is_over(slice);
        }
    }
}
