/* SPDX-License-Identifier: Apache-2.0 */
/* failure.c - a round fails: what is noted, and who is told. */
#include <stdlib.h>
#include <string.h>

#include "sum/round.h"

#include "base/assert.h"

static struct bps_notice failure_notice_of(const struct bps_round *round, enum bps_notice_kind kind, const char *text)
{
    bool is_empty = round->bytes == 0 && round->max_bytes > 0; /* but the tensor is not, of which this is told */
    return (struct bps_notice){.kind = kind,
                               .id = round->base.id,
                               .bytes = round->max_bytes,
                               .size = is_empty ? 1 : round->bytes,
                               .status = round->base.verdict,
                               .text = text,
                               .summed = round->summed};
}

void bps_round_tell(struct bps_round *round, uint32_t rank, enum bps_notice_kind kind, const char *text)
{
    bps_assert(rank < round->sum->config.workers && text != NULL);
    const struct bps_sum_config *config = &round->sum->config;
    const struct bps_notice notice = failure_notice_of(round, kind, text);
    config->events->notice(config->owner, rank, &notice);
}

/* The others wait for this group's sum, unless they have it, or know. True: they will answer. */
static bool tell_network(struct bps_round *round, const char *text)
{
    const struct bps_sum_config *config = &round->sum->config;
    const struct bps_notice notice = failure_notice_of(round, BPS_NOTICE_FAILED, text);
    if (!bps_is_partial(round->sum) || round->handed_on) {
        return false;
    }
    round->handed_on = true;
    return config->events->failed(config->owner, &notice);
}

void bps_round_tell_all(struct bps_round *round, enum bps_notice_kind kind, const char *text, uint32_t quiet)
{
    const struct bps_sum *sum = round->sum;
    for (uint32_t i = 0; i < round->ranks->n; i++) {
        uint32_t rank = round->ranks->rank[i];
        bool hears = sum->config.elastic ? !bps_bit(sum->gone_bits, rank) : !bps_is_absent(sum, rank);
        if (bps_bit(round->spoke_bits, rank) && hears && rank != quiet) {
            bps_round_tell(round, rank, kind, text);
        }
    }
}

void bps_round_fail(struct bps_round *round, bps_status status, const char *text, uint32_t quiet)
{
    bps_assert(status != BPS_OK && text != NULL);
    if (round->base.failure != NULL) {
        return;
    }
    bps_round_set_failure(&round->base, status, text);
    round->base.holds++;
    round->pending = tell_network(round, text);
    if (round->pending) {
        return; /* with the hold */
    }
    bps_round_tell_all(round, BPS_NOTICE_FAILED, text, quiet);
    bps_loans_release(round);
    round->base.holds--; /* not collected: the caller still has it */
}

void bps_round_end_pending(struct bps_round *round, bps_status status, const char *text)
{
    bps_assert(round->pending && round->base.holds > 0 && round->base.failure != NULL);
    bps_round_set_failure(&round->base, status, text);
    round->pending = false;
    bps_round_tell_all(round, BPS_NOTICE_FAILED, text, BPS_SUM_ALL);
    bps_loans_release(round);
    round->base.holds--;
}

void bps_round_fail_here(struct bps_round *round, bps_status status, const char *fault)
{
    char text[BPS_VERDICT_BYTES];
    if (status == BPS_ERR_LOST) {
        snprintf(text, sizeof text, "worker %u was lost: its memory is no longer accessible", round->lost);
    } else if (status == BPS_ERR_PROTOCOL && round->spec.row > 0) {
        snprintf(text, sizeof text, "worker %u sent data that is not rows", round->lost);
    } else if (status == BPS_ERR_PROTOCOL) {
        snprintf(text, sizeof text, "worker %u sent data that is not encoded with %s", round->lost,
                 round->spec.coding->text);
    } else if (status == BPS_ERR_PLUGIN) {
        snprintf(text, sizeof text, "%s's %s", round->sum->here, fault);
    } else {
        snprintf(text, sizeof text, "%s is out of memory", round->sum->here);
    }
    bps_round_fail(round, status, text, BPS_SUM_ALL);
}

void bps_round_fail_without(struct bps_round *round, uint32_t rank)
{
    const struct bps_sum *sum = round->sum;
    bool left = bps_bit(sum->left_bits, rank);
    char text[80];
    snprintf(text, sizeof text, left ? "worker %u has left the job" : "worker %u was lost", rank);
    bps_round_fail(round, sum->config.elastic ? BPS_ERR_MEMBERSHIP : BPS_ERR_LOST, text, BPS_SUM_ALL);
}

void bps_round_join_left(struct bps_round *round)
{
    const struct bps_sum *sum = round->sum;
    for (uint32_t i = 0; i < round->ranks->n; i++) {
        uint32_t rank = round->ranks->rank[i];
        bool absent = sum->config.elastic ? bps_bit(sum->gone_bits, rank) : bps_is_absent(sum, rank);
        if (absent && !bps_bit(round->joined_bits, rank)) {
            bps_set_bit(round->joined_bits, rank);
            round->joined++;
            if (bps_round_ended_early(round)) {
                bps_round_skip(round, rank);
            } else if (!sum->config.elastic) {
                bps_round_fail_without(round, rank);
            }
        }
    }
}

void bps_round_refuse_late(struct bps_round *round, uint32_t rank, bps_status status, const char *text)
{
    bps_round_skip(round, rank);
    if (text != NULL) {
        round->base.verdict = status; /* of its notice alone */
        bps_round_tell(round, rank, BPS_NOTICE_FAILED, text);
        round->base.verdict = BPS_OK;
    }
}

void bps_round_tell_stranger(struct bps_round *round, uint32_t rank)
{
    char kind[40], text[BPS_VERDICT_BYTES];
    bps_status verdict = round->base.verdict;
    bps_operation_text(round->spec.kind, round->spec.op, kind, sizeof kind);
    snprintf(text, sizeof text, "worker %u takes part in a %s of other workers", rank, kind);
    round->base.verdict = BPS_ERR_MISMATCH; /* of its notice alone */
    bps_round_tell(round, rank, BPS_NOTICE_FAILED, text);
    round->base.verdict = verdict;
}
