/* SPDX-License-Identifier: Apache-2.0 */
/*
 * traced.h - the records of operations and their partitions. What is done for an operation that is not recorded costs
 * one look at its step.
 */
#ifndef BPS_FLOW_TRACED_H
#define BPS_FLOW_TRACED_H

#include "flow/flow.h"

/* ---- traced.c: of an operation that is recorded, or may be ---- */
void bps_note_begin(struct bps_operation *operation);
void bps_note_end(const struct bps_operation *operation);
uint64_t bps_note_wait_begin(bps_handle handle);
void bps_note_waited(const struct bps_operation *operation, uint64_t since);
void bps_note_stage(const struct bps_task *task, bool end);
void bps_note_slice(const struct bps_task *task, enum bps_trace_kind kind, uint32_t peer, uint32_t offset,
                    uint32_t bytes, bool end);

/* [core] Its tensor has its id, and its round has begun. */
static inline void bps_traced_begin(struct bps_operation *operation)
{
    if (bps_trace_is_on()) {
        bps_note_begin(operation);
    }
}

/* [core] It is about to end. */
static inline void bps_traced_end(const struct bps_operation *operation)
{
    if (operation->trace.step != 0) {
        bps_note_end(operation);
    }
}

/* [app] This thread is about to wait for an operation, again if its time was up before. Returns since when it waits. */
static inline uint64_t bps_traced_wait_begin(bps_handle handle)
{
    return bps_trace_is_on() ? bps_note_wait_begin(handle) : 0;
}

/* [app] It is over, and not given back yet. */
static inline void bps_traced_waited(const struct bps_operation *operation, uint64_t since)
{
    if (since != 0 && operation->trace.step != 0) {
        bps_note_waited(operation, since);
    }
}

/* [core] A task enters a step of its way, or leaves it. */
static inline void bps_traced_stage(const struct bps_task *task, bool end)
{
    if (task->tensor->operation.trace.step != 0) {
        bps_note_stage(task, end);
    }
}

/* [core] Something of a slice of a task begins or ends, at the peer's. */
static inline void bps_traced_slice(const struct bps_task *task, enum bps_trace_kind kind, uint32_t peer,
                                    uint32_t offset, uint32_t bytes, bool end)
{
    if (task->tensor->operation.trace.step != 0) {
        bps_note_slice(task, kind, peer, offset, bytes, end);
    }
}

#endif
