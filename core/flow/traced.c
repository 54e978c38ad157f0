/* SPDX-License-Identifier: Apache-2.0 */
/* traced.c - the records of operations and their partitions. */
#include "flow/traced.h"

#include "base/clock.h"
#include "flow/step.h"

/* The n-th operation of its tensor that this worker takes part in; of one without a name no one knows. */
static uint32_t traced_number_of(const struct bps_tensor_entry *tensor)
{
    return tensor->named.unnamed ? 0 : tensor->round - tensor->first_round;
}

void bps_note_begin(struct bps_operation *operation)
{
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    operation->trace = (struct bps_trace_record){
        .at = operation->started,
        .step = bps_trace_begin(operation->steps, traced_number_of(tensor)),
        .tensor = tensor->id,
        .round = tensor->named.unnamed ? 0 : tensor->round,
        .bytes = operation->bytes < UINT32_MAX ? (uint32_t)operation->bytes : UINT32_MAX,
        .label = bps_trace_label(bps_operation_name(operation->kind, operation->op)),
        .kind = BPS_TRACE_OPERATION,
    };
    if (operation->trace.step != 0) {
        if (!tensor->named.unnamed) {
            bps_trace_name(tensor->id, tensor->named.name);
        }
        bps_trace_note(&operation->trace);
    }
}

/* Beginning or end of something that belongs to the operation. */
static struct bps_trace_record record_of(const struct bps_operation *operation, enum bps_trace_kind kind, bool end)
{
    struct bps_trace_record record = operation->trace;
    record.at = 0;
    record.kind = (uint8_t)kind;
    record.end = end;
    return record;
}

void bps_note_end(const struct bps_operation *operation)
{
    const struct bps_trace_record record = record_of(operation, BPS_TRACE_OPERATION, true);
    bps_trace_note(&record);
}

uint64_t bps_note_wait_begin(bps_handle handle)
{
    static _Thread_local struct {
        bps_handle handle;
        uint64_t since;
    } last;
    if (last.handle != handle) {
        last.handle = handle;
        last.since = bps_now();
    }
    return last.since;
}

void bps_note_waited(const struct bps_operation *operation, uint64_t since)
{
    struct bps_trace_record record = record_of(operation, BPS_TRACE_WAIT, true);
    bps_trace_note(&record);
    record.at = since;
    record.end = false;
    bps_trace_note(&record);
}

void bps_note_stage(const struct bps_task *task, bool end)
{
    struct bps_trace_record record = record_of(&task->tensor->operation, BPS_TRACE_STAGE, end);
    record.label = bps_trace_label(bps_task_on(task)->node->name);
    record.partition = task->partition;
    record.bytes = task->bytes;
    bps_trace_note(&record);
}

void bps_note_slice(const struct bps_task *task, enum bps_trace_kind kind, uint32_t peer, uint32_t offset,
                    uint32_t bytes, bool end)
{
    struct bps_trace_record record = record_of(&task->tensor->operation, kind, end);
    record.label = 0;
    record.partition = task->partition;
    record.offset = offset;
    record.bytes = bytes;
    record.peer = peer;
    bps_trace_note(&record);
}
