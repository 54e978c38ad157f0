/* SPDX-License-Identifier: Apache-2.0 */
/* collectives.c - the functions of collectives.h. */
#include <byteps/collectives.h>

#include "base/report.h"
#include "flow/flow.h"
#include "worker/api.h"

/* Elements of the only block that a worker has on one side, of which the other side has the counts. */
static uint64_t own_count(const uint64_t *counts, const struct bps_call *call, uint32_t rank)
{
    return counts != NULL ? counts[rank] : call->in_count;
}

/* A shape tells sizes apart in messages, where they are the same for all. */
static void tell_shape(const struct bps_worker *worker, struct bps_call *call, struct bps_push_pull *request)
{
    const struct bps_kind *kind = &bps_kinds[call->kind];
    bool all = kind->all_in || kind->all_out;
    bool rooted = all && (kind->from == BPS_PARTY_ROOT || kind->to == BPS_PARTY_ROOT);
    if (call->in_counts != NULL || call->out_counts != NULL || rooted) {
        return; /* workers may have blocks of several sizes */
    }
    call->shape[0] = all ? worker->job.size : (int64_t)request->count;
    call->shape[1] = (int64_t)(kind->all_in ? call->in_count : call->out_count);
    request->shape = call->shape;
    request->ndim = all ? 2 : 1;
}

static bps_status complete_call(const struct bps_worker *worker, struct bps_call *call, struct bps_report *report)
{
    const struct bps_kind *kind = &bps_kinds[call->kind];
    uint32_t rank = worker->job.rank;
    call->in_counts = kind->all_in ? call->in_counts : NULL;
    call->out_counts = kind->all_out ? call->out_counts : NULL;
    call->out_count = kind->all_out ? call->in_count : own_count(call->in_counts, call, rank);
    call->in_count = kind->all_in ? call->in_count : own_count(call->out_counts, call, rank);
    bps_status status = bps_blocks_check(worker, call, call->request, report);
    if (status == BPS_OK) {
        tell_shape(worker, call, call->request);
    }
    return status;
}

/* A request that is whole becomes one that an operation is made of. */
static bps_status call_begin(const struct bps_collective *request, uint32_t kind, struct bps_push_pull *plain,
                             struct bps_call *call, struct bps_report *report)
{
    size_t got = request != NULL ? request->size : 0;
    bool sums = bps_kinds[kind].from == BPS_PARTY_ALL;
    if (got < sizeof *request) {
        return bps_fail(report, BPS_ERR_INVALID,
                        "the request's size is %zu, expected %zu; was it built for another version?", got,
                        sizeof *request);
    }
    bool plainly = !sums || (request->prescale == 0.0 && request->postscale == 0.0);
    *plain = (struct bps_push_pull){.size = sizeof *plain,
                                    .in = request->in,
                                    .out = request->out,
                                    .dtype = request->dtype,
                                    .op = request->op,
                                    .priority = request->priority,
                                    .prescale = plainly ? 1.0 : request->prescale,
                                    .postscale = plainly ? 1.0 : request->postscale,
                                    .done = request->done,
                                    .arg = request->arg,
                                    .device = request->device};
    *call = (struct bps_call){.op = !sums                   ? BPS_WIRE_BROADCAST
                                    : request->op < BPS_OPS ? request->op
                                                            : BPS_WIRE_OPS,
                              .kind = kind,
                              .root = request->root,
                              .in_counts = request->in_counts,
                              .out_counts = request->out_counts,
                              .in_count = request->count,
                              .request = plain};
    return BPS_OK;
}

static bps_status start(const struct bps_collective *request, uint32_t kind, bps_handle *out, struct bps_report *report)
{
    struct bps_push_pull plain;
    struct bps_call call;
    bps_status status = call_begin(request, kind, &plain, &call, report);
    return status == BPS_OK ? bps_api_start(&plain, &call, complete_call, out, report) : status;
}

static bps_status run(const struct bps_collective *request, uint32_t kind, struct bps_report *report)
{
    struct bps_push_pull plain;
    struct bps_call call;
    bps_status status = call_begin(request, kind, &plain, &call, report);
    if (status == BPS_OK && plain.done != NULL) {
        status = bps_fail(report, BPS_ERR_INVALID, "%s() waits itself: done must be NULL", bps_kinds[kind].name);
    }
    return status == BPS_OK ? bps_api_run(&plain, &call, complete_call, BPS_FOREVER, NULL, report) : status;
}

bps_status bps_reduce_async(const struct bps_collective *request, bps_handle *out, struct bps_report *report)
{
    return start(request, BPS_KIND_REDUCE, out, report);
}

bps_status bps_reduce(const struct bps_collective *request, struct bps_report *report)
{
    return run(request, BPS_KIND_REDUCE, report);
}

bps_status bps_reduce_scatter_async(const struct bps_collective *request, bps_handle *out, struct bps_report *report)
{
    return start(request, BPS_KIND_REDUCE_SCATTER, out, report);
}

bps_status bps_reduce_scatter(const struct bps_collective *request, struct bps_report *report)
{
    return run(request, BPS_KIND_REDUCE_SCATTER, report);
}

bps_status bps_all_gather_async(const struct bps_collective *request, bps_handle *out, struct bps_report *report)
{
    return start(request, BPS_KIND_ALL_GATHER, out, report);
}

bps_status bps_all_gather(const struct bps_collective *request, struct bps_report *report)
{
    return run(request, BPS_KIND_ALL_GATHER, report);
}

bps_status bps_gather_async(const struct bps_collective *request, bps_handle *out, struct bps_report *report)
{
    return start(request, BPS_KIND_GATHER, out, report);
}

bps_status bps_gather(const struct bps_collective *request, struct bps_report *report)
{
    return run(request, BPS_KIND_GATHER, report);
}

bps_status bps_scatter_async(const struct bps_collective *request, bps_handle *out, struct bps_report *report)
{
    return start(request, BPS_KIND_SCATTER, out, report);
}

bps_status bps_scatter(const struct bps_collective *request, struct bps_report *report)
{
    return run(request, BPS_KIND_SCATTER, report);
}

bps_status bps_all_to_all_async(const struct bps_collective *request, bps_handle *out, struct bps_report *report)
{
    return start(request, BPS_KIND_ALL_TO_ALL, out, report);
}

bps_status bps_all_to_all(const struct bps_collective *request, struct bps_report *report)
{
    return run(request, BPS_KIND_ALL_TO_ALL, report);
}
