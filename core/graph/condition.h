/* SPDX-License-Identifier: Apache-2.0 */
/*
 * condition.h - `when` of a stage: which tensors pass it. Decided once per tensor.
 *
 *   when = "bytes >= 64 KiB and (name ~ '*.weight' or name ~ 'embed*') and not dtype == float64"
 *
 * byteps.conf(5) has the grammar.
 */
#ifndef BPS_GRAPH_CONDITION_H
#define BPS_GRAPH_CONDITION_H

#include "graph/comparison.h"

#define BPS_COMPARISONS_LIMIT 16u
#define BPS_NESTING_LIMIT     8u /* of parentheses */

enum bps_condition_step_kind { BPS_STEP_COMPARE, BPS_STEP_AND, BPS_STEP_OR };

struct bps_condition_step {
    enum bps_condition_step_kind kind;
    bool negated; /* `not` stands before all that ends with this step */
};

/*
 * The steps stand behind their operands: BPS_STEP_COMPARE answers the next comparison, the others join the last two
 * answers to one.
 */
struct bps_condition {
    uint32_t comparisons, steps; /* 0: always */
    struct bps_comparison comparison[BPS_COMPARISONS_LIMIT];
    struct bps_condition_step step[2 * BPS_COMPARISONS_LIMIT - 1];
};

/* BPS_ERR_CONF: the report says what was found, where, and what is expected. */
bps_status bps_condition_parse(const char *text, struct bps_condition *out, struct bps_report *report);
bool bps_condition_holds(const struct bps_condition *condition, const struct bps_tensor_info *tensor);
/* True if the answer may differ between the operations on one tensor. */
bool bps_condition_asks_op(const struct bps_condition *condition);

#endif
