/* SPDX-License-Identifier: Apache-2.0 */
/*
 * credit.h - how much a worker may have pushed to a shard that is not answered yet: numbers only, no clock.
 *
 * A shard answers when all workers have pushed. Without a bound a worker whose connection gets more of the
 * shard's link than those of others would push all it has: the shard would hold it, its answers would begin
 * late, and its link would be busy with them alone in the end. With it, who is ahead waits, and leaves
 * the link to who is behind. Credit is ByteScheduler's word for it (Peng et al., SOSP 2019).
 *
 * Only what is as urgent counts: an urgent tensor never waits for answers to others, which may themselves wait
 * for a worker that has sent the urgent one first. Workers that push in different orders could still wait for
 * each other, so the caller says when nothing was answered for a while, and the credit doubles.
 */
#ifndef BPS_WORKER_CREDIT_H
#define BPS_WORKER_CREDIT_H

#include <stdbool.h>
#include <stdint.h>

#define BPS_CREDIT_LEVELS 32u

struct bps_credit_level {
    int32_t priority;
    uint64_t bytes; /* unanswered, of this priority; of higher ones, too, if those were sent before */
};

struct bps_credit {
    uint64_t base;       /* the limit as long as there are answers */
    uint64_t limit;      /* of what is unanswered */
    uint64_t unanswered; /* of all priorities */
    bool answered;       /* anything, since bps_credit_look() */
    uint32_t levels;
    struct bps_credit_level level[BPS_CREDIT_LEVELS]; /* the most urgent last */
};

/* base: bytes; 0: no limit. */
void bps_credit_init(struct bps_credit *credit, uint64_t base);
/* Whether something of that priority may be sent. */
bool bps_credit_admits(const struct bps_credit *credit, int32_t priority);
void bps_credit_sent(struct bps_credit *credit, int32_t priority, uint64_t bytes);
/* Answered, or given up. */
void bps_credit_answered(struct bps_credit *credit, int32_t priority, uint64_t bytes);
/* Called from time to time while something is not admitted. True if the credit was doubled. */
bool bps_credit_look(struct bps_credit *credit);

#endif
