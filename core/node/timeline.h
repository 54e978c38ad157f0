/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline.h - the timeline of a member of a job: core/trace, as the configuration wants it, on the scheduler's clock.
 */
#ifndef BPS_NODE_TIMELINE_H
#define BPS_NODE_TIMELINE_H

#include "conf/conf.h"
#include "node/book.h"
#include "wire/link.h"

/* Records from now on, if that is configured. BPS_ERR_CONF: the file cannot be written. */
bps_status bps_timeline_open(const struct bps_conf *conf, struct bps_report *report);
/* The process is this member of the job; book NULL: it is alone in it. */
void bps_timeline_join(const struct bps_book *book, uint32_t member);

/* A member asks the scheduler for its time, again and again: CLOCK. Zeroed: it has not asked yet. */
struct bps_clock_questions {
    uint64_t asked; /* ns, when the last one was; 0: it has been answered */
    uint32_t answers;
};
/* Asks, if anything is recorded and the last question has been answered. */
void bps_timeline_ask(struct bps_clock_questions *questions, struct bps_link *scheduler);
/* Member: the answer. BPS_ERR_PROTOCOL: it is none. */
bps_status bps_timeline_told(struct bps_clock_questions *questions, struct bps_link *scheduler,
                             struct bps_reader *answer);
/* Scheduler: the question. */
bps_status bps_timeline_tell(struct bps_link *member, struct bps_reader *question);

#endif
