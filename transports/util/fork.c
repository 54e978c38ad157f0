/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork.c - forked children keep no descriptor.
 *
 * In a child the core closes what is watched. A socket that is not watched yet, or no longer, would stay open
 * there and keep the connection alive when this process ends; so fork() waits for those few moments. What is
 * never watched is registered here, and closed by whom it belongs to.
 */
#include "util.h"

#include <pthread.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards the list, too */
static LIST_HEAD(, bps_util_forked) list = LIST_HEAD_INITIALIZER(list);

void bps_util_fork_hold(void)
{
    pthread_mutex_lock(&mutex);
}

void bps_util_fork_release(void)
{
    pthread_mutex_unlock(&mutex);
}

void bps_util_fork_add(struct bps_util_forked *forked)
{
    LIST_INSERT_HEAD(&list, forked, entry);
}

void bps_util_fork_remove(struct bps_util_forked *forked)
{
    LIST_REMOVE(forked, entry);
}

static void in_child(void)
{
    const struct bps_util_forked *forked;
    LIST_FOREACH(forked, &list, entry) {
        forked->in_child(forked->arg);
    }
    LIST_INIT(&list);
    bps_util_fork_release();
}

static void watch_forks(void)
{
    pthread_atfork(bps_util_fork_hold, bps_util_fork_release, in_child);
}

void bps_util_fork_init(void)
{
    /* Later than the core, whose lock is taken inside ours: before a fork the latest is called first. */
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
}
