/* SPDX-License-Identifier: Apache-2.0 */
/* trace_event.c - one event of a timeline: its numbers, if they can be. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/trace_read.h"

/* So that the sum of a moment and a duration, in nanoseconds, is far from what an integer holds. */
#define MOMENT_LIMIT 2e15 /* microseconds */

enum { TENSOR = 1, STEP = 2, SHARD = 4, RANK = 8 };

static const struct {
    const char *category;
    unsigned must; /* have these arguments */
} kinds[] = {
    [BPS_CMD_TRACE_OPERATION] = {"operation", TENSOR | STEP},
    [BPS_CMD_TRACE_WAIT] = {"wait", TENSOR},
    [BPS_CMD_TRACE_STAGE] = {"stage", TENSOR},
    [BPS_CMD_TRACE_CREDIT] = {"credit", SHARD},
    [BPS_CMD_TRACE_PUSH] = {"push", TENSOR},
    [BPS_CMD_TRACE_RESULT] = {"result", TENSOR},
    [BPS_CMD_TRACE_RECEIVE] = {"receive", TENSOR | RANK},
    [BPS_CMD_TRACE_GATHER] = {"gather", TENSOR},
    [BPS_CMD_TRACE_SUM] = {"sum", TENSOR},
    [BPS_CMD_TRACE_ANSWER] = {"answer", TENSOR | RANK},
};

bool bps_cmd_trace_whole(const json_t *object, const char *key, uint64_t most, uint64_t *out)
{
    const json_t *value = json_object_get(object, key);
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < 0 || (uint64_t)number > most) {
        return false;
    }
    *out = (uint64_t)number;
    return true;
}

/* False: there is such an argument, but it is no number that it can be; or there is none, and there must be. */
static bool argument(const json_t *args, const char *key, bool must, uint64_t most, uint64_t *out)
{
    return json_object_get(args, key) == NULL ? !must : bps_cmd_trace_whole(args, key, most, out);
}

static bool argument32(const json_t *args, const char *key, bool must, uint32_t *out)
{
    uint64_t value = *out;
    bool good = argument(args, key, must, UINT32_MAX, &value);
    *out = (uint32_t)value;
    return good;
}

static const char *read_arguments(const json_t *args, unsigned must, struct bps_cmd_trace_event *out)
{
    if (!argument(args, "tensor", (must & TENSOR) != 0, INT64_MAX, &out->tensor) ||
        !argument(args, "round", (must & TENSOR) != 0, INT64_MAX, &out->round)) {
        return "its tensor and round are not numbers from 0 on";
    }
    if (!argument(args, "step", (must & STEP) != 0, INT64_MAX, &out->step)) {
        return "its step is not a number from 0 on";
    }
    if (!argument32(args, "partition", false, &out->partition) ||
        !argument(args, "offset", false, INT64_MAX, &out->offset)) {
        return "its partition and offset are not numbers from 0 on";
    }
    if (!argument32(args, "shard", (must & SHARD) != 0, &out->shard)) {
        return "its shard is not a number from 0 on";
    }
    return argument32(args, "rank", (must & RANK) != 0, &out->rank) ? NULL : "its rank is not a number from 0 on";
}

static const char *read_times(const json_t *event, struct bps_cmd_trace_event *out)
{
    const json_t *ts = json_object_get(event, "ts"), *dur = json_object_get(event, "dur");
    double begin = json_number_value(ts), duration = json_number_value(dur);
    if (!json_is_number(ts) || !(fabs(begin) <= MOMENT_LIMIT)) {
        return "its ts is not a number of microseconds";
    }
    if (!json_is_number(dur) || !(duration >= 0 && duration <= MOMENT_LIMIT)) {
        return "its dur is not a number of microseconds from 0 on";
    }
    out->begin = llround(begin * 1000);
    out->end = out->begin + llround(duration * 1000);
    out->lasts = true;
    return NULL;
}

static uint32_t kind_of(const char *category)
{
    uint32_t kind = 0;
    while (kind < sizeof kinds / sizeof *kinds && strcmp(category, kinds[kind].category) != 0) {
        kind++;
    }
    return kind;
}

const char *bps_cmd_trace_event_read(const json_t *event, struct bps_cmd_trace_event *out)
{
    *out = (struct bps_cmd_trace_event){.kind = BPS_CMD_TRACE_OTHER, .shard = BPS_CMD_TRACE_NO_SHARD};
    const char *phase = json_string_value(json_object_get(event, "ph"));
    const char *category = json_string_value(json_object_get(event, "cat"));
    const char *name = json_string_value(json_object_get(event, "name"));
    uint64_t pid, tid = 0;
    if (phase == NULL || name == NULL || !bps_cmd_trace_whole(event, "pid", INT32_MAX, &pid) ||
        !argument(event, "tid", strcmp(phase, "X") == 0, INT32_MAX, &tid)) {
        return "it has no ph, name, pid or tid as an event has";
    }
    out->pid = (uint32_t)pid;
    out->tid = (uint32_t)tid;
    if (strlen(phase) == 1 && strchr("stf", phase[0]) != NULL) {
        out->kind = BPS_CMD_TRACE_ARROW;
    }
    if (strcmp(phase, "X") != 0) {
        return NULL;
    }
    const char *wrong = read_times(event, out);
    uint32_t kind = category == NULL ? BPS_CMD_TRACE_OTHER : kind_of(category);
    if (wrong != NULL || kind == BPS_CMD_TRACE_OTHER) {
        return wrong;
    }
    char number[32];
    out->kind = kind;
    wrong = read_arguments(json_object_get(event, "args"), kinds[kind].must, out);
    snprintf(number, sizeof number, "tensor %" PRIu64, out->tensor);
    out->unnamed = strcmp(name, number) == 0;
    out->push_pull = kind == BPS_CMD_TRACE_STAGE && strcmp(name, "push_pull") == 0;
    return wrong;
}
