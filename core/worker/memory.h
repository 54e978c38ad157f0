/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.h - memory that the application shares with the library, and through it with the other workers of
 * its host.
 *
 * It belongs to the process, not to a job; the transports of a job, while there is one, know all of it.
 */
#ifndef BPS_WORKER_MEMORY_H
#define BPS_WORKER_MEMORY_H

#include "base/loop.h"
#include "plugin/instance.h"

/* From now on the transport is told of all regions. Called before its loop runs, which all of them share. */
bps_status bps_memory_join(struct bps_loop *loop, struct bps_instance *transport, struct bps_report *report);
/* Not any more. Called while the loop still runs. */
void bps_memory_part(const struct bps_instance *transport);
/*
 * After fork(): no transport is told any more; if there was a job, no
 * other process will map the regions from here.
 */
void bps_memory_in_child(bool job);

#endif
