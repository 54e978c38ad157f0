/* SPDX-License-Identifier: Apache-2.0 */
/* comparison.c - one comparison of a condition: its value, and whether it holds for a tensor. */
#include "graph/comparison.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "conf/option.h"

bool bps_field_is_number(enum bps_field field)
{
    return field == BPS_FIELD_BYTES || field == BPS_FIELD_COUNT;
}

/* For == and != a value without wildcards is no pattern, so that a backslash in it is one of the name. */
static bool is_pattern(const struct bps_comparison *comparison)
{
    return comparison->operator>= BPS_LIKE || strpbrk(comparison->text, "*?[") != NULL;
}

static bool comparison_fits(const struct bps_comparison *comparison, const char *word)
{
    return is_pattern(comparison) ? fnmatch(comparison->text, word, 0) == 0 : strcmp(comparison->text, word) == 0;
}

static bool fits_any(const struct bps_comparison *comparison, const char *(*name)(uint32_t), uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (comparison_fits(comparison, name(i))) {
            return true;
        }
    }
    return false;
}

static bool parse_count(const char *text, uint64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return errno == 0 && isdigit((unsigned char)text[0]) && *end == '\0';
}

const char *bps_comparison_read(struct bps_comparison *comparison)
{
    switch (comparison->field) {
    case BPS_FIELD_BYTES:
        return bps_parse_size(comparison->text, &comparison->number) == BPS_OK
                   ? NULL
                   : "not a size; expected a number with a unit, such as 64 KiB";
    case BPS_FIELD_COUNT:
        return parse_count(comparison->text, &comparison->number) ? NULL
                                                                  : "not a number of elements; expected digits alone";
    case BPS_FIELD_DTYPE:
        return fits_any(comparison, bps_dtype_name, BPS_DTYPES)
                   ? NULL
                   : "not a data type; expected float32, float16, int64 and so on";
    case BPS_FIELD_OP:
        return fits_any(comparison, bps_op_name, BPS_OPS)
                   ? NULL
                   : "not an operation; expected sum, average, min, max or product";
    default:
        return NULL;
    }
}

static bool comparison_compare(enum bps_operator operator, uint64_t a, uint64_t b)
{
    switch (operator) {
    case BPS_AT_LEAST:
        return a >= b;
    case BPS_AT_MOST:
        return a <= b;
    case BPS_ABOVE:
        return a > b;
    case BPS_BELOW:
        return a < b;
    case BPS_EQUAL:
        return a == b;
    default:
        return a != b;
    }
}

bool bps_comparison_holds(const struct bps_comparison *comparison, const struct bps_tensor_info *tensor)
{
    bool wanted = comparison->operator== BPS_EQUAL || comparison->operator== BPS_LIKE;
    switch (comparison->field) {
    case BPS_FIELD_BYTES:
        return comparison_compare(comparison->operator, tensor->count * bps_dtype_size(tensor->dtype),
                                  comparison->number);
    case BPS_FIELD_COUNT:
        return comparison_compare(comparison->operator, tensor->count, comparison->number);
    case BPS_FIELD_DTYPE:
        return comparison_fits(comparison, bps_dtype_name(tensor->dtype)) == wanted;
    case BPS_FIELD_OP:
        return comparison_fits(comparison, bps_op_name(tensor->op)) == wanted;
    default:
        return comparison_fits(comparison, tensor->name) == wanted;
    }
}
