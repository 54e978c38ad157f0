/* SPDX-License-Identifier: Apache-2.0 */
/* ask.c - see ask.h. Fields are rows: what a plugin has put there, and what it may. */
#include "plugin/ask.h"

#include <string.h>

#include "base/report.h"
#include "plugin/returned.h"

/* ---- fields ---- */

struct field {
    const char *name;
    enum { NUMBER, BITS, TEXT, FUNCTION } is;
    uint64_t value; /* of a text and a function: whether it is there */
    uint64_t least, most;
    const char *expected; /* of a text and a function */
};

static bool is_allowed(const struct field *field)
{
    switch (field->is) {
    case NUMBER:
        return field->value >= field->least && field->value <= field->most;
    case BITS:
        return field->value != 0 && (field->value & ~field->most) == 0;
    default:
        return field->value != 0;
    }
}

static bps_status blame_field(const struct bps_instance *plugin, const char *callback, const struct field *field,
                              struct bps_report *report)
{
    switch (field->is) {
    case NUMBER:
        return bps_blame(plugin, callback, report, "%s is %lu; allowed are %lu to %lu", field->name, field->value,
                         field->least, field->most);
    case BITS:
        return bps_blame(plugin, callback, report, "%s is 0x%lx; allowed are bits of 0x%lx, one at least", field->name,
                         field->value, field->most);
    default:
        return bps_blame(plugin, callback, report, "%s is NULL; expected %s", field->name, field->expected);
    }
}

static bps_status check_fields(const struct bps_instance *plugin, const char *callback, const struct field *fields,
                               size_t n, struct bps_report *report)
{
    for (size_t i = 0; i < n; i++) {
        if (!is_allowed(&fields[i])) {
            return blame_field(plugin, callback, &fields[i], report);
        }
    }
    return BPS_OK;
}

/* Any byte may lie in a bool that a plugin has not set, and only two of them may be read as one. */
static uint64_t byte_of(const bool *value)
{
    uint8_t byte;
    memcpy(&byte, value, 1);
    return byte;
}

/* ---- what an instance is ---- */

#define LANES_MOST 64u /* what is more than the core makes is as many as it makes */

static bps_status ask_transport(struct bps_instance *instance, struct bps_report *report)
{
    struct bps_transport_attr *attr = &instance->attr.transport;
    BPS_ROOMY(bps_transport_attr) answer = {.it = {.lanes = 1}};
    BPS_CALLING(instance, "query", NULL);
    ((const struct bps_transport_ops *)instance->ops)->query(instance->self, &answer.it);
    *attr = answer.it;
    const struct field fields[] = {
        {"lanes", NUMBER, attr->lanes, 1, LANES_MOST, NULL},
        {"local", NUMBER, byte_of(&attr->local), 0, 1, NULL},
    };
    return check_fields(instance, "query", fields, sizeof fields / sizeof *fields, report);
}

static bps_status ask_stage(struct bps_instance *instance, struct bps_report *report)
{
    static const char coding[] = "a coding, such as \"plain\"";
    struct bps_stage_attr *attr = &instance->attr.stage;
    BPS_ROOMY(bps_stage_attr) answer = {.it = {.ops = 0}};
    BPS_CALLING(instance, "query", NULL);
    ((const struct bps_stage_ops *)instance->ops)->query(instance->self, &answer.it);
    *attr = answer.it;
    const struct field fields[] = {
        {"ops", BITS, attr->ops, 0, (1u << BPS_OPS) - 1, NULL},
        {"dtypes", BITS, attr->dtypes, 0, (1u << BPS_DTYPES) - 1, NULL},
        {"memory", BITS, attr->memory, 0, BPS_MEMORY_HOST | BPS_MEMORY_DEVICE, NULL},
        {"executor", NUMBER, attr->executor, BPS_EXECUTOR_IO, BPS_EXECUTOR_CPU, NULL},
        {"writes", NUMBER, attr->writes, 0, 1, NULL},
        {"takes", TEXT, attr->takes != NULL, 0, 0, coding},
        {"gives", TEXT, attr->gives != NULL, 0, 0, coding},
    };
    return check_fields(instance, "query", fields, sizeof fields / sizeof *fields, report);
}

bps_status bps_ask_attr(struct bps_instance *instance, struct bps_report *report)
{
    switch (instance->loaded->plugin->kind) {
    case BPS_KIND_TRANSPORT:
        return ask_transport(instance, report);
    case BPS_KIND_STAGE:
        return ask_stage(instance, report);
    default:
        return BPS_OK;
    }
}

/* ---- kernels ---- */

