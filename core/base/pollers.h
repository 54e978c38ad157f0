/* SPDX-License-Identifier: Apache-2.0 */
/* pollers.h - the pollers of an event loop: sources of work that no descriptor announces. */
#ifndef BPS_BASE_POLLERS_H
#define BPS_BASE_POLLERS_H

#include <stdbool.h>
#include <sys/queue.h>

#include <byteps/plugin.h> /* struct bps_poller */

LIST_HEAD(bps_poller_list, bps_poller);

struct bps_pollers {
    struct bps_poller_list list, removed;
};

/* NULL: no memory. */
struct bps_poller *bps_pollers_add(struct bps_pollers *pollers, bool (*poll)(void *arg), bool (*arm)(void *arg),
                                   void *arg);
/* Allowed in any callback; none follows. The memory is kept until bps_pollers_sweep(). */
void bps_pollers_remove(struct bps_pollers *pollers, struct bps_poller *poller);

/* Polls all of them once. True: there was work. */
bool bps_pollers_poll(struct bps_pollers *pollers);
/* Asks all of them to announce new work by a descriptor. False: there is work already. */
bool bps_pollers_arm(struct bps_pollers *pollers);

void bps_pollers_sweep(struct bps_pollers *pollers);
void bps_pollers_fini(struct bps_pollers *pollers);

static inline bool bps_pollers_none(const struct bps_pollers *pollers)
{
    return LIST_EMPTY(&pollers->list);
}

#endif
