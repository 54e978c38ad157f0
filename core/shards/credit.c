/* SPDX-License-Identifier: Apache-2.0 */
/*
 * credit.c - unanswered bytes by urgency, as a stack: more urgent tensors come on top, and go first. And the
 * round trips, from which the credit gets its size.
 */
#include "shards/credit.h"

#include "base/assert.h"

void bps_credit_init(struct bps_credit *credit, uint64_t least, uint64_t most)
{
    most = most > 0 ? most : UINT64_MAX;
    least = least < most && most < UINT64_MAX ? least : most;
    *credit = (struct bps_credit){.least = least, .most = most, .base = least, .limit = least};
}

uint64_t bps_credit_used(const struct bps_credit *credit, int32_t priority)
{
    uint64_t used = 0;
    for (uint32_t i = credit->levels; i > 0 && credit->level[i - 1].priority >= priority; i--) {
        used += credit->level[i - 1].bytes;
    }
    return used;
}

bool bps_credit_admits(struct bps_credit *credit, int32_t priority, uint64_t bytes)
{
    uint64_t used = bps_credit_used(credit, priority);
    bool admitted = used == 0 || used + bytes / 2 <= credit->limit;
    credit->trip.limited |= !admitted;
    return admitted;
}

/* ---- the size ---- */

static void begin_trip(struct bps_credit *credit, uint64_t now)
{
    struct bps_credit_trip *trip = &credit->trip;
    if (trip->began == 0) {
        trip->began = now;
        trip->bytes = trip->before = credit->unanswered;
        trip->limited = false;
    }
}

static void note_rate(struct bps_credit_rate *rate, double bytes, double time, bool limited)
{
    rate->now = bytes / time > rate->now ? bytes / time : rate->now;
    if (limited && ++rate->trips == BPS_CREDIT_TRIPS) {
        *rate = (struct bps_credit_rate){.before = rate->now};
    }
}

/* Enough for a long way. */
static double for_the_way(const struct bps_credit *credit)
{
    const struct bps_credit_rate *rate = &credit->rate;
    double highest = rate->now > rate->before ? rate->now : rate->before;
    return BPS_CREDIT_WAYS * highest * (double)credit->way;
}

/* By queues only where it held bytes back, and not while it is larger because nothing was answered. */
static void resize(struct bps_credit *credit, uint64_t trip)
{
    bool raised = credit->limit != credit->base;
    double least = for_the_way(credit), size = (double)credit->base;
    if (credit->trip.limited && !raised) {
        double longer = (double)trip / (double)(credit->trip.fastest + BPS_CREDIT_QUEUES);
        size = longer < 0.5 ? 2 * size : size / longer;
        size = size < (double)credit->most ? size : (double)credit->most;
    }
    least = least > (double)credit->least ? least : (double)credit->least;
    size = size > least ? size : least;
    credit->base = size < (double)UINT64_MAX ? (uint64_t)size : UINT64_MAX;
    if (!raised || credit->limit < credit->base) {
        credit->limit = credit->base;
    }
}

/* True: one has ended. */
static bool end_trip(struct bps_credit *credit, uint64_t bytes, uint64_t now)
{
    struct bps_credit_trip *trip = &credit->trip;
    trip->before -= bytes < trip->before ? bytes : trip->before;
    if (trip->began == 0 || trip->before > 0) {
        return false;
    }
    uint64_t time = now > trip->began ? now - trip->began : 1;
    trip->fastest = trip->fastest == 0 || time < trip->fastest ? time : trip->fastest;
    note_rate(&credit->rate, (double)trip->bytes, (double)time, trip->limited);
    resize(credit, time);
    trip->began = 0;
    return true;
}

/* ---- the bytes ---- */

static void check_credit(const struct bps_credit *credit)
{
    uint64_t bytes = 0;
    bps_assert(credit->levels <= BPS_CREDIT_LEVELS);
    for (uint32_t i = 0; i < credit->levels; i++) {
        bps_assert(i == 0 || credit->level[i - 1].priority < credit->level[i].priority);
        bytes += credit->level[i].bytes;
    }
    bps_assert(bytes == credit->unanswered);
    bps_assert(credit->base >= credit->least && credit->limit >= credit->base);
}

void bps_credit_sent(struct bps_credit *credit, int32_t priority, uint64_t bytes, uint64_t now)
{
    credit->unanswered += bytes;
    begin_trip(credit, now);
    while (credit->levels > 0 && credit->level[credit->levels - 1].priority > priority) {
        bytes += credit->level[--credit->levels].bytes;
    }
    bool known = credit->levels > 0 && credit->level[credit->levels - 1].priority == priority;
    if (!known && credit->levels < BPS_CREDIT_LEVELS) {
        credit->level[credit->levels++] = (struct bps_credit_level){.priority = priority};
    }
    credit->level[credit->levels - 1].bytes += bytes;
    bps_check(check_credit(credit));
}

/* Takes as much as the level has; what is left. */
static uint64_t take(struct bps_credit_level *level, uint64_t bytes)
{
    uint64_t taken = bytes < level->bytes ? bytes : level->bytes;
    level->bytes -= taken;
    return bytes - taken;
}

/* Bytes of that priority are not waited for any more. */
static void repay(struct bps_credit *credit, int32_t priority, uint64_t bytes)
{
    bps_assert(bytes <= credit->unanswered);
    credit->unanswered -= bytes;
    credit->answered = true;
    for (uint32_t i = credit->levels; i > 0 && bytes > 0; i--) {
        if (credit->level[i - 1].priority <= priority) {
            bytes = take(&credit->level[i - 1], bytes);
        }
    }
    while (credit->levels > 0 && credit->level[credit->levels - 1].bytes == 0) {
        credit->levels--;
    }
    bps_assert(bytes == 0 && (credit->levels == 0) == (credit->unanswered == 0));
    if (credit->unanswered < credit->base) {
        credit->limit = credit->base;
    }
}

bool bps_credit_answered(struct bps_credit *credit, int32_t priority, uint64_t bytes, uint64_t now)
{
    bool ended = end_trip(credit, bytes, now);
    repay(credit, priority, bytes);
    return ended;
}

void bps_credit_set_bounds(struct bps_credit *credit, uint64_t least, uint64_t most)
{
    bool raised = credit->limit != credit->base;
    double way = for_the_way(credit);
    credit->least = least;
    credit->most = most > least ? most : least;
    double highest = way > (double)credit->most ? way : (double)credit->most;
    credit->base = credit->base > least ? credit->base : least;
    credit->base = (double)credit->base > highest ? (uint64_t)highest : credit->base;
    if (!raised || credit->limit < credit->base) {
        credit->limit = credit->base;
    }
}

void bps_credit_set_way(struct bps_credit *credit, uint64_t way)
{
    credit->way = way;
}

void bps_credit_given_up(struct bps_credit *credit, int32_t priority, uint64_t bytes)
{
    credit->trip.began = 0;
    repay(credit, priority, bytes);
}

bool bps_credit_look(struct bps_credit *credit)
{
    bool stalled = !credit->answered;
    credit->answered = false;
    if (stalled && credit->limit <= UINT64_MAX / 2) {
        credit->limit *= 2;
    }
    return stalled;
}
