/* SPDX-License-Identifier: Apache-2.0 */
/* condition.c - parsing and deciding `when`. */
#include "graph/condition.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "conf/option.h"

enum { BYTES, COUNT, DTYPE, OP, NAME, FIELDS };
static const char *const field_names[FIELDS] = {"bytes", "count", "dtype", "op", "name"};

enum { EQUAL, NOT_EQUAL, AT_LEAST, AT_MOST, ABOVE, BELOW, COMPARISONS };
static const char *const comparison_names[COMPARISONS] = {"==", "!=", ">=", "<=", ">", "<"};

static const char *skip_blanks(const char *p)
{
    while (isspace((unsigned char)*p)) {
        p++;
    }
    return p;
}

/* Index of the first name that `p` begins with, or n. Longer names come before their prefixes. */
static uint32_t match(const char *p, const char *const *names, uint32_t n, bool word, size_t *length)
{
    for (uint32_t i = 0; i < n; i++) {
        *length = strlen(names[i]);
        if (strncmp(p, names[i], *length) == 0 && !(word && isalnum((unsigned char)p[*length]))) {
            return i;
        }
    }
    return n;
}

/* The end of a value: the next word "and", or the end of the text. */
static const char *value_end(const char *p)
{
    if (*p == '\'') {
        const char *quote = strchr(p + 1, '\'');
        return quote != NULL ? quote + 1 : p + strlen(p);
    }
    for (const char *end = p; *end != '\0'; end++) {
        if (isspace((unsigned char)*end) && strncmp(skip_blanks(end), "and", 3) == 0 &&
            isspace((unsigned char)skip_blanks(end)[3])) {
            return end;
        }
    }
    return p + strlen(p);
}

static bool known_dtype(const char *text)
{
    for (uint32_t i = 0; i < BPS_DTYPES; i++) {
        if (fnmatch(text, bps_dtype_name(i), 0) == 0) {
            return true;
        }
    }
    return false;
}

static bool known_op(const char *text)
{
    for (uint32_t i = 0; i < BPS_OPS; i++) {
        if (fnmatch(text, bps_op_name(i), 0) == 0) {
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

static bps_status check_value(struct bps_clause *clause, struct bps_report *report)
{
    const char *text = clause->text;
    if (clause->field == BYTES && bps_parse_size(text, &clause->number) != BPS_OK) {
        BPS_REPORT(report, "'%s' is not a size; expected a number with a unit, such as 64 KiB", text);
        return BPS_ERR_CONF;
    }
    if (clause->field == COUNT && !parse_count(text, &clause->number)) {
        BPS_REPORT(report, "'%s' is not a number of elements", text);
        return BPS_ERR_CONF;
    }
    if (clause->field == DTYPE && !known_dtype(text)) {
        BPS_REPORT(report, "'%s' is not a data type; expected float32, float16, int64 and so on", text);
        return BPS_ERR_CONF;
    }
    if (clause->field == OP && !known_op(text)) {
        BPS_REPORT(report, "'%s' is not an operation; expected sum, average, min, max or product", text);
        return BPS_ERR_CONF;
    }
    if (clause->field >= DTYPE && clause->comparison > NOT_EQUAL) {
        BPS_REPORT(report, "%s can only be compared by == and !=", field_names[clause->field]);
        return BPS_ERR_CONF;
    }
    return BPS_OK;
}

/* Reads "FIELD COMPARISON VALUE" and moves *p behind it. */
static bps_status parse_clause(const char **p, struct bps_clause *clause, struct bps_report *report)
{
    size_t length;
    const char *at = skip_blanks(*p);
    clause->field = match(at, field_names, FIELDS, true, &length);
    if (clause->field == FIELDS) {
        BPS_REPORT(report, "'%s' does not begin with a field; expected bytes, count, dtype, op or name", at);
        return BPS_ERR_CONF;
    }
    at = skip_blanks(at + length);
    clause->comparison = match(at, comparison_names, COMPARISONS, false, &length);
    if (clause->comparison == COMPARISONS) {
        BPS_REPORT(report, "'%s' does not begin with a comparison; expected ==, !=, >=, <=, > or <", at);
        return BPS_ERR_CONF;
    }
    at = skip_blanks(at + length);
    const char *end = value_end(at);
    *p = end;
    while (end > at && isspace((unsigned char)end[-1])) {
        end--;
    }
    if (end - at >= 2 && *at == '\'' && end[-1] == '\'') {
        at++;
        end--;
    }
    if (end == at || (size_t)(end - at) >= sizeof clause->text) {
        BPS_REPORT(report, "a value is missing or too long after '%s'", comparison_names[clause->comparison]);
        return BPS_ERR_CONF;
    }
    memcpy(clause->text, at, (size_t)(end - at));
    clause->text[end - at] = '\0';
    return check_value(clause, report);
}

bps_status bps_condition_parse(const char *text, struct bps_condition *out, struct bps_report *report)
{
    const char *p = text;
    memset(out, 0, sizeof *out);
    for (;;) {
        if (out->clauses == BPS_CLAUSES_LIMIT) {
            BPS_REPORT(report, "more than %u comparisons", BPS_CLAUSES_LIMIT);
            return BPS_ERR_CONF;
        }
        bps_status status = parse_clause(&p, &out->clause[out->clauses++], report);
        if (status != BPS_OK) {
            return status;
        }
        p = skip_blanks(p);
        if (*p == '\0') {
            return BPS_OK;
        }
        if (strncmp(p, "and", 3) != 0 || !isspace((unsigned char)p[3])) {
            BPS_REPORT(report, "'%s' is not expected; comparisons are joined by 'and'", p);
            return BPS_ERR_CONF;
        }
        p += 3;
    }
}

static bool compare(uint32_t comparison, uint64_t a, uint64_t b)
{
    switch (comparison) {
    case EQUAL:
        return a == b;
    case NOT_EQUAL:
        return a != b;
    case AT_LEAST:
        return a >= b;
    case AT_MOST:
        return a <= b;
    case ABOVE:
        return a > b;
    default:
        return a < b;
    }
}

static bool clause_holds(const struct bps_clause *clause, const struct bps_tensor_info *tensor)
{
    const char *name = clause->field == DTYPE ? bps_dtype_name(tensor->dtype)
                       : clause->field == OP  ? bps_op_name(tensor->op)
                                              : tensor->name;
    switch (clause->field) {
    case BYTES:
        return compare(clause->comparison, tensor->count * bps_dtype_size(tensor->dtype), clause->number);
    case COUNT:
        return compare(clause->comparison, tensor->count, clause->number);
    default:
        return (fnmatch(clause->text, name, 0) == 0) == (clause->comparison == EQUAL);
    }
}

bool bps_condition_holds(const struct bps_condition *condition, const struct bps_tensor_info *tensor)
{
    for (uint32_t i = 0; i < condition->clauses; i++) {
        if (!clause_holds(&condition->clause[i], tensor)) {
            return false;
        }
    }
    return true;
}
