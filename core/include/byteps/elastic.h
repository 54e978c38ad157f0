/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elastic.h - jobs whose workers come and go while they train.
 *
 * A job with cluster.min_workers is elastic: when a worker is lost or leaves, the others go on. Operations that need it
 * fail with BPS_ERR_MEMBERSHIP, alike on all workers that are left: either all have the result, the same bits, or none
 * has. What has failed may have changed the memory of its results.
 *
 * Then each worker calls bps_reform(), which returns when all others have called it and those that wait to join are in.
 * Rank and size may be other ones: survivors come first, in the order they had. Names and what coding has left stay.
 * Newcomers know nothing of what the others have learned: broadcast it from rank 0. Operations that are in flight end
 * before it returns, as bps_wait() reports.
 */
#ifndef BYTEPS_ELASTIC_H
#define BYTEPS_ELASTIC_H

#include <byteps/byteps.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Goes on with all workers that are there. One that does not call it within cluster.rendezvous_timeout after another
 * has is sent away. After an error this process has no job. BPS_ERR_UNSUPPORTED: the job is not elastic, and goes on;
 * BPS_ERR_TIMEOUT: fewer than cluster.min_workers have come; otherwise as bps_init(). For one thread at a time.
 */
BPS_API bps_status bps_reform(struct bps_report *report);

/*
 * How many processes wait for this worker to call bps_reform(): newcomers, and others that have called it.
 * No message is sent: cheap enough for each step. Workers learn of it at different times, and need not: one that
 * goes on meets BPS_ERR_MEMBERSHIP. BPS_ERR_STATE outside a job.
 */
BPS_API int bps_members_wait(void);

#ifdef __cplusplus
}
#endif
#endif
