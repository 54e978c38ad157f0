/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.h - the services of the core for one instance of a plugin: struct bps_host over the event loop.
 */
#ifndef BPS_PLUGIN_HOST_H
#define BPS_PLUGIN_HOST_H

#include <byteps/plugin.h>

#include "base/loop.h"
#include "base/plugin_call.h"

/*
 * `instance` names the instance in messages ("transports.net"). Without a loop, watch and timer return NULL
 * and defer does nothing but log an error. NULL: no memory.
 */
struct bps_host *bps_host_new(const char *instance, struct bps_loop *loop);
/* Lines of this instance name its plugin, too, and have the level that log.levels gives it. */
void bps_host_log_as(struct bps_host *host, const struct bps_plugin_names *names);
/* Frees the counters too. NULL is allowed. */
void bps_host_free(struct bps_host *host);

/* Calls fn for every counter, in the order of their first use. On the loop's thread, or when that has ended.
 */
void bps_host_counters(const struct bps_host *host,
                       void (*fn)(void *arg, const char *name, const char *help, uint64_t value), void *arg);

#endif
