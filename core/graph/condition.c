/* SPDX-License-Identifier: Apache-2.0 */
/*
 * condition.c - parsing and deciding `when`.
 *
 *   condition  = term { "or" term }
 *   term       = factor { "and" factor }
 *   factor     = { "not" } ( "(" condition ")" | comparison )
 *   comparison = FIELD OPERATOR VALUE
 *
 * There is a function for each rule.
 */
#include "graph/condition.h"

#include <string.h>

#include "base/report.h"

#define BLANKS    " \t\n\v\f\r"
#define OPERATORS "=!<>~"

static const char *const field_names[BPS_FIELDS] = {
    [BPS_FIELD_BYTES] = "bytes", [BPS_FIELD_COUNT] = "count", [BPS_FIELD_DTYPE] = "dtype",
    [BPS_FIELD_OP] = "op",       [BPS_FIELD_NAME] = "name",
};

static const char *const operator_names[BPS_OPERATORS] = {
    [BPS_AT_LEAST] = ">=", [BPS_AT_MOST] = "<=",   [BPS_ABOVE] = ">", [BPS_BELOW] = "<",
    [BPS_EQUAL] = "==",    [BPS_NOT_EQUAL] = "!=", [BPS_LIKE] = "~",  [BPS_NOT_LIKE] = "!~",
};

struct parser {
    const char *last; /* what was read last, for reports */
    int last_length;  /* 0: nothing yet */
    const char *at;   /* the rest; no blank at its beginning */
    uint32_t open;    /* parentheses */
    struct bps_condition *out;
    struct bps_report *report;
};

/* ---- words ---- */

static void condition_take(struct parser *parser, size_t length)
{
    parser->last = parser->at;
    parser->last_length = (int)length;
    parser->at += length;
    parser->at += strspn(parser->at, BLANKS);
}

static size_t word_length(const char *at)
{
    return strcspn(at, BLANKS "()" OPERATORS);
}

static bool is_word(const char *at, const char *word)
{
    return word_length(at) == strlen(word) && strncmp(at, word, strlen(word)) == 0;
}

/* The length of the value that the text begins with; 0: there is none, or its quote is not closed. */
static size_t value_length(const char *text)
{
    if (*text == '\'') {
        const char *quote = strchr(text + 1, '\'');
        return quote != NULL ? (size_t)(quote + 1 - text) : 0;
    }
    size_t length = 0;
    for (const char *at = text; *at != '\0' && *at != ')' && !is_word(at, "and") && !is_word(at, "or");) {
        at += strcspn(at, BLANKS ")");
        length = (size_t)(at - text);
        at += strspn(at, BLANKS);
    }
    return length;
}

static bps_status unexpected(const struct parser *parser, const char *expected)
{
    const char *quote = *parser->at != '\0' ? "'" : "";
    const char *found = *parser->at != '\0' ? parser->at : "nothing";
    if (parser->last_length == 0) {
        return bps_fail(parser->report, BPS_ERR_CONF, "found %s%s%s at the beginning; expected %s", quote, found, quote,
                        expected);
    }
    return bps_fail(parser->report, BPS_ERR_CONF, "found %s%s%s after '%.*s'; expected %s", quote, found, quote,
                    parser->last_length, parser->last, expected);
}

/* ---- comparisons ---- */

static bps_status parse_field(struct parser *parser, enum bps_field *field)
{
    for (*field = 0; *field < BPS_FIELDS; (*field)++) {
        if (is_word(parser->at, field_names[*field])) {
            condition_take(parser, strlen(field_names[*field]));
            return BPS_OK;
        }
    }
    return unexpected(parser, "not, ( or a field: bytes, count, dtype, op or name");
}

static bps_status parse_operator(struct parser *parser, enum bps_field field, enum bps_operator *operator)
{
    bool number = bps_field_is_number(field);
    enum bps_operator end = number ? BPS_NOT_EQUAL + 1 : BPS_OPERATORS;
    size_t length = strspn(parser->at, OPERATORS);
    for (*operator= number ? 0 : BPS_EQUAL; *operator<end; (*operator)++) {
        const char *name = operator_names[*operator];
        if (strlen(name) == length && strncmp(parser->at, name, length) == 0) {
            condition_take(parser, length);
            return BPS_OK;
        }
    }
    return unexpected(parser, number ? "==, !=, >=, <=, > or <" : "==, !=, ~ or !~");
}

static bps_status condition_parse_value(struct parser *parser, char *text, size_t n)
{
    const char *value = parser->at;
    bool quoted = *value == '\'';
    size_t length = value_length(value);
    if (length == 0) {
        return unexpected(parser, quoted ? "a value with ' at both ends" : "a value");
    }
    if (quoted) {
        value++;
        length -= 2;
    }
    if (length == 0 || length >= n) {
        return bps_fail(parser->report, BPS_ERR_CONF, "found a value of %zu characters in '%s'; expected 1..%zu",
                        length, parser->at, n - 1);
    }
    condition_take(parser, quoted ? length + 2 : length);
    memcpy(text, value, length);
    text[length] = '\0';
    return BPS_OK;
}

