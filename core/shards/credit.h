/* SPDX-License-Identifier: Apache-2.0 */
/*
 * credit.h - how much a worker may have pushed to a shard that is not answered yet: numbers only; the caller
 * tells the time.
 *
 * A shard answers when all workers have pushed. Without a bound a worker whose connection gets more of the
 * shard's link than those of others would push all it has: the shard would hold it, its answers would begin
 * late, and its link would be busy with them alone in the end. With it, who is ahead waits, and leaves
 * the link to who is behind. Credit is ByteScheduler's word for it (Peng et al., SOSP 2019).
 *
 * It sizes itself. From time to time a byte is timed: the round trip until all that was sent up to there is
 * answered. The fastest one seen is what the way takes; what is above it are queues, in ports and processes,
 * which an urgent tensor waits in, too. Where the credit was what held bytes back, it is set to what would
 * have made the queues BPS_CREDIT_QUEUES long: limit * (fastest + queues) / round trip, which is the rate
 * times the time that a byte may take. So slow links get little credit, and fast ones enough to be full.
 *
 * On long paths that is too little: what is lost is sent once more, and all behind it waits a round trip longer, or
 * several, though there are no queues; and a congestion control that goes by rates finds no more than it is given. So
 * the credit is never less than some times what the path holds: the highest of the last rates (a trip that a loss has
 * made longer does not say what the link carries) times the round trip without queues, as the transport knows it.
 * Between near hosts this is less than the above.
 *
 * Only what is as urgent counts: an urgent tensor never waits for answers to others, which may themselves
 * wait for a worker that has sent the urgent one first. Workers that push in different orders could still
 * wait for each other, so the caller says when nothing was answered for a while, and the credit doubles.
 */
#ifndef BPS_SHARDS_CREDIT_H
#define BPS_SHARDS_CREDIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

#define BPS_CREDIT_LEVELS 32u
#define BPS_CREDIT_QUEUES (1 * BPS_MS) /* a byte may take so much longer than the fastest one did */
#define BPS_CREDIT_WAYS   4            /* so many times what a path holds may be unanswered */
#define BPS_CREDIT_SLICES 2            /* the least, on average of all shards */
#define BPS_CREDIT_PARTS  16           /* and of all that is pushed at most such a part */
#define BPS_CREDIT_TRIPS  8u           /* whose highest rate is remembered, and that of as many before */

struct bps_credit_level {
    int32_t priority;
    uint64_t bytes; /* unanswered, of this priority; of higher ones, too, if those were sent before */
};

struct bps_credit {
    uint64_t least, most; /* bounds of `base`, the upper one on short paths only */
    uint64_t way;         /* ns: the round trip without queues, as the transport says; 0: not known, or short */
    uint64_t base;        /* the limit as long as there are answers */
    uint64_t limit;       /* of what is unanswered */
    uint64_t unanswered;  /* of all priorities */
    bool answered;        /* anything, since bps_credit_look() */
    struct bps_credit_trip {
        uint64_t began;   /* ns; 0: nothing is timed */
        uint64_t bytes;   /* unanswered up to the one that is timed, when it was sent */
        uint64_t before;  /* the same, now */
        bool limited;     /* something was not admitted meanwhile */
        uint64_t fastest; /* ns, of all trips so far; 0: there was none */
    } trip;
    struct bps_credit_rate {
        double now, before; /* bytes per ns, the highest of the last trips, and of those before */
        uint32_t trips;     /* that count for `now` */
    } rate;
    uint32_t levels;
    struct bps_credit_level level[BPS_CREDIT_LEVELS]; /* the most urgent last */
};

/* Bytes; most = 0: no limit. */
void bps_credit_init(struct bps_credit *credit, uint64_t least, uint64_t most);
/* Unanswered bytes that are at least as urgent. */
uint64_t bps_credit_used(const struct bps_credit *credit, int32_t priority);
/* Whether a slice may be sent: as many are under way as come nearest to the credit, at least one. */
bool bps_credit_admits(struct bps_credit *credit, int32_t priority, uint64_t bytes);
/* now: as of bps_now(). */
void bps_credit_sent(struct bps_credit *credit, int32_t priority, uint64_t bytes, uint64_t now);
/* True: a round trip has ended, and it may be told again how long the path is. */
bool bps_credit_answered(struct bps_credit *credit, int32_t priority, uint64_t bytes, uint64_t now);
/* New bounds; what a long path holds is not cut. */
void bps_credit_set_bounds(struct bps_credit *credit, uint64_t least, uint64_t most);
/* ns there and back without queues; 0: not known. */
void bps_credit_set_way(struct bps_credit *credit, uint64_t way);
/* There will be no answer. */
void bps_credit_given_up(struct bps_credit *credit, int32_t priority, uint64_t bytes);
/* Called from time to time while something is not admitted. True if the credit was doubled. */
bool bps_credit_look(struct bps_credit *credit);

#endif
