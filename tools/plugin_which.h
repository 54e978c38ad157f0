/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_which.h - the one plugin that `byteps plugin check` and `byteps plugin bench` are about. */
#ifndef BPS_TOOLS_PLUGIN_WHICH_H
#define BPS_TOOLS_PLUGIN_WHICH_H

#include <stddef.h>
#include <stdint.h>

struct bps_plugin_which {
    uint32_t kind;
    char name[32];
    char *path; /* of its file; freed by the caller */
};

/*
 * Finds the plugin that a name, or the path of a file, stands for; kind 0: any. A file is the plugin of its name from
 * then on, in this process and those that it starts. Prints what is wrong; returns an exit status.
 */
int bps_plugin_find(const char *plugin, uint32_t kind, struct bps_plugin_which *out);
/* Whether each of these words is "option=value"; prints and returns the same. */
int bps_plugin_check_set(const char *const *set, size_t nset);

#endif
