/* SPDX-License-Identifier: Apache-2.0 */
/*
 * search.h - where plugins lie: directories, file names, and who may have written them. [any thread]
 */
#ifndef BPS_PLUGIN_SEARCH_H
#define BPS_PLUGIN_SEARCH_H

#include <byteps/plugin.h>

/* The directories in the order of the search: those of $BYTEPS_PLUGIN_PATH, then that of this installation. */
struct bps_dirs {
    size_t count, room;
    char **items;
};
bps_status bps_dirs_get(struct bps_dirs *out, struct bps_report *report);
void bps_dirs_release(struct bps_dirs *dirs);

/* What to say when there is no such plugin: what there is instead, and where it was looked for. */
void bps_report_missing(uint32_t kind, const char *name, const struct bps_dirs *dirs, struct bps_report *report);

/* True if code that somebody else could have written must not run in this process. */
bool bps_process_privileged(void);

/*
 * Refuses an opened file that everybody could have written, by its own mode or that of its directory. For
 * privileged processes. Any owner will do: root in a container often works on a user's files.
 */
bps_status bps_file_trusted(int fd, const char *path, struct bps_report *report);

#endif
