/* SPDX-License-Identifier: Apache-2.0 */
/*
 * search.h - where plugins lie: directories, file names, and who may have written them. [any thread]
 */
#ifndef BPS_PLUGIN_SEARCH_H
#define BPS_PLUGIN_SEARCH_H

#include <byteps/plugin.h>

#include "base/text.h"

/* The directories in the order of the search: those of $BYTEPS_PLUGIN_PATH, then that of this installation. */
struct bps_dirs {
    size_t count, room;
    char **items;
};
bps_status bps_dirs_get(struct bps_dirs *out, struct bps_report *report);
void bps_dirs_release(struct bps_dirs *dirs);
/*
 * The first that has this file, as path[n]. One that cannot be looked at counts as found: opening it tells why. False:
 * none has it.
 */
bool bps_dirs_find(const struct bps_dirs *dirs, const char *file, char *path, size_t n);
/* "DIRECTORY, DIRECTORY (which does not exist)" */
void bps_dirs_text(const struct bps_dirs *dirs, struct bps_text *text);

/* What to say when there is no such plugin: what there is instead, and where it was looked for. */
void bps_report_missing(uint32_t kind, const char *name, const struct bps_dirs *dirs, struct bps_report *report);

/*
 * Opens a file with code, for reading. A privileged process refuses one that somebody else could have written, by its
 * own mode and owner or those of its directory.
 */
bps_status bps_code_open(const char *path, int *fd, struct bps_report *report);

#endif
