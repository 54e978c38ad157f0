/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lateness.h - who comes last to sums, how late, and what that costs the others.
 *
 * A round waits from the moment when more than half of the other workers are there until the last one comes: so one
 * early worker makes nobody late, and neither do two late ones hide each other. Rounds that wait at the same time, as
 * those of many tensors do after each step, are one wait, as long as the longest of them: what counts is the time that
 * the job loses, however many tensors there are, and however few of them flow control lets go ahead.
 *
 * Waits are counted by who came last and in buckets of their length, eight in an octave, so that what several shards
 * have seen can be added up. Who is late is said by time, not by number: most waits are short, and chance. A long wait
 * that happens rarely does not count more than the tenth longest (of each engine).
 */
#ifndef BPS_BASE_LATENESS_H
#define BPS_BASE_LATENESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BPS_LATE_BUCKETS 168u /* from 66 us, and all that is less, to 137 s */

/* What engines have seen. `who` is a worker; or workers + a rank: all workers of the group with this lowest rank. */
struct bps_lateness {
    uint32_t workers, engines; /* engines: that have summed here */
    uint64_t waits, span;      /* span: ns between the rounds of all engines */
    uint32_t **count;          /* by who, then by bucket; NULL: never the last */
};

/* Without memory they count less. */
void bps_lateness_init(struct bps_lateness *l, uint32_t workers);
void bps_lateness_fini(struct bps_lateness *l);
void bps_lateness_count(struct bps_lateness *l, uint32_t who, uint32_t bucket, uint32_t times);
/* Adds what `from` has counted, of the same number of workers; and forgets what was counted. */
void bps_lateness_add(struct bps_lateness *into, const struct bps_lateness *from);
void bps_lateness_clear(struct bps_lateness *l);

/* The bucket of a wait. */
uint32_t bps_late_bucket(uint64_t ns);

/* ---- measuring ---- */

/* How a round gathers; all zero at first. */
struct bps_gathering {
    uint64_t most; /* ns: when more than half of the others were there */
    uint32_t there;
};

/* `there` of so many are there now. True: that was the last; `most` and *now tell how long they have waited. */
bool bps_gathering_note(struct bps_gathering *g, uint32_t there, uint32_t workers, uint64_t *now);

/* The wait of an engine that goes on, or was the last; all zero at first. */
struct bps_wait {
    const void *first;    /* key of the round that it began with */
    uint64_t until, late; /* ns; until 0: there was none */
    uint32_t who;
};

/* The last worker has come at `now` to a round of this key, which most others had reached at `most`. */
void bps_wait_note(struct bps_wait *wait, struct bps_lateness *l, const void *key, uint64_t most, uint64_t now,
                   uint32_t who);

/* ---- judging ---- */

struct bps_late {
    uint64_t last;          /* waits in which it was the last */
    double seconds, median; /* the time that others waited for it; half of that in waits of the median or longer */
};

struct bps_late bps_lateness_of(const struct bps_lateness *l, uint32_t who);

/* The one that most of the waiting is for. */
struct bps_usual {
    uint32_t who;
    bool notable; /* it is worth telling: neither chance nor short */
    struct bps_late late;
    double share, part; /* 0..1: of all waiting, and of the time */
};

/* False: nobody waits. */
bool bps_lateness_usual(const struct bps_lateness *l, struct bps_usual *out);
/* "worker 3 (host c) is usually the last: ..."; `name` is who that is, several ones or not. */
void bps_usual_text(const struct bps_usual *usual, const char *name, bool several, char *text, size_t n);

#endif
