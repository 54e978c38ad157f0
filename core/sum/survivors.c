/* SPDX-License-Identifier: Apache-2.0 */
/*
 * survivors.c - rounds of an elastic job, of which a worker is lost or has left.
 *
 * A slice that lacks it has no sum; but a worker that is there may have its result, from a shard that is lost as well,
 * and tells so (held.c). Nobody fails, therefore, before all have come. Then the result that one has is that of all,
 * and where nobody has it the round fails for all alike. Who has left begins nothing any more, but ends what it has
 * begun.
 */
#include "sum/round.h"

/* Nothing more comes from it. */
static bool is_missing(const struct bps_round *round, uint32_t rank)
{
    const struct bps_sum *sum = round->sum;
    return bps_bit(sum->gone_bits, rank) || (bps_bit(sum->left_bits, rank) && !bps_bit(round->spoke_bits, rank));
}

static bool all_have_come(const struct bps_round *round, bool *any_missing)
{
    bool all = true;
    *any_missing = false;
    for (uint32_t i = 0; i < round->ranks->n; i++) {
        uint32_t rank = round->ranks->rank[i];
        bool missing = is_missing(round, rank);
        *any_missing |= missing;
        all &= missing || bps_bit(round->spoke_bits, rank);
    }
    return all;
}

/* 1 + a worker that is there and has the result; 0: none. */
static uint32_t find_holder(const struct bps_sum_slice *slice)
{
    const struct bps_round *round = slice->round;
    for (uint32_t i = 0; i < round->ranks->n; i++) {
        uint32_t rank = round->ranks->rank[i];
        if (bps_slice_is_held(slice, rank) && !is_missing(round, rank)) {
            return rank + 1;
        }
    }
    return 0;
}

/* The one that was to tell the result is lost. */
static void ask_another(struct bps_sum_slice *slice)
{
    struct bps_round *round = slice->round;
    const struct bps_sum_config *config = &round->sum->config;
    uint32_t lost = slice->holder - 1;
    bool ended = slice->arrived == round->ranks->n && !slice->wanted;
    if (ended || slice->holder == 0 || !is_missing(round, lost)) {
        return;
    }
    slice->holder = find_holder(slice);
    if (slice->holder == 0) {
        bps_round_fail_without(round, lost);
    } else if (slice->wanted) {
        config->events->want(config->owner, slice->holder - 1, slice);
    }
}

/* Of a slice whose result somebody has, nothing more is needed. */
static void slice_do_without(struct bps_sum_slice *slice)
{
    struct bps_round *round = slice->round;
    for (uint32_t i = 0; i < round->ranks->n && round->base.failure == NULL; i++) {
        uint32_t rank = round->ranks->rank[i];
        if (!is_missing(round, rank) || bps_bit(bps_arrived(round, slice->index), rank)) {
            continue;
        }
        if (slice->holder == 0 && !slice->ended) {
            bps_round_fail_without(round, rank);
        } else {
            bps_slice_arrived(slice, rank, false);
        }
    }
}

void bps_round_go_on(struct bps_round *round)
{
    bool missing;
    if (!round->sum->config.elastic || round->base.failure != NULL || !all_have_come(round, &missing) || !missing) {
        return;
    }
    bps_round_hold(round);
    for (uint32_t i = 0; i < round->slices && round->base.failure == NULL; i++) {
        ask_another(&round->slice[i]);
        if (round->base.failure == NULL) {
            slice_do_without(&round->slice[i]);
        }
    }
    round->base.holds--; /* not collected: the caller still has it */
}
