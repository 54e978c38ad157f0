/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scheduler.h - the rendezvous of a job: gathers the members, hands out ranks, addresses and placement,
 * watches that everybody is alive. Data never passes it.
 */
#ifndef BPS_SCHEDULER_H
#define BPS_SCHEDULER_H

#include "base/loop.h"
#include "conf/conf.h"

struct bps_scheduler;

/*
 * Starts to listen on cluster.scheduler and works on the loop's thread. `finished` is called once when the
 * job is over: BPS_OK, or why it failed (already logged). `news` is called with what whoever has started the job
 * should know: "gathered" for each generation, or "taken over" for one that ran already, and, before members hear of
 * it, "left RANK" for a worker that is let go, "lost MEMBER" if the job fails for the loss of one such as
 * "worker 1 (host a, pid 7)", "without MEMBER" if not, "failed WHY" if it fails.
 * address[n] receives "host:port" for members to dial.
 */
bps_status bps_scheduler_new(const struct bps_conf *conf, struct bps_loop *loop,
                             void (*finished)(void *arg, bps_status status), void (*news)(void *arg, const char *line),
                             void *arg, char *address, size_t n, struct bps_scheduler **out, struct bps_report *report);
/* Ends everything at once. */
void bps_scheduler_free(struct bps_scheduler *scheduler);
/* Ends the job in order: tells the members why (NULL: it is over) and calls finished when they know. */
void bps_scheduler_end(struct bps_scheduler *scheduler, const char *why);
/*
 * A member will never join, as whoever has started it knows: workers that wait for others, and those that come later,
 * hear why. Of several the first counts. Who has started the job then ends it.
 */
void bps_scheduler_absent(struct bps_scheduler *scheduler, const char *why);
/*
 * If this one is to take over a job, to be told before the loop runs: the lost one has let this worker go, which will
 * not come back. False: there is no such rank.
 */
bool bps_scheduler_left(struct bps_scheduler *scheduler, uint32_t rank);
/* Likewise, if it is a member: this process of this host has ended. BPS_ERR_NOMEM */
bps_status bps_scheduler_ended(struct bps_scheduler *scheduler, uint32_t pid);
/* In a job that runs, tensors move to the shards that suit the links best by now, unless that is not possible now. */
void bps_scheduler_move(struct bps_scheduler *scheduler);
/*
 * In a job that runs, the shards of this member, which is not the only one with some, sum nothing from some round on,
 * and are gone in the next view. False: not now; it may be tried again. Not of a job with process groups, which stay
 * where they are.
 */
bool bps_scheduler_retire(struct bps_scheduler *scheduler, uint32_t member);

#endif
