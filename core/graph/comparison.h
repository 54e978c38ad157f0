/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comparison.h - one comparison of a condition: a field of a tensor, an operator and a value.
 *
 * bytes and count are numbers; dtype, op and name are words, and a value for these may be a pattern.
 */
#ifndef BPS_GRAPH_COMPARISON_H
#define BPS_GRAPH_COMPARISON_H

#include <byteps/stage.h>

enum bps_field { BPS_FIELD_BYTES, BPS_FIELD_COUNT, BPS_FIELD_DTYPE, BPS_FIELD_OP, BPS_FIELD_NAME, BPS_FIELDS };

/* Those of numbers come first and those of words last, with what both have between. */
enum bps_operator {
    BPS_AT_LEAST,
    BPS_AT_MOST,
    BPS_ABOVE,
    BPS_BELOW,
    BPS_EQUAL,
    BPS_NOT_EQUAL,
    BPS_LIKE,
    BPS_NOT_LIKE,
    BPS_OPERATORS,
};

struct bps_comparison {
    enum bps_field field;
    enum bps_operator operator;
    char text[128]; /* the value as written, without quotes */
    uint64_t number;
};

bool bps_field_is_number(enum bps_field field);
/* Reads the value from the text. NULL, or what is wrong: "not a size; expected a number with a unit, ...". */
const char *bps_comparison_read(struct bps_comparison *comparison);
bool bps_comparison_holds(const struct bps_comparison *comparison, const struct bps_tensor_info *tensor);

#endif
