/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.h - what a worker knows of how its job goes. */
#ifndef BPS_WORKER_METRICS_H
#define BPS_WORKER_METRICS_H

#include <byteps/byteps.h>

#include "flow/flow.h"

/* Adds who was late as far as this process sums. [core] */
void bps_metrics_seen(struct bps_worker *worker, struct bps_lateness *into);
/* LATENESS: what the scheduler knows of all. BPS_ERR_PROTOCOL. [core] */
bps_status bps_metrics_told(struct bps_worker *worker, struct bps_reader *message);
/* BPS_ERR_INVALID: there is no such worker. [app] */
bps_status bps_metrics_lateness(struct bps_worker *worker, uint32_t rank, struct bps_worker_lateness *out,
                                struct bps_report *report);

#endif
