/* SPDX-License-Identifier: Apache-2.0 */
/*
 * late.c - who came last to the rounds of an engine (base/lateness.h).
 *
 * A shard gets a group's sum from its leader, who may be innocent: the leader's engine has seen who came last in the
 * group, and how late, and tells that with the sum. If it explains most of what the others have waited, that worker
 * was the last one; else, or if nothing is told, all workers of the group.
 */
#include "sum/round.h"

#include "base/assert.h"

/* Whom the others have waited for, so long, if that is what came last. */
static uint32_t who_was_last(const struct bps_round *round, uint32_t rank, const struct bps_contribution *c,
                             uint64_t waited)
{
    const struct bps_sum *sum = round->sum;
    const uint32_t *group = sum->config.group;
    if (!bps_bit(round->for_group_bits, rank)) {
        return rank;
    }
    bool known = c->late > 0 && c->last < sum->config.workers && group[c->last] == group[rank];
    bool explains = known && c->late - 1u >= bps_late_bucket(waited / 2);
    return explains ? c->last : sum->config.workers + group[rank];
}

void bps_round_came(struct bps_round *round, uint32_t rank, const struct bps_contribution *c)
{
    bps_assert(rank < round->sum->config.workers);
    struct bps_sum *sum = round->sum;
    uint64_t now;
    bool sums = bps_sums(&c->spec.roles) && c->spec.bytes > 0 && round->ranks->n > 1;
    if (!sums || round->base.failure != NULL || round->odds > 0 ||
        !bps_gathering_note(&round->gathering, round->joined, round->ranks->n, &now)) {
        return;
    }
    uint64_t late = now - round->gathering.most;
    round->last_rank = who_was_last(round, rank, c, late);
    round->last_late = bps_late_bucket(late) + 1;
    bps_wait_note(&sum->wait, &sum->recent, round->base.key, round->gathering.most, now, round->last_rank);
}

void bps_sum_last(const struct bps_sum_slice *slice, uint16_t *last, uint16_t *late)
{
    const struct bps_round *round = slice->round;
    *last = (uint16_t)round->last_rank;
    *late = (uint16_t)round->last_late;
}

void bps_sum_lateness(struct bps_sum *sum, struct bps_lateness *into)
{
    if (!bps_is_partial(sum)) {
        bps_lateness_add(into, &sum->recent);
    }
    bps_lateness_add(&sum->late, &sum->recent);
    bps_lateness_clear(&sum->recent);
}

void bps_late_words(const struct bps_sum *sum, const uint64_t *missing, char *text, size_t n)
{
    struct bps_usual usual;
    char name[32];
    text[0] = '\0';
    if (bps_lateness_usual(&sum->late, &usual) && usual.notable && usual.who < sum->config.workers &&
        bps_bit(missing, usual.who)) {
        snprintf(name, sizeof name, "; worker %u", usual.who);
        bps_usual_text(&usual, name, false, text, n);
    }
}
