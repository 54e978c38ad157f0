/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork.c - forked children keep no socket.
 *
 * In a child the core closes what is watched. A socket that is not watched yet, or no longer, would stay open
 * there and keep the connection alive when this process ends; so fork() waits for those few moments.
 */
#include "tcp.h"

#include <pthread.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void tcp_fork_hold(void)
{
    pthread_mutex_lock(&mutex);
}

void tcp_fork_release(void)
{
    pthread_mutex_unlock(&mutex);
}

static void watch_forks(void)
{
    pthread_atfork(tcp_fork_hold, tcp_fork_release, tcp_fork_release);
}

void tcp_fork_init(void)
{
    /* Later than the core, whose lock is taken inside ours: before a fork the latest is called first. */
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
}
