/* SPDX-License-Identifier: Apache-2.0 */
/* validate.h - checks a merged tree and fills the structs of the core's sections from it. */
#ifndef BPS_CONF_VALIDATE_H
#define BPS_CONF_VALIDATE_H

#include "conf/load.h"
#include "conf/schema.h"

/* The check of one configuration. */
struct bps_check {
    struct bps_conf *conf;
    const struct bps_conf_request *request;
    struct bps_report *report; /* the first problem; may be NULL */
    unsigned problems;
    bps_status status; /* of the first problem */
};

/* Notes a problem: ORIGIN: text. */
void bps_check_problem(struct bps_check *check, const char *origin, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Nothing more should be looked at. */
bool bps_check_is_over(const struct bps_check *check);

/* Unknown sections and keys, types, ranges. Fills the structs. */
void bps_check_keys(struct bps_check *check);
/* The maps of plugin instances, the graph, and the names that refer to instances: their form only. */
void bps_check_instances(struct bps_check *check);
/* A worker's place in a job, where a launcher has told it. */
void bps_check_launcher(struct bps_check *check);
/* What values demand of each other, and the defaults that depend on other values. */
void bps_check_together(struct bps_check *check);

/* Parses a node into the field of a row. The report is that of bps_option_parse(). */
bps_status bps_node_parse(const struct bps_conf_node *node, const struct bps_option *row, void *target,
                          struct bps_report *report);
/* "KEY = VALUE: " for scalars, "KEY: " for everything else. */
struct bps_subject {
    char text[400];
};
struct bps_subject bps_node_subject(const char *path, const char *name, const struct bps_conf_node *node);

#endif
