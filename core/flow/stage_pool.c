/* SPDX-License-Identifier: Apache-2.0 */
/* stage_pool.c - threads for the stages that compute, so that the core thread never waits for them. */
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "flow/step.h"

#define AUTO_LIMIT 4

TAILQ_HEAD(call_list, bps_stage_call);

struct bps_stage_pool {
    struct bps_worker *worker;
    pthread_mutex_t lock; /* guards calls and stop */
    pthread_cond_t ready;
    struct call_list calls;
    bool stop;
    uint32_t threads;
    pthread_t thread[];
};

static void run(struct bps_stage_pool *pool, struct bps_stage_call *call)
{
    struct bps_report report = {""};
    call->status = bps_stage_run(call, &report);
    if (call->status != BPS_OK && report.text[0] != '\0') {
        call->text = strdup(report.text);
    }
    bps_loop_post(pool->worker->loop, &call->post);
}

static void *work(void *arg)
{
    struct bps_stage_pool *pool = arg;
    pthread_mutex_lock(&pool->lock);
    while (!pool->stop) {
        struct bps_stage_call *call = TAILQ_FIRST(&pool->calls);
        if (call == NULL) {
            pthread_cond_wait(&pool->ready, &pool->lock);
            continue;
        }
        TAILQ_REMOVE(&pool->calls, call, entry);
        pthread_mutex_unlock(&pool->lock);
        run(pool, call);
        pthread_mutex_lock(&pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static uint32_t thread_count(const struct bps_worker *worker)
{
    int64_t wanted = worker->conf->worker.threads;
    if (wanted > 0) {
        return (uint32_t)wanted;
    }
    unsigned cores = (unsigned)hwloc_bitmap_weight(worker->pinning.allowed);
    return cores < 1 ? 1 : cores > AUTO_LIMIT ? AUTO_LIMIT : cores;
}

bps_status bps_stage_pool_new(struct bps_worker *worker, struct bps_stage_pool **out, struct bps_report *report)
{
    uint32_t n = thread_count(worker);
    struct bps_stage_pool *pool = calloc(1, sizeof *pool + n * sizeof pool->thread[0]);
    if (pool == NULL) {
        return BPS_ERR_NOMEM;
    }
    pool->worker = worker;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->ready, NULL);
    TAILQ_INIT(&pool->calls);
    for (; pool->threads < n; pool->threads++) {
        bps_status status = bps_thread_start(&pool->thread[pool->threads], "bps-stage", work, pool, report);
        if (status != BPS_OK) {
            bps_stage_pool_free(pool);
            return status;
        }
    }
    *out = pool;
    return BPS_OK;
}

void bps_stage_pool_free(struct bps_stage_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->ready);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->threads; i++) {
        pthread_join(pool->thread[i], NULL);
    }
    pthread_cond_destroy(&pool->ready);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

void bps_stage_pool_bind(struct bps_stage_pool *pool)
{
    const struct bps_worker *worker = pool->worker;
    for (uint32_t i = 0; i < pool->threads; i++) {
        /* The core thread's goes first and would tell. */
        hwloc_set_thread_cpubind(worker->pinning.topology.machine, pool->thread[i], worker->pin.cpus, 0);
    }
}

void bps_stage_pool_run(struct bps_stage_pool *pool, struct bps_stage_call *call)
{
    pthread_mutex_lock(&pool->lock);
    TAILQ_INSERT_TAIL(&pool->calls, call, entry);
    pthread_cond_signal(&pool->ready);
    pthread_mutex_unlock(&pool->lock);
}
