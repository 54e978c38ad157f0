/* SPDX-License-Identifier: Apache-2.0 */
/* hosting.h - the scheduler of a job on a thread of a worker's process, where nobody else brings one. */
#ifndef BPS_WORKER_HOSTING_H
#define BPS_WORKER_HOSTING_H

#include "conf/conf.h"

struct bps_hosting;

/*
 * Begins at the first of `listen` (each "HOST:PORT", port 0: any; ":0": as the transport's options say; then NULL) that
 * other hosts can reach, else at the last; address[n] receives where others dial it. The configuration outlives it.
 */
bps_status bps_hosting_begin(struct bps_conf *conf, const char *const *listen, struct bps_hosting **out, char *address,
                             size_t n, struct bps_report *report);
/*
 * Waits until the job is over, which it is when all workers have left. With `why` it fails at once with that text.
 * NULL for `hosting` is allowed.
 */
void bps_hosting_end(struct bps_hosting *hosting, const char *why);
/* Ends it in order, whether there is a job or not. */
void bps_hosting_stop(struct bps_hosting *hosting);

#endif
