/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_condition.c - any text as the condition of a stage: refused with a reason, or answered. */
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

static void try_condition(const char *text)
{
    static const struct bps_tensor_info tensors[] = {
        {.name = "layer1.bias", .dtype = BPS_FLOAT32, .op = BPS_AVERAGE, .count = 1u << 20, .partitions = 1},
        {.name = "", .dtype = BPS_BOOL, .op = BPS_OPS, .count = 0, .partitions = 1},
        {.name = "[*]\\", .dtype = BPS_BFLOAT16, .op = BPS_SUM, .count = 1ull << 45, .partitions = 1u << 24},
    };
    struct bps_report report = {""};
    struct bps_condition condition;
    if (bps_condition_parse(text, &condition, &report) != BPS_OK) {
        check(report.text[0] != '\0');
        return;
    }
    check(condition.clauses <= BPS_CLAUSES_LIMIT);
    for (uint32_t i = 0; i < condition.clauses; i++) {
        check(memchr(condition.clause[i].text, 0, sizeof condition.clause[i].text) != NULL);
    }
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        bool first = bps_condition_holds(&condition, &tensors[i]);
        check(first == bps_condition_holds(&condition, &tensors[i]));
    }
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
