/* SPDX-License-Identifier: Apache-2.0 */
/* deliver.c - slices that all have contributed to: the result, and who gets it. */
#include "sum/round.h"

/* Bytes of a result that are written to all answers in one go: they stay in the second-level cache meanwhile. */
#define CHUNK (256u << 10)

void bps_sum_record(const struct bps_sum_slice *slice, enum bps_trace_kind kind, uint32_t rank, bool end, uint64_t at)
{
    const struct bps_trace_record record = {.at = at,
                                            .step = slice->step,
                                            .tensor = slice->id.tensor,
                                            .round = slice->id.round,
                                            .partition = slice->id.partition,
                                            .offset = slice->offset,
                                            .bytes = slice->bytes,
                                            .peer = bps_trace_peer(slice->key->sum->config.number, rank),
                                            .kind = (uint8_t)kind,
                                            .end = end};
    bps_trace_note(&record);
}

/* Passes the result to one worker that has contributed. */
static void deliver_to(struct bps_sum_slice *slice, uint32_t rank)
{
    struct bps_round *round = slice->round;
    const struct bps_sum *sum = round->sum;
    bool speaks = bps_bit(round->spoke_bits, rank) && bps_bit(bps_arrived(round, slice->index), rank);
    if (speaks && !bps_bit(sum->gone_bits, rank) && !bps_slice_is_held(slice, rank)) {
        slice->undelivered++;
        round->deliveries++;
        sum->config.events->result(sum->config.owner, rank, slice);
    }
}

/* Passes the result to all who spoke. A leader comes last, and has its own of a partial sum already. */
static void do_deliver(struct bps_sum_slice *slice)
{
    struct bps_round *round = slice->round;
    const struct bps_sum *sum = round->sum;
    uint32_t leader = bps_aggregates(sum) ? sum->config.leader : BPS_SUM_ALL;
    slice->undelivered = 1; /* ours, so that the slice stays until we are done */
    round->deliveries++;
    for (uint32_t i = 0; i < round->ranks->n; i++) {
        if (round->ranks->rank[i] != leader) {
            deliver_to(slice, round->ranks->rank[i]);
        }
    }
    if (leader != BPS_SUM_ALL && !bps_is_partial(sum)) {
        deliver_to(slice, leader);
    }
    bps_slice_delivered(slice);
}

/* Whether anybody who takes part has not got it from a shard that is lost. */
static bool is_wanted(const struct bps_sum_slice *slice)
{
    const struct bps_round *round = slice->round;
    for (uint32_t i = 0; i < round->ranks->n; i++) {
        uint32_t rank = round->ranks->rank[i];
        if (bps_bit(round->spoke_bits, rank) && !bps_bit(round->sum->gone_bits, rank) &&
            !bps_slice_is_held(slice, rank)) {
            return true;
        }
    }
    return false;
}

/* Makes the result and passes it on. */
static void complete(struct bps_sum_slice *slice)
{
    struct bps_round *round = slice->round;
    const struct bps_sum_config *config = &round->sum->config;
    bps_assert(slice->arrived >= round->quorum && round->base.failure == NULL);
    if (slice->holder != 0 && is_wanted(slice)) {
        slice->wanted = true;
        config->events->want(config->owner, slice->holder - 1, slice);
        return;
    }
    if (slice->holder != 0) { /* all have it */
        bps_slice_deliver(slice);
        return;
    }
    struct bps_report report;
    bps_sum_trace(slice, BPS_TRACE_SUM, 0, false, BPS_TRACE_ALSO);
    bps_status status = round->policy->finish(slice, &report);
    bps_sum_trace(slice, BPS_TRACE_SUM, 0, true, BPS_TRACE_NOW);
    if (status != BPS_OK) {
        bps_round_fail_here(round, status, report.text);
        return;
    }
    bps_slice_deliver(slice);
}

void bps_slice_deliver(struct bps_sum_slice *slice)
{
    struct bps_round *round = slice->round;
    const struct bps_sum_config *config = &round->sum->config;
    round->complete++;
    slice->mark = round->mark;
    bps_quorum_note(slice);
    if (config->events->finished != NULL) {
        config->events->finished(config->owner, slice);
    }
    if (bps_is_partial(round->sum)) {
        round->handed_on = true;
        config->events->summed(config->owner, slice);
    } else {
        do_deliver(slice);
    }
}

/* True: the pass waits for bps_sum_work(). */
static bool put_off(struct bps_sum_slice *slice)
{
    struct bps_sum *sum = slice->round->sum;
    if (!slice->round->policy->apart || bps_slice_is_quick(slice) || slice->holder != 0 ||
        !bps_heap_push(&sum->due, slice->round->priority, sum->sequence++, slice, NULL)) {
        return false;
    }
    bps_round_hold(slice->round);
    if (sum->due.count == 1) {
        sum->config.events->due(sum->config.owner);
    }
    return true;
}

void bps_slice_complete(struct bps_sum_slice *slice)
{
    if (!put_off(slice)) {
        complete(slice);
    }
}

bool bps_sum_work(struct bps_sum *sum)
{
    struct bps_sum_slice *slice = bps_heap_pop(&sum->due);
    if (slice != NULL) {
        struct bps_round *round = slice->round;
        if (round->base.failure == NULL) {
            complete(slice);
        }
        bps_round_release(round);
    }
    return sum->due.count > 0;
}

void bps_sum_distribute(struct bps_sum_slice *slice, const void *data)
{
    struct bps_round *round = slice->round;
    uint32_t leader = round->sum->config.leader;
    bps_status status = BPS_OK;
    bps_round_hold(round);
    slice->payload = data;
    for (uint32_t at = 0, bytes; at < slice->bytes && status == BPS_OK; at += bytes) {
        bytes = slice->bytes - at < CHUNK ? slice->bytes - at : CHUNK;
        status = bps_loans_write(slice, leader, at, bytes, (const char *)data + at);
    }
    if (status == BPS_OK) {
        do_deliver(slice);
    } else {
        bps_round_fail_here(round, status, NULL);
    }
    bps_round_release(round);
}

void bps_slice_came_late(struct bps_sum_slice *slice, uint32_t rank)
{
    struct bps_round *round = slice->round;
    bps_block_put(round->sum, &bps_parts(slice)[bps_ranks_slot(round->ranks, rank)].block);
    slice->undelivered++; /* ours, so that the slice stays until we are done */
    round->deliveries++;
    deliver_to(slice, rank);
    bps_slice_delivered(slice);
}

void bps_slice_delivered(struct bps_sum_slice *slice)
{
    struct bps_round *round = slice->round;
    bps_assert(round->deliveries > 0 && slice->undelivered > 0);
    bps_check(bps_round_check(round));
    round->deliveries--;
    if (--slice->undelivered == 0 && bps_slice_is_over(slice)) {
        bps_round_collect(round);
    }
}
