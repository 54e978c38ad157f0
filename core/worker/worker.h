/* SPDX-License-Identifier: Apache-2.0 */
/* worker.h - the life of a worker: it joins a job, and leaves it. */
#ifndef BPS_WORKER_WORKER_H
#define BPS_WORKER_WORKER_H

#include "flow/step.h"

bps_status bps_worker_new(const struct bps_conf *conf, struct bps_worker **out, struct bps_report *report);
/* Ends all operations and leaves the job. Returns the job's failure, if it had one. */
bps_status bps_worker_leave(struct bps_worker *worker, struct bps_report *report);
/* What can take a partition at a node of this kind, in a job of one worker or of several. */
const struct bps_step_ops *const *bps_worker_steps(enum bps_node_kind kind, bool alone);
/* Frees a worker that has left. */
void bps_worker_free(struct bps_worker *worker);

#endif
