/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log_of.h - what is logged of single instances of plugins: log.levels and log.calls of the configuration.
 *
 * An instance is named by its plugin ("tcp"), its place in the configuration ("transports.net", "worker.graph[0]"), or
 * the last part of that ("net"). Set when a process begins its part, before any plugin is opened.
 */
#ifndef BPS_BASE_LOG_OF_H
#define BPS_BASE_LOG_OF_H

#include <byteps/plugin.h>

#include "base/plugin_call.h"

/* The words are copied. Levels are "net=debug"; what does not read so is left out. */
void bps_log_of_set(const struct bps_list *levels, const struct bps_list *calls);

/* The level that "net=debug" asks for; 0: it does not read so. *length is that of the name. */
uint32_t bps_log_of_parse(const char *word, size_t *length);

/* The level of an instance; 0: that of the process. */
uint32_t bps_log_of_level(const struct bps_plugin_names *names);
bool bps_log_of_calls(const struct bps_plugin_names *names);

#endif
