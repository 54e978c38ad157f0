/* SPDX-License-Identifier: Apache-2.0 */
/* near.h - the transport to processes of this host. */
#ifndef BPS_WORKER_NEAR_H
#define BPS_WORKER_NEAR_H

#include "flow/worker.h"

/*
 * Opens the transport to processes of this host, if the configuration wants a group of the workers here or
 * such a way to servers. Where that does not work and must not, the log says why.
 */
bps_status bps_near_open(struct bps_worker *worker, struct bps_report *report);
void bps_near_close(struct bps_worker *worker);

#endif
