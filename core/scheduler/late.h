/* SPDX-License-Identifier: Apache-2.0 */
/* late.h - who is late in a job, as all its shards and groups have seen it. */
#ifndef BPS_SCHEDULER_LATE_H
#define BPS_SCHEDULER_LATE_H

#include "base/lateness.h"
#include "node/book.h"

/* Zero at first. */
struct bps_lates {
    struct bps_lateness all;
    bool changed; /* since it was told */
    uint64_t told;
};

/* A generation begins, of so many workers; 0: the end. */
void bps_lates_begin(struct bps_lates *lates, uint32_t workers);
/* Reads a LATENESS message. BPS_ERR_PROTOCOL. */
bps_status bps_lates_add(struct bps_lates *lates, struct bps_reader *report);
/* True: there is news for the workers, and it is time to tell it: it is in `w`. */
bool bps_lates_news(struct bps_lates *lates, uint64_t now, struct bps_writer *w);
/* Says in the log who was the last, if anybody was. */
void bps_lates_log(const struct bps_lates *lates, const struct bps_book *book);

#endif
