/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork.c - forked children keep no descriptor.
 *
 * In a child the core closes what is watched. A descriptor that is not watched yet, or no longer, would stay
 * open there and keep the connections alive when this process ends; so fork() waits for those few moments.
 * Those of the devices are never watched: they are closed here, also of those that are not used, as librdmacm
 * opens all. Registered memory stays usable in both processes (ibv_fork_init).
 */
#include "verbs.h"

#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards the list, too */
static LIST_HEAD(, verbs) instances = LIST_HEAD_INITIALIZER(instances);

void verbs_fork_hold(void)
{
    pthread_mutex_lock(&mutex);
}

void verbs_fork_release(void)
{
    pthread_mutex_unlock(&mutex);
}

void verbs_fork_add(struct verbs *verbs)
{
    LIST_INSERT_HEAD(&instances, verbs, forked);
}

void verbs_fork_remove(struct verbs *verbs)
{
    LIST_REMOVE(verbs, forked);
}

static void in_child(void)
{
    const struct verbs *verbs;
    LIST_FOREACH(verbs, &instances, forked) {
        for (uint32_t i = 0; verbs->contexts[i] != NULL; i++) {
            close(verbs->contexts[i]->cmd_fd);
            close(verbs->contexts[i]->async_fd);
        }
    }
    LIST_INIT(&instances);
    verbs_fork_release();
}

static void begin(void)
{
    /* Kernels since 5.12 copy registered pages for the child at once, and it has nothing to do. */
    (void)ibv_fork_init();
    pthread_atfork(verbs_fork_hold, verbs_fork_release, in_child);
}

void verbs_fork_init(void)
{
    /* Later than the core, whose lock is taken inside ours: before a fork the latest is called first. */
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, begin);
}
