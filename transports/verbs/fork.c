/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork.c - the descriptors of the devices are never watched: a forked child closes them here, also those of
 * devices that are not used, as librdmacm opens all. Registered memory stays usable in both processes
 * (ibv_fork_init).
 */
#include "verbs.h"

#include <pthread.h>
#include <unistd.h>

static void in_child(void *arg)
{
    const struct verbs *verbs = arg;
    for (uint32_t i = 0; verbs->contexts[i] != NULL; i++) {
        close(verbs->contexts[i]->cmd_fd);
        close(verbs->contexts[i]->async_fd);
    }
}

void verbs_fork_add(struct verbs *verbs)
{
    verbs->forked = (struct bps_util_forked){.in_child = in_child, .arg = verbs};
    bps_util_fork_add(&verbs->forked);
}

static void begin(void)
{
    /* Kernels since 5.12 copy registered pages for the child at once, and it has nothing to do. */
    (void)ibv_fork_init();
    bps_util_fork_init();
}

void verbs_fork_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, begin);
}
