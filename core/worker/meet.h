/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meet.h - one of several processes of a launcher becomes a member of their common job: worker 0 hosts its scheduler,
 * the others learn where that is.
 */
#ifndef BPS_WORKER_MEET_H
#define BPS_WORKER_MEET_H

#include "worker/hosting.h"

/*
 * Makes cluster.scheduler known where a launcher has started this process and nobody has said it; else it does nothing.
 * `hosting` receives what worker 0 hosts, for bps_hosting_end(); NULL: nothing. BPS_ERR_CONF: these processes have no
 * place to meet; the report has a command that works.
 */
bps_status bps_meet(struct bps_conf *conf, struct bps_hosting **hosting, struct bps_report *report);
/* The scheduler of the note does not answer: it may be one of an attempt before this one. Looks for a newer note. */
void bps_meet_again(void);
/* The job is over. */
void bps_meet_end(void);
/* In a child of fork(). */
void bps_meet_in_child(void);

#endif
