/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failure.c - rounds that fail: by a worker's word, for want of a worker, in the network, or by waiting too
 * long.
 */
#include <stdlib.h>
#include <string.h>

#include "sum/round.h"

static struct bps_header header_of(const struct bps_round *round, uint8_t type)
{
    return (struct bps_header){.type = type,
                               .dtype = round->spec.dtype,
                               .op = round->spec.op,
                               .epoch = round->sum->config.epoch,
                               .tensor = (uint32_t)(round->key->id >> 32),
                               .bytes = round->max_bytes,
                               .partition = (uint32_t)round->key->id,
                               .round = round->number,
                               .root = (uint32_t)-round->verdict};
}

void bps_round_tell(struct bps_round *round, uint32_t rank, uint8_t type, const char *text)
{
    const struct bps_sum_config *config = &round->sum->config;
    const struct bps_header header = header_of(round, type);
    config->events->notice(config->owner, rank, &header, text);
}

/* The others wait for this group's sum, unless they have it, or know. True: they will answer. */
static bool tell_network(struct bps_round *round, const char *text)
{
    const struct bps_sum_config *config = &round->sum->config;
    const struct bps_header header = header_of(round, BPS_FRAME_FAILED);
    if (!bps_is_partial(round->sum) || round->handed_on) {
        return false;
    }
    round->handed_on = true;
    return config->events->failed(config->owner, &header, text);
}

/* Tells all who have spoken and are still there. */
static void tell_all(struct bps_round *round, uint8_t type, const char *text, uint32_t quiet)
{
    const struct bps_sum *sum = round->sum;
    for (uint32_t i = 0; i < sum->members; i++) {
        uint32_t rank = sum->member[i];
        if (bps_bit(round->spoke_bits, rank) && !bps_is_absent(sum, rank) && rank != quiet) {
            bps_round_tell(round, rank, type, text);
        }
    }
}

static void set_failure(struct bps_round *round, bps_status status, const char *text)
{
    free(round->failure);
    round->verdict = status;
    round->failure = strdup(text);
    if (round->failure == NULL) {
        round->failure = calloc(1, 1); /* the status alone must do */
    }
}

void bps_round_fail(struct bps_round *round, bps_status status, const char *text, uint32_t quiet)
{
    if (round->failure != NULL) {
        return;
    }
    set_failure(round, status, text);
    round->holds++;
    round->pending = tell_network(round, text);
    if (round->pending) {
        return; /* with the hold */
    }
    tell_all(round, BPS_FRAME_FAILED, text, quiet);
    bps_loans_release(round);
    round->holds--; /* not settled: the caller still has it */
}

/* The network's words for a round that has failed here already. */
static void end_pending(struct bps_round *round, bps_status status, const char *text)
{
    set_failure(round, status, text);
    round->pending = false;
    tell_all(round, BPS_FRAME_FAILED, text, BPS_SUM_ALL);
    bps_loans_release(round);
    round->holds--;
}

void bps_round_fail_nomem(struct bps_round *round)
{
    char text[80];
    snprintf(text, sizeof text, "%s is out of memory", round->sum->here);
    bps_round_fail(round, BPS_ERR_NOMEM, text, BPS_SUM_ALL);
}

/* ---- POISON and FAILED ---- */

/* Finds the round that such a frame ends. Its kind does not matter: the round is going to fail. */
static bps_status find_ending(struct bps_sum *sum, const struct bps_header *header, struct bps_round **out)
{
    struct bps_header shape = *header;
    if (header->tensor == 0 || (header->tensor >= BPS_ID_UNNAMED && header->round != 0) ||
        header->bytes > BPS_TENSOR_LIMIT ||
        header->partition >= bps_partitions(header->bytes, sum->config.partition)) {
        return BPS_ERR_PROTOCOL;
    }
    shape.op = BPS_SUM;
    shape.dtype = BPS_UINT8;
    return bps_round_find(sum, &shape, out);
}

bps_status bps_sum_poison(struct bps_sum *sum, uint32_t rank, const struct bps_header *header,
                          const char *text)
{
    struct bps_round *round = NULL;
    if (!bps_is_member(sum, rank) || (bps_aggregates(sum) && (header->flags & BPS_FLAG_GROUP) != 0)) {
        return BPS_ERR_PROTOCOL;
    }
    bps_status status = find_ending(sum, header, &round);
    if (status != BPS_OK || round == NULL) {
        return status;
    }
    status = bps_round_speak(round, rank, bps_is_grouped(sum, rank, header->flags));
    if (status != BPS_OK) {
        return status;
    }
    bps_round_hold(round);
    bps_round_fail(round, bps_wire_status(header->root), text, rank);
    if ((header->flags & BPS_FLAG_ANSWER) != 0 && !round->pending) {
        bps_round_tell(round, rank, BPS_FRAME_FAILED, round->failure);
    }
    bps_round_release(round);
    return BPS_OK;
}

