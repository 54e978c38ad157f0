/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer.h - the sources of configuration. Each function merges what it finds into the tree of `conf`.
 *
 * Errors are BPS_ERR_CONF with a report that begins with the origin, or BPS_ERR_NOMEM.
 */
#ifndef BPS_CONF_LAYER_H
#define BPS_CONF_LAYER_H

#include "conf/tree.h"

/* A file in libconfig syntax. With `optional` a file that does not exist is no error. */
bps_status bps_layer_file(struct bps_conf *conf, const char *path, bool optional, struct bps_report *report);
/* The same from memory; `name` stands for the file in messages. */
bps_status bps_layer_text(struct bps_conf *conf, const char *name, const char *text, size_t n,
                          struct bps_report *report);
/* The system-wide file of a directory and its conf.d, none of which need exist. */
bps_status bps_layer_system(struct bps_conf *conf, const char *confdir, struct bps_report *report);

/* "key=value". The value is plain text, or libconfig syntax if it begins with one of ( [ { ". */
bps_status bps_layer_set(struct bps_conf *conf, const char *setting, const char *origin, struct bps_report *report);
/* Several of them, one in each line. */
bps_status bps_layer_set_lines(struct bps_conf *conf, const char *lines, const char *origin, struct bps_report *report);

/* A value at a dotted path, taken as it is written. Copies the text. */
bps_status bps_layer_scalar(struct bps_conf *conf, const char *path, const char *text, const char *origin,
                            struct bps_report *report);

/* The variables of the original BytePS. */
bps_status bps_layer_environment(struct bps_conf *conf, struct bps_report *report);

/*
 * Calls fn with a sentence for each DMLC_ or BYTEPS_ variable that is set without effect, is beyond a limit, or is not
 * known.
 */
void bps_environment_notes(void (*fn)(void *arg, const char *text), void *arg);

/* One value in libconfig syntax as a node without a name, for bps_layer_set(). */
bps_status bps_layer_value(struct bps_arena *arena, const char *text, const char *origin, struct bps_conf_node **out,
                           struct bps_report *report);

#endif
