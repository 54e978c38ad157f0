/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.h - memory that the application shares with the library, and through it with the other workers of
 * its host, or with the network.
 *
 * It belongs to the process, not to a job; the plugins of a job that use it know all of it, while there is
 * one.
 */
#ifndef BPS_PLUGIN_MEMORY_H
#define BPS_PLUGIN_MEMORY_H

#include "base/loop.h"
#include "plugin/instance.h"

/* A plugin that prepares for memory, because frames or copies may point into it. */
struct bps_memory_user {
    struct bps_instance *instance;
    bps_status (*attach)(void *self, const struct bps_region *region, struct bps_report *report);
    void (*detach)(void *self, const struct bps_region *region);
};

struct bps_shared;

/*
 * From now on the plugin knows all regions. Called before its loop runs, which all users share. Whoever has a
 * region to tell of waits until that loop runs or there are no users.
 */
bps_status bps_memory_join(const struct bps_memory_user *user, struct bps_report *report);
/* The loop of the users runs, */
void bps_memory_run(struct bps_loop *loop);
/* and is about to end: called while it still runs. */
void bps_memory_halt(void);
/*
 * Closes a plugin, which may have joined (NULL: none), while the loop does not run. No region goes before the
 * plugin that knows it. After the last one the thread of the job may give regions back, too.
 */
void bps_memory_close(struct bps_instance *instance);
/*
 * Tells the plugin `reader`, and no other, of a region on a device. The region's descriptor is ours from here
 * on, also after an error.
 */
bps_status bps_memory_share(const struct bps_instance *reader, const struct bps_region *region, struct bps_shared **out,
                            struct bps_report *report);
void bps_memory_unshare(struct bps_shared *shared);
/*
 * After fork(): no plugin is told any more; if there was a job, no
 * other process will map the regions from here.
 */
void bps_memory_in_child(bool job);

#endif
