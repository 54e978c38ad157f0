/* SPDX-License-Identifier: Apache-2.0 */
/* api.h - operations of the process's job, for functions of public headers: any thread, with errors for each state. */
#ifndef BPS_WORKER_API_H
#define BPS_WORKER_API_H

#include "flow/blocks.h"

/* Fills in the rest of a call and of call->request for the job that there is. An error refuses it. */
typedef bps_status (*bps_complete_fn)(const struct bps_worker *worker, struct bps_call *call,
                                      struct bps_report *report);

/* Starts it; or runs it, which *out is not needed for. `complete` may be NULL. BPS_ERR_STATE: there is no job. */
bps_status bps_api_start(const struct bps_push_pull *request, struct bps_call *call, bps_complete_fn complete,
                         bps_handle *out, struct bps_report *report);
bps_status bps_api_run(const struct bps_push_pull *request, struct bps_call *call, bps_complete_fn complete,
                       uint64_t timeout_ns, bps_handle *out, struct bps_report *report);

#endif
