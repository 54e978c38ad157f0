/* SPDX-License-Identifier: Apache-2.0 */
/* conf.h - the parts of `byteps conf`. */
#ifndef BPS_CMD_CONF_H
#define BPS_CMD_CONF_H

#include <jansson.h>

#include "conf/load.h"
#include "conf/tree.h"
#include "tools/cmd.h"

/* What `conf check` and `conf show` look at. */
struct bps_conf_command {
    struct bps_cmd_conf conf;
    bool json, origin;
};

/* Each returns the exit status. */
int bps_conf_command_check(const struct bps_conf_command *command);
int bps_conf_command_show(const struct bps_conf_command *command);
int bps_conf_command_sample(void);

/* How it is loaded; problems go to standard error, one per line. */
struct bps_conf_request bps_conf_command_request(const struct bps_conf_command *command);

/* ---- conf_show.c ---- */

/* As JSON, which has no place for bytes that are not UTF-8. */
json_t *bps_conf_json_text(const char *text);

/* ---- conf_findings.c: what `conf check` finds ---- */

/* Told as it is found, or, as JSON, at the end. */
struct bps_findings {
    bool json;
    const char *file; /* that of the command line or of the environment; NULL: none */
    unsigned problems;
    struct bps_text sources; /* for people: one after the other */
    json_t *files, *settings, *errors, *warnings;
};

void bps_findings_begin(struct bps_findings *findings, const struct bps_conf_command *command);
/* These are called with the findings as `arg`. */
void bps_findings_source(void *arg, const char *name, bool is_file);
void bps_findings_problem(void *arg, const char *text);
void bps_findings_note(void *arg, const char *text);
/* Returns the exit status. */
int bps_findings_end(struct bps_findings *findings);

#endif
