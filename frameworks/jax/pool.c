/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.c - threads for work that may block, as many as are needed at once.
 *
 * Whoever tells XLA that a result is there runs what XLA has waiting for it, which may wait for another result.
 * So that must not be the thread of the core, which brings that other result, nor one of a pool of fixed size.
 */
#include "pool.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

static struct {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct work *first, **last;
    unsigned waiting; /* pieces of work */
    unsigned idle;    /* threads, which wait for work */
    unsigned threads;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER, .last = &pool.first};

static struct work *next_work(void)
{
    struct work *work;

    pthread_mutex_lock(&pool.lock);
    while (pool.first == NULL) {
        pool.idle++;
        pthread_cond_wait(&pool.more, &pool.lock);
        pool.idle--;
    }
    work = pool.first;
    pool.first = work->next;
    if (pool.first == NULL)
        pool.last = &pool.first;
    pool.waiting--;
    pthread_mutex_unlock(&pool.lock);
    return work;
}

static void *serve(void *arg)
{
    (void)arg;
    for (;;) {
        struct work *work = next_work();

        work->run(work);
    }
    return NULL;
}

/* Signals are for the application's own threads. */
static int thread_start(void)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_t thread;
    int failure;

    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failure = pthread_create(&thread, &attributes, serve, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return failure;
}

/* If the system gives no thread, one that is there does it later; if there is none, the caller does it. */
void pool_run(struct work *work)
{
    pthread_mutex_lock(&pool.lock);
    if (pool.idle <= pool.waiting && thread_start() == 0)
        pool.threads++;
    if (pool.threads == 0) {
        pthread_mutex_unlock(&pool.lock);
        work->run(work);
        return;
    }
    work->next = NULL;
    *pool.last = work;
    pool.last = &work->next;
    pool.waiting++;
    pthread_cond_signal(&pool.more);
    pthread_mutex_unlock(&pool.lock);
}
