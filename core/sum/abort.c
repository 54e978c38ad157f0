/* SPDX-License-Identifier: Apache-2.0 */
/*
 * abort.c - what ends rounds from outside: a worker's word, or the network's, workers that are no longer there,
 * and waiting too long.
 */
#include <string.h>

#include "sum/round.h"

/* ---- POISON and FAILED ---- */

/* Finds the round that ends so. Its kind does not matter: the round is going to fail. */
static bps_status find_ending(struct bps_sum *sum, const struct bps_notice *notice, struct bps_round **out)
{
    const struct bps_contribution shape = {
        .id = notice->id,
        .spec = {.bytes = notice->bytes,
                 .roles = {BPS_EVERYBODY, BPS_EVERYBODY},
                 .dtype = BPS_UINT8,
                 .op = BPS_SUM,
                 .postscale = 1.0},
        .size = notice->size,
    };
    if (!bps_is_partition(notice->bytes, sum->config.partition, notice->id.partition, notice->size)) {
        return BPS_ERR_PROTOCOL;
    }
    return bps_round_find(sum, &shape, out);
}

/* Whether it has spoken, but not pushed all slices: it cannot make the next one. */
static bool stops(const struct bps_round *round, uint32_t rank)
{
    uint32_t i = 0;
    while (i < round->slices && bps_bit(bps_arrived(round, i), rank)) {
        i++;
    }
    return bps_bit(round->spoke_bits, rank) && i < round->slices;
}

bps_status bps_sum_poison(struct bps_sum *sum, uint32_t rank, const struct bps_notice *poison)
{
    struct bps_round *round = NULL;
    if (!bps_ranks_has(&sum->all, rank) || (bps_aggregates(sum) && poison->for_group)) {
        return BPS_ERR_PROTOCOL;
    }
    bps_status status = find_ending(sum, poison, &round);
    if (status != BPS_OK || round == NULL) {
        return status;
    }
    if (!stops(round, rank)) {
        status = bps_round_speak(round, rank, bps_is_for_group(sum, rank, poison->for_group));
    }
    if (status != BPS_OK) {
        return status;
    }
    bps_round_hold(round);
    bps_check(bps_round_check(round));
    bps_round_fail(round, poison->status, poison->text, rank);
    bps_assert(round->base.failure != NULL);
    if (poison->answer && !round->pending) {
        bps_round_tell(round, rank, BPS_NOTICE_FAILED, round->base.failure);
    }
    bps_round_release(round);
    return BPS_OK;
}

bps_status bps_sum_fail(struct bps_sum *sum, const struct bps_notice *failed)
{
    struct bps_round *round = NULL;
    bps_status status = find_ending(sum, failed, &round);
    if (status != BPS_OK || round == NULL) {
        return status;
    }
    bps_round_hold(round);
    if (round->deliveries == 0) { /* else the result is there and on its way */
        round->max_bytes = failed->bytes > round->max_bytes ? failed->bytes : round->max_bytes;
        round->handed_on = true;
        round->summed = failed->summed;
        if (round->pending) {
            bps_round_end_pending(round, failed->status, failed->text);
        } else {
            bps_round_fail(round, failed->status, failed->text, BPS_SUM_ALL);
        }
    }
    bps_round_release(round);
    return BPS_OK;
}

/* ---- workers that are no longer there ---- */

static void on_left(struct bps_round_base *base, const void *arg)
{
    struct bps_round *round = (struct bps_round *)base;
    (void)arg;
    bps_round_join_left(round);
    bps_check(bps_round_check(round));
    bps_round_collect(round);
}

void bps_sum_leave(struct bps_sum *sum, uint32_t rank)
{
    bps_set_bit(sum->left_bits, rank);
    bps_rounds_walk(sum, on_left, NULL);
}

static void on_gone(struct bps_round_base *base, const void *arg)
{
    struct bps_round *round = (struct bps_round *)base;
    uint32_t rank = *(const uint32_t *)arg;
    char text[80];
    bps_loans_forget(round, rank);
    if (round->complete < round->slices && bps_ranks_has(round->ranks, rank)) {
        snprintf(text, sizeof text, "worker %u was lost", rank);
        bps_round_fail(round, BPS_ERR_LOST, text, BPS_SUM_ALL);
    }
    on_left(base, NULL);
}

void bps_sum_gone(struct bps_sum *sum, uint32_t rank)
{
    if (bps_ranks_has(&sum->all, rank)) {
        bps_set_bit(sum->gone_bits, rank);
        bps_rounds_walk(sum, on_gone, &rank);
    }
}

/* ---- waiting ---- */

static void check_stall(struct bps_round_base *base, const void *arg)
{
    struct bps_round *round = (struct bps_round *)base;
    const struct bps_patience *p = arg;
    char missing[200], late[200], text[600];
    bool give_up = bps_round_is_overdue(base, p);
    if (base->failure != NULL || (!give_up && !bps_round_is_slow(base, p))) {
        return;
    }
    bps_verdict_missing(round, missing, sizeof missing, late, sizeof late);
    if (missing[0] == '\0') {
        return; /* all have contributed; a slow receiver is not a missing one */
    }
    if (give_up) {
        bps_verdict_overdue(missing, p->fail, text, sizeof text);
        bps_round_fail(round, BPS_ERR_TIMEOUT, text, BPS_SUM_ALL);
        bps_round_collect(round);
        return;
    }
    base->reminded = p->now;
    bps_verdict_waiting(missing, p->now - base->begun, text, sizeof text);
    size_t said = strlen(text);
    snprintf(text + said, sizeof text - said, "%s", late);
    bps_round_tell_all(round, BPS_NOTICE_STALLED, text, BPS_SUM_ALL);
}

void bps_sum_check_stalls(struct bps_sum *sum, uint64_t now, uint64_t warn, uint64_t fail)
{
    const struct bps_patience patience = {now, warn, fail};
    bps_rounds_walk(sum, check_stall, &patience);
}

void bps_sum_excuse(struct bps_sum *sum, uint64_t ns)
{
    bps_rounds_excuse(&sum->rounds, ns);
}
