/* SPDX-License-Identifier: Apache-2.0 */
/* lateness.c - see lateness.h. */
#include "base/lateness.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"

#define FIRST_OCTAVE 16u   /* 2^16 ns */
#define RARE         10u   /* waits of an engine, of a length that does not count as usual */
#define LEAST_SHARE  0.6   /* of all waiting, */
#define LEAST_PART   0.05  /* of the time, */
#define LEAST_MEDIAN 0.001 /* s of a wait, */
#define LEAST_LOSS   0.5   /* and s that the job has lost, that are worth telling */

void bps_lateness_init(struct bps_lateness *l, uint32_t workers)
{
    *l = (struct bps_lateness){.workers = workers};
    l->count = calloc(2 * (size_t)workers, sizeof *l->count);
}

void bps_lateness_fini(struct bps_lateness *l)
{
    for (uint32_t who = 0; l->count != NULL && who < 2 * l->workers; who++) {
        free(l->count[who]);
    }
    free(l->count);
    *l = (struct bps_lateness){.workers = 0};
}

void bps_lateness_count(struct bps_lateness *l, uint32_t who, uint32_t bucket, uint32_t times)
{
    bps_assert(who < 2 * l->workers && bucket < BPS_LATE_BUCKETS);
    if (l->count == NULL) {
        return;
    }
    if (l->count[who] == NULL) {
        l->count[who] = calloc(BPS_LATE_BUCKETS, sizeof *l->count[who]);
    }
    if (l->count[who] != NULL) {
        l->count[who][bucket] += times;
        l->waits += times;
    }
}

void bps_lateness_add(struct bps_lateness *into, const struct bps_lateness *from)
{
    for (uint32_t who = 0; from->count != NULL && who < 2 * from->workers; who++) {
        for (uint32_t i = 0; from->count[who] != NULL && i < BPS_LATE_BUCKETS; i++) {
            if (from->count[who][i] > 0) {
                bps_lateness_count(into, who, i, from->count[who][i]);
            }
        }
    }
    into->engines += from->engines;
    into->span += from->span;
}

void bps_lateness_clear(struct bps_lateness *l)
{
    uint32_t workers = l->workers;
    bps_lateness_fini(l);
    bps_lateness_init(l, workers);
}

/* ---- measuring ---- */

bool bps_gathering_note(struct bps_gathering *g, uint32_t there, uint32_t workers, uint64_t *now)
{
    bps_assert(there <= workers && workers > 1);
    bool last = there == workers, wanted = g->there < (workers - 1) / 2 + 1;
    if (last || wanted) {
        *now = bps_now();
    }
    if (wanted && !last) {
        g->most = *now;
    }
    g->there = there;
    return last && g->most != 0;
}

uint32_t bps_late_bucket(uint64_t ns)
{
    uint32_t octave = 63u - (uint32_t)__builtin_clzll(ns | 1);
    if (octave < FIRST_OCTAVE) {
        return 0;
    }
    uint32_t bucket = (octave - FIRST_OCTAVE) * 8 + (uint32_t)(ns >> (octave - 3) & 7);
    return bucket < BPS_LATE_BUCKETS ? bucket : BPS_LATE_BUCKETS - 1;
}

/* The middle of a bucket. Of the first one, which has all that is shorter, nothing. */
static double seconds_of(uint32_t bucket)
{
    double octave = (double)(1ull << (FIRST_OCTAVE + bucket / 8));
    return bucket == 0 ? 0 : octave * (1.0625 + 0.125 * (bucket % 8)) / 1e9;
}

void bps_wait_note(struct bps_wait *wait, struct bps_lateness *l, const void *key, uint64_t most, uint64_t now,
                   uint32_t who)
{
    bps_assert(key != NULL && who < 2 * l->workers);
    uint64_t late = now > most ? now - most : 0;
    bool another = most >= wait->until || key == wait->first; /* a partition that comes again is another step's */
    if (wait->until == 0) {
        l->engines++;
    } else {
        l->span += now - wait->until;
    }
    if (another && wait->until != 0) {
        bps_lateness_count(l, wait->who, bps_late_bucket(wait->late), 1);
    }
    if (another || late > wait->late) {
        wait->late = late;
        wait->who = who;
    }
    wait->first = another ? key : wait->first;
    wait->until = now;
}

/* ---- judging ---- */

/* The bucket of the longest wait that is no exception, or BPS_LATE_BUCKETS. */
static uint32_t longest_usual(const uint32_t *count, uint64_t rare)
{
    uint64_t so_far = 0;
    for (uint32_t i = BPS_LATE_BUCKETS; i-- > 0;) {
        so_far += count[i];
        if (so_far >= rare) {
            return i;
        }
    }
    return BPS_LATE_BUCKETS;
}

struct bps_late bps_lateness_of(const struct bps_lateness *l, uint32_t who)
{
    struct bps_late late = {.last = 0};
    const uint32_t *count = l->count != NULL ? l->count[who] : NULL;
    uint32_t longest = count != NULL ? longest_usual(count, (uint64_t)RARE * l->engines) : BPS_LATE_BUCKETS;
    for (uint32_t i = 0; count != NULL && i < BPS_LATE_BUCKETS; i++) {
        late.last += count[i];
        late.seconds += longest < BPS_LATE_BUCKETS ? count[i] * seconds_of(i < longest ? i : longest) : 0;
    }
    double so_far = 0;
    for (uint32_t i = 0; late.seconds > 0 && i < BPS_LATE_BUCKETS && so_far < late.seconds / 2; i++) {
        late.median = seconds_of(i < longest ? i : longest);
        so_far += count[i] * late.median;
    }
    return late;
}

bool bps_lateness_usual(const struct bps_lateness *l, struct bps_usual *out)
{
    double all = 0;
    *out = (struct bps_usual){.who = 0};
    for (uint32_t who = 0; who < 2 * l->workers; who++) {
        struct bps_late late = bps_lateness_of(l, who);
        all += late.seconds;
        if (late.seconds > out->late.seconds) {
            out->who = who;
            out->late = late;
        }
    }
    if (all <= 0 || l->span == 0) {
        return false;
    }
    out->share = out->late.seconds / all;
    out->part = out->late.seconds * 1e9 / (double)l->span;
    double by_chance = 1.5 / l->workers;
    bool chance = out->share < (by_chance > LEAST_SHARE ? by_chance : LEAST_SHARE);
    bool dear = out->part >= LEAST_PART && out->late.seconds >= LEAST_LOSS * l->engines;
    out->notable = !chance && dear && out->late.median >= LEAST_MEDIAN;
    return true;
}

void bps_usual_text(const struct bps_usual *usual, const char *name, bool several, char *text, size_t n)
{
    const char *it = several ? "them" : "it";
    double part = usual->part < 1 ? usual->part : 1, ms = 1e3 * usual->late.median;
    snprintf(text, n,
             "%s %s usually the last: the others wait for %s %.0f %% of the time, %.*f ms in the median, "
             "and %.0f %% of all their waiting is for %s",
             name, several ? "are" : "is", it, 100 * part, ms < 10, ms, 100 * usual->share, it);
}
