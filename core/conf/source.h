/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source.h - the text of a configuration file with its @include files put in place.
 *
 * The libconfig library would read files by itself, but it resolves @include against one directory only,
 * forgets in which file an error was, and ends the process when it cannot read. So it is given the text from
 * here, and what it says about lines is translated back.
 */
#ifndef BPS_CONF_SOURCE_H
#define BPS_CONF_SOURCE_H

#include <stddef.h>

#include "conf/tree.h"

/* Where a line of the text comes from. */
struct bps_source_line {
    const char *file; /* in the arena */
    unsigned line;
};

struct bps_source {
    struct bps_arena *arena;       /* for the names of the files */
    struct bps_text text;          /* for messages */
    struct bps_text code;          /* for libconfig: the same lines, in which all whole numbers have 64 bits */
    struct bps_source_line *lines; /* of each line of the text */
    size_t count, lines_room;
    unsigned files;                         /* included */
    const struct bps_conf_sources *sources; /* told of each file that was read; may be NULL */
};

/* Tells of a source, if `sources` is not NULL. */
void bps_source_tell(const struct bps_conf_sources *sources, const char *name, bool is_file);

/* Reads a file. One that does not exist and is `optional` is BPS_ERR_IO without a report; everything else
 * that is wrong is BPS_ERR_CONF or BPS_ERR_NOMEM. */
bps_status bps_source_file(struct bps_source *source, const char *path, bool optional, struct bps_report *report);
/* Takes a text; `name` stands for the file in messages. */
bps_status bps_source_text(struct bps_source *source, const char *name, const char *text, size_t n,
                           struct bps_report *report);
void bps_source_free(struct bps_source *source);

/* The origin of a line of the text, counted from 1; never NULL. */
struct bps_source_line bps_source_origin(const struct bps_source *source, unsigned line);

#endif
