/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork.c - forked children keep no descriptor.
 *
 * In a child the core closes what is watched. A socket that is not watched yet, or no longer, would stay open
 * there and hide the end of this process from its peers; so fork() waits for those few moments. The eventfds
 * of peers are never watched: those are closed here.
 */
#include "ipc.h"

#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards the list, too */
static LIST_HEAD(, bps_channel) signallers = LIST_HEAD_INITIALIZER(signallers);

void ipc_fork_hold(void)
{
    pthread_mutex_lock(&mutex);
}

void ipc_fork_release(void)
{
    pthread_mutex_unlock(&mutex);
}

void ipc_fork_take(struct bps_channel *channel, int event)
{
    ipc_fork_hold();
    channel->event = event;
    LIST_INSERT_HEAD(&signallers, channel, signaller);
    ipc_fork_release();
}

void ipc_fork_close(struct bps_channel *channel)
{
    ipc_fork_hold();
    LIST_REMOVE(channel, signaller);
    close(channel->event);
    channel->event = -1;
    ipc_fork_release();
}

static void in_child(void)
{
    const struct bps_channel *channel;
    LIST_FOREACH(channel, &signallers, signaller) {
        close(channel->event);
    }
    LIST_INIT(&signallers);
    ipc_fork_release();
}

static void watch_forks(void)
{
    pthread_atfork(ipc_fork_hold, ipc_fork_release, in_child);
}

void ipc_fork_init(void)
{
    /*
     * Later than the core, whose lock is taken inside ours: before a fork the last one registered is called
     * first.
     */
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
}