/* The type that elements are accumulated in, as reducer.h says. */
static uint32_t accumulator_of(uint32_t dtype)
{
    const uint32_t narrow = BPS_DTYPE_BIT(BPS_FLOAT16) | BPS_DTYPE_BIT(BPS_BFLOAT16) |
                            BPS_DTYPE_BIT(BPS_FLOAT8_E4M3FN) | BPS_DTYPE_BIT(BPS_FLOAT8_E5M2);
    return (BPS_DTYPE_BIT(dtype) & narrow) != 0 ? BPS_FLOAT32 : dtype;
}

static bps_status blame_kernels(const struct bps_instance *reducer, uint32_t op, uint32_t dtype,
                                const struct bps_kernels *out, struct bps_report *report)
{
    bool average = op == BPS_AVERAGE;
    uint32_t accumulator = accumulator_of(dtype);
    const char *function = average ? "a function" : "a function, as for the other three";
    char callback[64];
    snprintf(callback, sizeof callback, "kernels of %s of %s", bps_op_name(op), bps_dtype_name(dtype));
    if (out->accumulator != accumulator) {
        return bps_blame(reducer, callback, report, "accumulator is %u (%s); allowed is %u (%s)", out->accumulator,
                         bps_dtype_name(out->accumulator), accumulator, bps_dtype_name(accumulator));
    }
    const struct field fields[] = {
        {"reduce", FUNCTION, out->reduce != NULL, 0, 0, function},
        {"first", FUNCTION, average || out->first != NULL, 0, 0, function},
        {"fold", FUNCTION, average || out->fold != NULL, 0, 0, function},
        {"finish", FUNCTION, average || out->finish != NULL, 0, 0, function},
    };
    return check_fields(reducer, callback, fields, sizeof fields / sizeof *fields, report);
}

/* For each round of each slice: words are made of it only if something is wrong. */
bps_status bps_ask_kernels(const struct bps_instance *reducer, uint32_t op, uint32_t dtype, struct bps_kernels *out,
                           struct bps_report *report)
{
    const struct bps_reducer_ops *ops = reducer->ops;
    BPS_ROOMY(bps_kernels) answer = {.it = {.accumulator = BPS_DTYPES}};
    BPS_CALLING(reducer, "kernels", NULL);
    bps_status status = ops->kernels(reducer->self, op, dtype, &answer.it);
    *out = answer.it;
    if (status != BPS_OK || reducer->names.timed) {
        status = bps_returned(reducer, "kernels", BPS_OK, status, report);
    }
    bool steps = op == BPS_AVERAGE || (out->first != NULL && out->fold != NULL && out->finish != NULL);
    if (status == BPS_OK && (out->accumulator != accumulator_of(dtype) || out->reduce == NULL || !steps)) {
        return blame_kernels(reducer, op, dtype, out, report);
    }
    return status;
}

/* ---- texts ---- */

bps_status bps_ask_listen(const struct bps_instance *transport, const char *address, bps_accept_fn accept, void *arg,
                          char *actual, size_t n, struct bps_report *report)
{
    const struct bps_transport_ops *ops = transport->ops;
    struct bps_report why = {""};
    memset(actual, 0, n);
    BPS_CALLING(transport, "listen", NULL);
    bps_status status = ops->listen(transport->self, address, accept, arg, actual, n, &why);
    status = bps_returned_told(transport, "listen", status, &why);
    bool ends = memchr(actual, '\0', n) != NULL;
    if (status == BPS_OK && (actual[0] == '\0' || !ends)) {
        status =
            bps_blame(transport, "listen", &why, "actual %s; expected the address that peers dial, at most %zu bytes",
                      ends ? "is empty" : "is not terminated", n - 1);
    }
    if (status != BPS_OK) {
        actual[0] = '\0';
        BPS_REPORT(report, "%s", why.text);
    }
    return status;
}

typedef void (*describe_fn)(void *instance, char *text, size_t n);

static describe_fn describe_of(const struct bps_instance *instance)
{
    const union bps_ops *ops = instance->ops;
    switch (instance->loaded->plugin->kind) {
    case BPS_KIND_TRANSPORT:
        return ops->transport.describe;
    case BPS_KIND_REDUCER:
        return ops->reducer.describe;
    case BPS_KIND_COMPRESSOR:
        return ops->compressor.describe;
    case BPS_KIND_STAGE:
        return ops->stage.describe;
    default:
        return NULL;
    }
}

void bps_ask_describe(const struct bps_instance *instance, char *text, size_t n)
{
    describe_fn describe = describe_of(instance);
    memset(text, 0, n);
    if (describe == NULL) {
        return;
    }
    BPS_CALLING(instance, "describe", NULL);
    describe(instance->self, text, n);
    if (memchr(text, '\0', n) == NULL) {
        text[n - 1] = '\0';
        (void)bps_blame(instance, "describe", NULL,
                        "its text is not terminated; expected at most %zu bytes and a terminating 0", n - 1);
    }
    bps_make_printable(text);
}