bps_status bps_sum_fail(struct bps_sum *sum, const struct bps_header *header, bps_status verdict,
                        const char *text)
{
    struct bps_round *round = NULL;
    bps_status status = find_ending(sum, header, &round);
    if (status != BPS_OK || round == NULL) {
        return status;
    }
    bps_round_hold(round);
    if (round->deliveries == 0) { /* else the result is there and on its way */
        round->max_bytes = header->bytes > round->max_bytes ? header->bytes : round->max_bytes;
        round->handed_on = true;
        if (round->pending) {
            end_pending(round, verdict, text);
        } else {
            bps_round_fail(round, verdict, text, BPS_SUM_ALL);
        }
    }
    bps_round_release(round);
    return BPS_OK;
}

/* ---- workers that are no longer there ---- */

void bps_round_join_left(struct bps_round *round)
{
    const struct bps_sum *sum = round->sum;
    for (uint32_t i = 0; i < sum->members; i++) {
        uint32_t rank = sum->member[i];
        if (bps_is_absent(sum, rank) && !bps_bit(round->joined_bits, rank)) {
            char text[80];
            bool left = bps_bit(sum->left_bits, rank);
            bps_set_bit(round->joined_bits, rank);
            round->joined++;
            snprintf(text, sizeof text, left ? "worker %u has left the job" : "worker %u was lost", rank);
            bps_round_fail(round, BPS_ERR_LOST, text, BPS_SUM_ALL);
        }
    }
}

static void on_left(struct bps_round *round, const void *arg)
{
    (void)arg;
    bps_round_join_left(round);
    bps_round_settle(round);
}

void bps_sum_leave(struct bps_sum *sum, uint32_t rank)
{
    bps_set_bit(sum->left_bits, rank);
    bps_rounds_walk(sum, on_left, NULL);
}

static void on_gone(struct bps_round *round, const void *arg)
{
    const struct bps_sum *sum = round->sum;
    uint32_t rank = *(const uint32_t *)arg;
    char text[80];
    for (uint32_t i = 0; round->part != NULL && i < round->slices; i++) {
        bps_parts(&round->slice[i])[sum->slot[rank]].loan = NULL;
    }
    if (round->complete < round->slices) {
        snprintf(text, sizeof text, "worker %u was lost", rank);
        bps_round_fail(round, BPS_ERR_LOST, text, BPS_SUM_ALL);
    }
    on_left(round, NULL);
}

void bps_sum_gone(struct bps_sum *sum, uint32_t rank)
{
    if (bps_is_member(sum, rank)) {
        bps_set_bit(sum->gone_bits, rank);
        bps_rounds_walk(sum, on_gone, &rank);
    }
}

/* ---- waiting ---- */

struct patience {
    uint64_t now, warn, fail;
};

static void check_stall(struct bps_round *round, const void *arg)
{
    const struct patience *p = arg;
    char missing[200], text[400];
    uint64_t age = p->now > round->begun ? p->now - round->begun : 0;
    bool give_up = p->fail > 0 && age > p->fail;
    bool remind = p->warn > 0 && p->now > round->reminded && p->now - round->reminded > p->warn;
    if (round->failure != NULL || (!give_up && !remind)) {
        return;
    }
    bps_verdict_missing(round, missing, sizeof missing);
    if (missing[0] == '\0') {
        return; /* all have contributed; a slow receiver is not a missing one */
    }
    if (give_up) {
        bps_verdict_overdue(missing, p->fail, text, sizeof text);
        bps_round_fail(round, BPS_ERR_TIMEOUT, text, BPS_SUM_ALL);
        bps_round_settle(round);
        return;
    }
    round->reminded = p->now;
    bps_verdict_waiting(missing, age, text, sizeof text);
    tell_all(round, BPS_FRAME_STALLED, text, BPS_SUM_ALL);
}

void bps_sum_check_stalls(struct bps_sum *sum, uint64_t now, uint64_t warn, uint64_t fail)
{
    const struct patience patience = {now, warn, fail};
    bps_rounds_walk(sum, check_stall, &patience);
}
