/* SPDX-License-Identifier: Apache-2.0 */
/* api.h - operations of the process's job, for functions of public headers: any thread, with errors for each state. */
#ifndef BPS_WORKER_API_H
#define BPS_WORKER_API_H

#include "flow/flow.h"

/* The job, counted as used until bps_api_release(); NULL and a report if there is none. */
struct bps_worker *bps_api_acquire(struct bps_report *report);
void bps_api_release(void);

/* Fills in the rest of a call with blocks, and of their request, for the job that there is. An error refuses it. */
typedef bps_status (*bps_complete_fn)(const struct bps_worker *worker, struct bps_call *call,
                                      struct bps_report *report);

/*
 * Starts it, in the process group of the request; or runs it, which *out is not needed for. `complete` may be NULL.
 * BPS_ERR_STATE: there is no job.
 */
bps_status bps_api_start(const struct bps_push_pull *request, struct bps_call *call, bps_complete_fn complete,
                         bps_handle *out, struct bps_report *report);
bps_status bps_api_run(const struct bps_push_pull *request, struct bps_call *call, bps_complete_fn complete,
                       uint64_t timeout_ns, bps_handle *out, struct bps_report *report);

/* A message from one worker to another: a group of these two, which the call uses, and a tag in it. NULL: none. */
struct bps_message {
    struct bps_process_group *group;
    uint32_t tag;
};

/* An operation of blocks. The request is one of collectives.h; its own group is not used with a message. */
bps_status bps_collective_start(const struct bps_collective *request, uint32_t kind, const struct bps_message *message,
                                bps_handle *out, struct bps_report *report);
bps_status bps_collective_run(const struct bps_collective *request, uint32_t kind, const struct bps_message *message,
                              struct bps_report *report);

#endif
