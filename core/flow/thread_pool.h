/* SPDX-License-Identifier: Apache-2.0 */
/* thread_pool.h - the threads on which a worker computes: stages, and what coding needs. */
#ifndef BPS_FLOW_THREAD_POOL_H
#define BPS_FLOW_THREAD_POOL_H

#include "flow/flow.h"

/* What some thread of the pool computes. The owner keeps the memory until `done` is called. */
struct bps_job {
    void (*run)(struct bps_job *job); /* on that thread */
    struct bps_post done;             /* and back. [core] */
    TAILQ_ENTRY(bps_job) entry;
};
/* Its threads as configured; else as many as cores, or as these allow each of so many workers of a host. */
uint32_t bps_thread_pool_count(const struct bps_conf *conf, const struct bps_pinning *pinning, uint32_t workers);
/* The worker has a pool when this returns BPS_OK. */
bps_status bps_thread_pool_need(struct bps_worker *worker, struct bps_report *report);
/* Whether a job of the core's own that computes with so many bytes is faster done there. */
bool bps_thread_pool_pays(const struct bps_worker *worker, uint64_t bytes);
/* Waits for the jobs that run; those that have not begun never will. */
void bps_thread_pool_free(struct bps_worker *worker);
/* Binds its threads, if there is one, to the cores of the worker, which are known now. */
void bps_thread_pool_bind(const struct bps_worker *worker);
void bps_thread_pool_run(struct bps_thread_pool *pool, struct bps_job *job);

#endif
