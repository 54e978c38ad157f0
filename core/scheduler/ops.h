/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops.h - the scheduler, for the processes that host it.
 *
 * It is a library of its own, libbyteps_scheduler.so, as most processes need none. It calls functions of libbyteps that
 * are not public, so both are of one version. A program that contains the core contains the scheduler.
 */
#ifndef BPS_SCHEDULER_OPS_H
#define BPS_SCHEDULER_OPS_H

#include "base/loop.h"
#include "conf/conf.h"

struct bps_scheduler;

/* As the functions bps_scheduler_new() and so on in scheduler.h. */
struct bps_scheduler_ops {
    const char *version; /* of the library; the first member in all versions */
    bps_status (*new)(const struct bps_conf *conf, struct bps_loop *loop,
                      void (*finished)(void *arg, bps_status status), void (*news)(void *arg, const char *line),
                      void *arg, char *address, size_t n, struct bps_scheduler **out, struct bps_report *report);
    void (*free)(struct bps_scheduler *scheduler);
    void (*end)(struct bps_scheduler *scheduler, const char *why);
};

/* All that the library exports. */
BPS_API extern const struct bps_scheduler_ops bps_scheduler_ops;

/*
 * The scheduler of this process, which stays open. BPS_ERR_PLUGIN: the report says which file is missing, or what is
 * wrong with it. Thread-safe.
 */
bps_status bps_scheduler_open(const struct bps_scheduler_ops **out, struct bps_report *report);

#endif
