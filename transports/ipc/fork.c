/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork.c - what is never watched and a forked child closes: the eventfds of peers, and the files of memory
 * that come and go with messages. A child that kept them would hide the end of this process from its peers.
 */
#include "ipc.h"

#include <unistd.h>

void ipc_fork_close(int *fd)
{
    bps_util_fork_hold();
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    bps_util_fork_release();
}

static void close_copy(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

static void in_child(void *arg)
{
    const struct bps_channel *channel = arg;
    close_copy(channel->event);
    for (unsigned i = 0; i < IPC_FDS_MAX; i++) {
        close_copy(channel->fds[i]);
    }
    close_copy(channel->arena.fd);
}

void ipc_fork_add(struct bps_channel *channel)
{
    channel->forked = (struct bps_util_forked){.in_child = in_child, .arg = channel};
    bps_util_fork_add(&channel->forked);
}
