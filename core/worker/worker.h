/* SPDX-License-Identifier: Apache-2.0 */
/* worker.h - the life of a worker: it joins a job, and leaves it. */
#ifndef BPS_WORKER_WORKER_H
#define BPS_WORKER_WORKER_H

#include "flow/step.h"

/*
 * Joins the job. *rank: its rank in the last generation of an elastic job, or -1; then that which it has been given, if
 * it has got so far. BPS_ERR_MEMBERSHIP: another one was lost meanwhile; the others gather anew.
 */
bps_status bps_worker_new(const struct bps_conf *conf, int32_t *rank, struct bps_worker **out,
                          struct bps_report *report);
/*
 * Ends all operations and leaves the job; to `reform`, it waits until all others want to. Returns the job's failure, if
 * it had one.
 */
bps_status bps_worker_leave(struct bps_worker *worker, bool reform, struct bps_report *report);
/* What can take a partition at a node of this kind, in a job of one worker or of several. */
const struct bps_step_ops *const *bps_worker_steps(enum bps_node_kind kind, bool alone);
/* Frees a worker that has left. */
void bps_worker_free(struct bps_worker *worker);

#endif
