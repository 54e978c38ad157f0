/* SPDX-License-Identifier: Apache-2.0 */
/*
 * traced.h - the records of operations and their partitions. What is done for an operation that is not recorded costs
 * one look at its step.
 */
#ifndef BPS_FLOW_TRACED_H
#define BPS_FLOW_TRACED_H

#include "flow/worker.h"

/* [core] Its tensor has its id, and its round has begun. */
void bps_traced_begin(struct bps_operation *operation);
/* [core] It is about to end. */
void bps_traced_end(const struct bps_operation *operation);
/* [app] This thread is about to wait for an operation, again if its time was up before. Returns since when it waits. */
uint64_t bps_traced_wait_begin(bps_handle handle);
/* [app] It is over, and not given back yet. */
void bps_traced_waited(const struct bps_operation *operation, uint64_t since);
/* [core] A task enters a step of its way, or leaves it. */
void bps_traced_stage(const struct bps_task *task, bool end);
/* [core] Something of a slice of a task begins or ends, at the peer's. */
void bps_traced_slice(const struct bps_task *task, enum bps_trace_kind kind, uint32_t peer, uint32_t offset,
                      uint32_t bytes, bool end);

#endif
