/* SPDX-License-Identifier: Apache-2.0 */
/* outcome.h - the results that nobody had read when their job ended. */
#ifndef BPS_WORKER_OUTCOME_H
#define BPS_WORKER_OUTCOME_H

#include <stdbool.h>

#include <byteps/byteps.h>

struct bps_worker;

/*
 * The job of a worker has ended. Between these two, bps_outcome_* of other threads wait, which therefore must
 * not be in a function of the worker. The second keeps the results of the worker's operations in place of those
 * of the job before.
 */
void bps_outcomes_begin(void);
void bps_outcomes_end(struct bps_worker *worker);

/* Whether there are any. */
bool bps_outcomes_unread(void);

/* Whether the operation of a handle has ended with its job, unread; stores its status. */
bool bps_outcome_look(bps_handle handle, bps_status *status);

/* The same, and the result counts as read. The report receives the text of an error; it may be NULL. */
bool bps_outcome_take(bps_handle handle, bps_status *status, struct bps_report *report);

/* In a forked child, where no other thread is left in these functions. It forgets what there is. */
void bps_outcomes_in_child(void);

#endif
