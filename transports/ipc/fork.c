/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork.c - forked children keep no descriptor.
 *
 * In a child the core closes what is watched. A socket that is not watched yet, or no longer, would stay open
 * there and hide the end of this process from its peers; so fork() waits for those few moments. What is never
 * watched is closed here: the eventfds of peers, and the files of memory that come and go with messages.
 */
#include "ipc.h"

#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards the list, too */
static LIST_HEAD(, bps_channel) channels = LIST_HEAD_INITIALIZER(channels);

void ipc_fork_hold(void)
{
    pthread_mutex_lock(&mutex);
}

void ipc_fork_release(void)
{
    pthread_mutex_unlock(&mutex);
}

void ipc_fork_add(struct bps_channel *channel)
{
    LIST_INSERT_HEAD(&channels, channel, forked);
}

void ipc_fork_remove(struct bps_channel *channel)
{
    ipc_fork_hold();
    LIST_REMOVE(channel, forked);
    ipc_fork_release();
}

void ipc_fork_close(int *fd)
{
    ipc_fork_hold();
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    ipc_fork_release();
}

static void close_copy(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

static void in_child(void)
{
    const struct bps_channel *channel;
    const struct ipc_post *post;
    LIST_FOREACH(channel, &channels, forked) {
        close_copy(channel->event);
        for (unsigned i = 0; i < IPC_FDS_MAX; i++) {
            close_copy(channel->fds[i]);
        }
        STAILQ_FOREACH(post, &channel->posts, entry) {
            close_copy(post->fd);
        }
    }
    LIST_INIT(&channels);
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
