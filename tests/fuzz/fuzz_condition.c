/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_condition.c - any text as the condition of a stage: refused with a reason, or answered. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/condition.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds) {
        abort();
    }
}

static const struct bps_tensor_info tensors[] = {
    {.name = "layer1.bias", .dtype = BPS_FLOAT32, .op = BPS_AVERAGE, .count = 1u << 20, .partitions = 1},
    {.name = "", .dtype = BPS_BOOL, .op = BPS_OPS, .count = 0, .partitions = 1},
    {.name = "[*]\\", .dtype = BPS_BFLOAT16, .op = BPS_SUM, .count = 1ull << 45, .partitions = 1u << 24},
};

/* Each step finds its operands, and one answer is left. */
static void check_steps(const struct bps_condition *condition)
{
    uint32_t comparisons = 0, answers = 0;
    check(condition->comparisons <= BPS_COMPARISONS_LIMIT);
    check(condition->steps == 2 * condition->comparisons - 1);
    for (uint32_t i = 0; i < condition->steps; i++) {
        bool compares = condition->step[i].kind == BPS_STEP_COMPARE;
        check(compares || answers >= 2);
        comparisons += compares;
        answers = compares ? answers + 1 : answers - 1;
    }
    check(comparisons == condition->comparisons && answers == 1);
    for (uint32_t i = 0; i < comparisons; i++) {
        const struct bps_comparison *comparison = &condition->comparison[i];
        check(memchr(comparison->text, 0, sizeof comparison->text) != NULL && comparison->text[0] != '\0');
        check(comparison->field < BPS_FIELDS && comparison->operator<BPS_OPERATORS);
    }
}

/* What was accepted is also accepted behind `not`, unless it was nested to the limit, and has the other answer. */
static void check_opposite(const struct bps_condition *condition, const char *text)
{
    static const char before[] = "not (", after[] = ")";
    struct bps_report report = {""};
    struct bps_condition opposite;
    size_t n = strlen(text) + sizeof before + sizeof after;
    char *negated = malloc(n);
    check(negated != NULL);
    snprintf(negated, n, "%s%s%s", before, text, after);
    bps_status status = bps_condition_parse(negated, &opposite, &report);
    free(negated);
    if (status != BPS_OK) {
        check(strstr(report.text, "open parentheses") != NULL);
        return;
    }
    check(bps_condition_asks_op(condition) == bps_condition_asks_op(&opposite));
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        check(bps_condition_holds(condition, &tensors[i]) != bps_condition_holds(&opposite, &tensors[i]));
    }
}

static void try_condition(const char *text)
{
    struct bps_report report = {""};
    struct bps_condition condition;
    if (bps_condition_parse(text, &condition, &report) != BPS_OK) {
        check(report.text[0] != '\0');
        return;
    }
    check_steps(&condition);
    check_opposite(&condition, text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    check(text != NULL);
    if (size > 0) {
        memcpy(text, data, size);
    }
    text[size] = '\0';
    try_condition(text);
    free(text);
    return 0;
}
