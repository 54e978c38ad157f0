/* SPDX-License-Identifier: Apache-2.0 */
/*
 * condition.h - `when` of a stage: which tensors pass it. Decided once per tensor.
 *
 *   when = "bytes >= 64 KiB and dtype == float32 and name != '*.bias'"
 *
 * Fields: bytes and count (numbers, bytes with units), dtype, op and name (names with * and ?, == and !=
 * only).
 */
#ifndef BPS_GRAPH_CONDITION_H
#define BPS_GRAPH_CONDITION_H

#include <byteps/stage.h>

#define BPS_CLAUSES_LIMIT 16u

struct bps_clause {
    uint32_t field, comparison;
    uint64_t number;
    char text[128];
};

struct bps_condition {
    uint32_t clauses; /* 0: always */
    struct bps_clause clause[BPS_CLAUSES_LIMIT];
};

/* BPS_ERR_CONF: the report says what was found and what is expected. */
bps_status bps_condition_parse(const char *text, struct bps_condition *out, struct bps_report *report);
bool bps_condition_holds(const struct bps_condition *condition, const struct bps_tensor_info *tensor);

#endif