static void add_step(struct bps_condition *condition, enum bps_condition_step_kind kind)
{
    condition->step[condition->steps++] = (struct bps_condition_step){.kind = kind};
}

static bps_status parse_comparison(struct parser *parser)
{
    const char *begin = parser->at;
    struct bps_comparison comparison = {0};
    bps_status status = parse_field(parser, &comparison.field);
    if (status == BPS_OK && parser->out->comparisons == BPS_COMPARISONS_LIMIT) {
        return bps_fail(parser->report, BPS_ERR_CONF, "found '%s' after %u comparisons; expected no more", begin,
                        BPS_COMPARISONS_LIMIT);
    }
    if (status == BPS_OK) {
        status = parse_operator(parser, comparison.field, &comparison.operator);
    }
    if (status == BPS_OK) {
        status = condition_parse_value(parser, comparison.text, sizeof comparison.text);
    }
    if (status != BPS_OK) {
        return status;
    }
    const char *problem = bps_comparison_read(&comparison);
    if (problem != NULL) {
        return bps_fail(parser->report, BPS_ERR_CONF, "'%s' in '%s' is %s", comparison.text, begin, problem);
    }
    parser->out->comparison[parser->out->comparisons++] = comparison;
    add_step(parser->out, BPS_STEP_COMPARE);
    return BPS_OK;
}

/* ---- what joins them ---- */

static bps_status parse_condition(struct parser *parser);

static bps_status parse_parentheses(struct parser *parser)
{
    if (parser->open == BPS_NESTING_LIMIT) {
        return bps_fail(parser->report, BPS_ERR_CONF, "found '%s' within %u open parentheses; expected no more",
                        parser->at, BPS_NESTING_LIMIT);
    }
    parser->open++;
    condition_take(parser, strlen("("));
    bps_status status = parse_condition(parser);
    if (status != BPS_OK) {
        return status;
    }
    if (*parser->at != ')') {
        return unexpected(parser, "and, or or )");
    }
    condition_take(parser, strlen(")"));
    parser->open--;
    return BPS_OK;
}

static bps_status parse_factor(struct parser *parser)
{
    bool negated = false;
    while (is_word(parser->at, "not")) {
        condition_take(parser, strlen("not"));
        negated = !negated;
    }
    bps_status status = *parser->at == '(' ? parse_parentheses(parser) : parse_comparison(parser);
    if (status == BPS_OK && negated) {
        struct bps_condition_step *last = &parser->out->step[parser->out->steps - 1];
        last->negated = !last->negated;
    }
    return status;
}

static bps_status parse_joined(struct parser *parser, bps_status (*parse_operand)(struct parser *), const char *word,
                               enum bps_condition_step_kind kind)
{
    bps_status status = parse_operand(parser);
    while (status == BPS_OK && is_word(parser->at, word)) {
        condition_take(parser, strlen(word));
        status = parse_operand(parser);
        if (status == BPS_OK) {
            add_step(parser->out, kind);
        }
    }
    return status;
}

static bps_status parse_term(struct parser *parser)
{
    return parse_joined(parser, parse_factor, "and", BPS_STEP_AND);
}

static bps_status parse_condition(struct parser *parser)
{
    return parse_joined(parser, parse_term, "or", BPS_STEP_OR);
}

bps_status bps_condition_parse(const char *text, struct bps_condition *out, struct bps_report *report)
{
    struct parser parser = {.at = text + strspn(text, BLANKS), .out = out, .report = report};
    memset(out, 0, sizeof *out);
    bps_status status = parse_condition(&parser);
    if (status == BPS_OK && *parser.at != '\0') {
        return unexpected(&parser, *parser.at == ')' ? "and, or or the end, as no ( is open" : "and, or or the end");
    }
    return status;
}

/* ---- deciding ---- */

bool bps_condition_holds(const struct bps_condition *condition, const struct bps_tensor_info *tensor)
{
    bool answer[BPS_COMPARISONS_LIMIT] = {true};
    uint32_t next = 0, answers = 0;
    for (uint32_t i = 0; i < condition->steps; i++) {
        const struct bps_condition_step *step = &condition->step[i];
        if (step->kind == BPS_STEP_COMPARE) {
            answer[answers++] = bps_comparison_holds(&condition->comparison[next++], tensor);
        } else {
            bool right = answer[--answers];
            bool *left = &answer[answers - 1];
            *left = step->kind == BPS_STEP_AND ? *left && right : *left || right;
        }
        answer[answers - 1] = answer[answers - 1] != step->negated;
    }
    return answer[0];
}

bool bps_condition_asks_op(const struct bps_condition *condition)
{
    for (uint32_t i = 0; i < condition->comparisons; i++) {
        if (condition->comparison[i].field == BPS_FIELD_OP) {
            return true;
        }
    }
    return false;
}
