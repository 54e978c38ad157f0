/* SPDX-License-Identifier: Apache-2.0 */
/* pollers.c - a list of pollers that may change while it is gone through. */
#include "base/pollers.h"

#include <stdlib.h>

#include "base/assert.h"

struct bps_poller {
    LIST_ENTRY(bps_poller) entry;
    bool (*poll)(void *arg); /* NULL: removed */
    bool (*arm)(void *arg);
    void *arg;
};

struct bps_poller *bps_pollers_add(struct bps_pollers *pollers, bool (*poll)(void *arg), bool (*arm)(void *arg),
                                   void *arg)
{
    bps_assert(poll != NULL && arm != NULL);
    struct bps_poller *poller = malloc(sizeof *poller);
    if (poller != NULL) {
        *poller = (struct bps_poller){.poll = poll, .arm = arm, .arg = arg};
        LIST_INSERT_HEAD(&pollers->list, poller, entry);
    }
    return poller;
}

void bps_pollers_remove(struct bps_pollers *pollers, struct bps_poller *poller)
{
    if (poller != NULL) {
        LIST_REMOVE(poller, entry);
        poller->poll = NULL;
        LIST_INSERT_HEAD(&pollers->removed, poller, entry);
    }
}

bool bps_pollers_poll(struct bps_pollers *pollers)
{
    struct bps_poller *poller;
    bool worked = false;
    for (poller = LIST_FIRST(&pollers->list); poller != NULL; poller = LIST_NEXT(poller, entry)) {
        worked = poller->poll(poller->arg) || worked;
        if (poller->poll == NULL) {
            return true; /* it has left the list: the rest follows in the next turn */
        }
    }
    return worked;
}

bool bps_pollers_arm(struct bps_pollers *pollers)
{
    const struct bps_poller *poller;
    LIST_FOREACH(poller, &pollers->list, entry) {
        if (!poller->arm(poller->arg)) {
            return false;
        }
    }
    return true;
}

static void free_all(struct bps_poller_list *list)
{
    while (!LIST_EMPTY(list)) {
        struct bps_poller *poller = LIST_FIRST(list);
        LIST_REMOVE(poller, entry);
        free(poller);
    }
}

void bps_pollers_sweep(struct bps_pollers *pollers)
{
    free_all(&pollers->removed);
}

void bps_pollers_fini(struct bps_pollers *pollers)
{
    free_all(&pollers->list);
    free_all(&pollers->removed);
}
