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

bool bps_credit_admits(struct bps_credit *credit, int32_t priority, uint64_t bytes)
{
    uint64_t used = 0;
    for (uint32_t i = credit->levels; i > 0 && credit->level[i - 1].priority >= priority; i--) {
        used += credit->level[i - 1].bytes;
    }
    bool admitted = used == 0 || used + bytes / 2 <= credit->limit;
    credit->trip.limited |= !admitted;
    return admitted;
}

/* ---- the size ---- */

static void begin_trip(struct bps_credit *credit, uint64_t now)
{
    if (credit->trip.began == 0) {
        credit->trip.began = now;
        credit->trip.before = credit->unanswered;
        credit->trip.limited = false;
    }
}

/* Not while it is larger because nothing was answered. */
static void resize(struct bps_credit *credit, uint64_t trip)
{
    uint64_t fastest = credit->trip.fastest, base = credit->base;
    if (!credit->trip.limited || credit->limit != base) {
        return;
    }
    double size = (double)base * ((double)(fastest + BPS_CREDIT_QUEUES) / (double)trip);
    size = size > 2 * (double)base ? 2 * (double)base : size;
    base = size >= (double)credit->most ? credit->most : (uint64_t)size;
    credit->base = credit->limit = base > credit->least ? base : credit->least;
}

static void end_trip(struct bps_credit *credit, uint64_t bytes, uint64_t now)
{
    struct bps_credit_trip *trip = &credit->trip;
    trip->before -= bytes < trip->before ? bytes : trip->before;
    if (trip->began > 0 && trip->before == 0) {
        uint64_t time = now > trip->began ? now - trip->began : 1;
        trip->fastest = trip->fastest == 0 || time < trip->fastest ? time : trip->fastest;
        resize(credit, time);
        trip->began = 0;
    }
}

/* ---- the bytes ---- */

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

void bps_credit_answered(struct bps_credit *credit, int32_t priority, uint64_t bytes, uint64_t now)
{
    end_trip(credit, bytes, now);
    repay(credit, priority, bytes);
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
