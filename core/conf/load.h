/* SPDX-License-Identifier: Apache-2.0 */
/* load.h - loading with more control than bps_conf_load() gives: for `byteps conf` and for tests. */
#ifndef BPS_CONF_LOAD_H
#define BPS_CONF_LOAD_H

#include "conf/conf.h"

struct bps_conf_request {
    const char *confdir; /* directory of the system-wide files; NULL: bps_conf_dir() */
    const char *file;    /* NULL: $BYTEPS_CONF */
    const char *text;    /* taken instead of the file, as if it were one named "text"; not terminated */
    size_t ntext;
    const char *const *set;
    size_t nset;
    bool incomplete; /* do not demand the address of the scheduler, which `byteps run` adds */
    /* Called with every problem, while it makes sense to look for more. NULL: the first one is enough. */
    void (*problem)(void *arg, const char *text);
    void *arg;
    const struct bps_conf_sources *sources; /* may be NULL */
    bool keep; /* the caller gets what could be read with its problems, too, to look for more of them */
};

/* The report and the status are those of the first problem. *out is NULL if nothing could be read. */
bps_status bps_conf_load_from(const struct bps_conf_request *request, struct bps_conf **out, struct bps_report *report);

#endif
