/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_compare.h - the plans for several numbers of further servers, side by side: `byteps plan --servers 0..8`.
 *
 * A step is its computation and a push_pull, one after the other or, at best, at the same time. It costs its time on
 * all hosts.
 */
#ifndef BPS_CMD_PLAN_COMPARE_H
#define BPS_CMD_PLAN_COMPARE_H

#include "tools/plan.h"

/* ---- plan_counts.c: "0..8", "0,2,4" ---- */

#define BPS_COUNTS_LIMIT 1024u

/* Rising numbers. */
struct bps_counts {
    uint32_t n, count[BPS_COUNTS_LIMIT];
};

/* Whether the text is a list or a range, not a single number. */
bool bps_counts_several(const char *text);
bps_status bps_counts_parse(const char *text, int64_t most, struct bps_counts *out, struct bps_report *report);

/* ---- plan_step.c: the options that say what a step is, and what hosts cost ---- */

struct bps_step {
    double compute; /* seconds; negative: not given */
    bool overlap;   /* computation and push_pull at the same time */
    double price,
        worker_price;  /* of an hour of a further server's host, and of one with workers; negative: not given */
    const char *given; /* the last of the options that was given; NULL: none */
};

#define BPS_STEP_OPT_COMPUTE      0x1020
#define BPS_STEP_OPT_OVERLAP      0x1021
#define BPS_STEP_OPT_PRICE        0x1022
#define BPS_STEP_OPT_WORKER_PRICE 0x1023
#define BPS_STEP_OPTIONS                                                                                               \
    {"compute", required_argument, NULL, BPS_STEP_OPT_COMPUTE}, {"overlap", no_argument, NULL, BPS_STEP_OPT_OVERLAP},  \
        {"price", required_argument, NULL, BPS_STEP_OPT_PRICE},                                                        \
    {                                                                                                                  \
        "worker-price", required_argument, NULL, BPS_STEP_OPT_WORKER_PRICE                                             \
    }
#define BPS_STEP_HELP                                                                                                  \
    "      --compute TIME     computation of a step, such as 25ms; a step is that and\n"                               \
    "                         then a push_pull (default: 0)\n"                                                         \
    "      --overlap          a step is the longer of the two, as if a push_pull were\n"                               \
    "                         hidden behind computation\n"                                                             \
    "      --price P          of an hour of a further server's host, in any currency\n"                                \
    "      --worker-price P   of an hour of a host with workers\n"

/* Takes the option if it is one of these; *result is an exit status. */
bool bps_step_take(struct bps_step *step, int code, const char *value, int *result);
/* Whether the options fit together; prints what does not. */
int bps_step_check(const struct bps_step *step);

/* ---- plan_compare.c ---- */

#define BPS_COMPARE_NEAR 1.05

/* Of one number of further servers. NAN: there is no such thing. */
struct bps_compare_row {
    uint32_t servers;
    double servers_only, ring, ideal, placed;   /* seconds of a push_pull, as in a plan */
    double times_ring, times_none;              /* as fast as a ring, and as no further server */
    double times_best;                          /* as long as the fastest row */
    double saved, saved_part;                   /* by each server since the row above, in seconds, and of its time */
    double idle_workers, idle_servers;          /* part of the time, mean of these hosts' links */
    double step, steps_per_hour, cost_per_1000; /* seconds; and of 1000 steps, in units of the prices */
    bool cheapest, enough; /* the first of the least cost; the first where more servers cannot help */
    bool near;             /* the first whose step takes at most BPS_COMPARE_NEAR times as long as the shortest */
};

struct bps_compare {
    uint32_t workers, n;
    struct bps_compare_row *row;
    char links[64]; /* their bandwidths */
};

bps_status bps_compare_make(struct bps_conf *conf, const struct bps_model *model, const struct bps_links *links,
                            const struct bps_counts *counts, const struct bps_step *step, struct bps_compare *out,
                            struct bps_report *report);
void bps_compare_fini(struct bps_compare *compare);

/* ---- plan_table.c ---- */

void bps_compare_print(const struct bps_compare *compare, const struct bps_model *model, const struct bps_step *step);
json_t *bps_compare_json(const struct bps_compare *compare);

#endif
