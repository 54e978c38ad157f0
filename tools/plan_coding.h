/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_coding.h - what coding gives to the push_pull of a plan: `byteps plan --compress`.
 *
 * Coding, the network and the other processors work at the same time, so the slowest of them is the time of all. How
 * fast coding is, and what is left of the bytes, is measured here, on one partition; the hosts of the job are taken to
 * be as this one.
 */
#ifndef BPS_CMD_PLAN_CODING_H
#define BPS_CMD_PLAN_CODING_H

#include "coding/coding.h"
#include "tools/plan.h"

enum bps_plan_limit { BPS_PLAN_NETWORK, BPS_PLAN_WORKER, BPS_PLAN_SERVER, BPS_PLAN_HOST, BPS_PLAN_LIMITS };

struct bps_plan_coding {
    char text[BPS_CODING_TEXT];
    uint64_t bytes;                  /* of the model, when coded */
    uint32_t threads, shards, cores; /* that code: a worker's, a server's, and a host's for both */
    double limit[BPS_PLAN_LIMITS];   /* seconds that each needs */
    double seconds;                  /* the largest of them */
    bool pays;                       /* that is less than without coding */
};

/* The coding that a word says: a member of `compressors`, a text "plugin=onebit; feedback=true", or a plugin. */
bps_status bps_plan_find_coding(const struct bps_conf *conf, const char *word, struct bps_codings *codings,
                                struct bps_coding **out, struct bps_report *report);
bps_status bps_plan_code(const struct bps_conf *conf, const char *word, const struct bps_model *model,
                         const struct bps_plan *plan, struct bps_plan_coding *out, struct bps_report *report);

void bps_plan_coding_print(const struct bps_plan_coding *coding, const struct bps_plan *plan);
json_t *bps_plan_coding_json(const struct bps_plan_coding *coding);

#endif
