/* SPDX-License-Identifier: Apache-2.0 */
/* local_transport.h - the transport to processes of this host. */
#ifndef BPS_WORKER_LOCAL_TRANSPORT_H
#define BPS_WORKER_LOCAL_TRANSPORT_H

#include "flow/flow.h"

/*
 * Opens the transport to processes of this host, if the configuration wants a group of the workers here or
 * such a way to servers. Where that does not work and must not, the log says why.
 */
bps_status bps_local_transport_open(struct bps_worker *worker, struct bps_report *report);
void bps_local_transport_close(struct bps_worker *worker);

#endif
