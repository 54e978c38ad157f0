/* SPDX-License-Identifier: Apache-2.0 */
/* thread_pool.c - threads for what computes, so that the core thread never waits for it. */
#include <semaphore.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/thread.h"
#include "flow/thread_pool.h"

#define AUTO_LIMIT 4
#define WORTH_IT   (128u << 10) /* bytes; computing with fewer takes hardly longer than to come here and back */

TAILQ_HEAD(job_list, bps_job);

struct bps_thread_pool {
    struct bps_worker *worker;
    pthread_mutex_t lock; /* guards jobs */
    struct job_list jobs;
    sem_t due; /* one for each job, and for each thread that is to end */
    uint32_t threads;
    pthread_t thread[];
};

/* NULL: this thread is to end. */
static struct bps_job *next_job(struct bps_thread_pool *pool)
{
    while (sem_wait(&pool->due) != 0) { /* a signal */
    }
    pthread_mutex_lock(&pool->lock);
    struct bps_job *job = TAILQ_FIRST(&pool->jobs);
    if (job != NULL) {
        TAILQ_REMOVE(&pool->jobs, job, entry);
    }
    pthread_mutex_unlock(&pool->lock);
    return job;
}

static void *work(void *arg)
{
    struct bps_thread_pool *pool = arg;
    for (struct bps_job *job = next_job(pool); job != NULL; job = next_job(pool)) {
        job->run(job);
        bps_loop_post(pool->worker->loop, &job->done);
    }
    return NULL;
}

uint32_t bps_thread_pool_count(const struct bps_conf *conf, const struct bps_pinning *pinning, uint32_t workers)
{
    int64_t wanted = conf->worker.threads;
    if (wanted > 0) {
        return (uint32_t)wanted;
    }
    unsigned cores = (unsigned)hwloc_bitmap_weight(pinning->allowed) / workers;
    return cores < 1 ? 1 : cores > AUTO_LIMIT ? AUTO_LIMIT : cores;
}

bool bps_thread_pool_pays(const struct bps_worker *worker, uint64_t bytes)
{
    return bytes >= WORTH_IT && bps_thread_pool_count(worker->conf, &worker->pinning, worker->job.local_size) > 1;
}

static void bind(const struct bps_thread_pool *pool)
{
    const struct bps_worker *worker = pool->worker;
    for (uint32_t i = 0; i < pool->threads && worker->pin.bound; i++) {
        /* The core thread's goes first and would tell. */
        hwloc_set_thread_cpubind(worker->pinning.topology.machine, pool->thread[i], worker->pin.cpus, 0);
    }
}

bps_status bps_thread_pool_need(struct bps_worker *worker, struct bps_report *report)
{
    if (worker->pool != NULL) {
        return BPS_OK;
    }
    uint32_t n = bps_thread_pool_count(worker->conf, &worker->pinning, 1);
    struct bps_thread_pool *pool = calloc(1, sizeof *pool + n * sizeof pool->thread[0]);
    if (pool == NULL) {
        BPS_REPORT(report, "out of memory for threads that compute");
        return BPS_ERR_NOMEM;
    }
    pool->worker = worker;
    pthread_mutex_init(&pool->lock, NULL);
    sem_init(&pool->due, 0, 0);
    TAILQ_INIT(&pool->jobs);
    worker->pool = pool;
    for (; pool->threads < n; pool->threads++) {
        bps_status status = bps_thread_start(&pool->thread[pool->threads], "bps-compute", work, pool, report);
        if (status != BPS_OK) {
            bps_thread_pool_free(worker);
            return status;
        }
    }
    bind(pool);
    return BPS_OK;
}

void bps_thread_pool_free(struct bps_worker *worker)
{
    struct bps_thread_pool *pool = worker->pool;
    if (pool == NULL) {
        return;
    }
    pthread_mutex_lock(&pool->lock);
    TAILQ_INIT(&pool->jobs);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->threads; i++) {
        sem_post(&pool->due);
    }
    for (uint32_t i = 0; i < pool->threads; i++) {
        pthread_join(pool->thread[i], NULL);
    }
    sem_destroy(&pool->due);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
    worker->pool = NULL;
}

void bps_thread_pool_bind(const struct bps_worker *worker)
{
    if (worker->pool != NULL) {
        bind(worker->pool);
    }
}

void bps_thread_pool_run(struct bps_thread_pool *pool, struct bps_job *job)
{
    bps_assert(job->run != NULL && job->done.fn != NULL);
    pthread_mutex_lock(&pool->lock);
    TAILQ_INSERT_TAIL(&pool->jobs, job, entry);
    pthread_mutex_unlock(&pool->lock);
    sem_post(&pool->due);
}
