/* SPDX-License-Identifier: Apache-2.0 */
/* collectives.c - the functions of collectives.h. */
#include <byteps/collectives.h>

#include "base/report.h"
#include "base/sized.h"
#include "flow/flow.h"
#include "worker/api.h"

/* Elements of the only block that a worker has on one side, of which the other side has the counts. */
static uint64_t own_count(const uint64_t *counts, const struct bps_call_blocks *blocks)
{
    return counts != NULL ? counts[blocks->own] : blocks->in_count;
}

/* A shape tells sizes apart in messages, where they are the same for all. */
static void tell_shape(const struct bps_kind *kind, struct bps_call_blocks *blocks)
{
    struct bps_push_pull *request = blocks->request;
    bool all = kind->all_in || kind->all_out;
    bool rooted = all && (kind->from == BPS_PARTY_ROOT || kind->to == BPS_PARTY_ROOT);
    if (blocks->in_counts != NULL || blocks->out_counts != NULL || rooted) {
        return; /* workers may have blocks of several sizes */
    }
    blocks->shape[0] = all ? blocks->ranks : (int64_t)request->count;
    blocks->shape[1] = (int64_t)(kind->all_in ? blocks->in_count : blocks->out_count);
    request->shape = blocks->shape;
    request->ndim = all ? 2 : 1;
}

static bps_status complete_call(const struct bps_worker *worker, struct bps_call *call, struct bps_report *report)
{
    (void)worker;
    const struct bps_kind *kind = &bps_kinds[call->kind];
    struct bps_call_blocks *blocks = call->blocks;
    blocks->in_counts = kind->all_in ? blocks->in_counts : NULL;
    blocks->out_counts = kind->all_out ? blocks->out_counts : NULL;
    blocks->out_count = kind->all_out ? blocks->in_count : own_count(blocks->in_counts, blocks);
    blocks->in_count = kind->all_in ? blocks->in_count : own_count(blocks->out_counts, blocks);
    bps_status status = bps_blocks_check(call, blocks->request, report);
    if (status == BPS_OK) {
        tell_shape(kind, blocks);
    }
    return status;
}

/* A request that is whole becomes one that an operation is made of. */
static bps_status call_begin(const struct bps_collective *request, uint32_t kind, const struct bps_message *message,
                             struct bps_push_pull *plain, struct bps_call_blocks *blocks, struct bps_call *call,
                             struct bps_report *report)
{
    struct bps_collective own;
    bool sums = bps_kinds[kind].from == BPS_PARTY_ALL;
    bps_status status = BPS_SIZED(bps_collective, request, &own, report);
    if (status != BPS_OK) {
        return status;
    }
    request = &own;
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
                                    .device = request->device,
                                    .group = request->group};
    *blocks = (struct bps_call_blocks){.in_counts = request->in_counts,
                                       .out_counts = request->out_counts,
                                       .in_count = request->count,
                                       .request = plain};
    *call = (struct bps_call){.op = !sums                   ? BPS_WIRE_BROADCAST
                                    : request->op < BPS_OPS ? request->op
                                                            : BPS_WIRE_OPS,
                              .kind = kind,
                              .root = request->root,
                              .group = message != NULL ? message->group : NULL,
                              .tag = message != NULL ? message->tag : 0,
                              .blocks = blocks};
    return BPS_OK;
}

bps_status bps_collective_start(const struct bps_collective *request, uint32_t kind, const struct bps_message *message,
                                bps_handle *out, struct bps_report *report)
{
    struct bps_push_pull plain;
    struct bps_call_blocks blocks;
    struct bps_call call;
    bps_status status = call_begin(request, kind, message, &plain, &blocks, &call, report);
    return status == BPS_OK ? bps_api_start(&plain, &call, complete_call, out, report) : status;
}

bps_status bps_collective_run(const struct bps_collective *request, uint32_t kind, const struct bps_message *message,
                              struct bps_report *report)
{
    struct bps_push_pull plain;
    struct bps_call_blocks blocks;
    struct bps_call call;
    bps_status status = call_begin(request, kind, message, &plain, &blocks, &call, report);
    if (status == BPS_OK && plain.done != NULL) {
        bps_process_group_leave(call.group);
        status = bps_fail(report, BPS_ERR_INVALID, "%s() blocks: done must be NULL", bps_kinds[kind].name);
    }
    return status == BPS_OK ? bps_api_run(&plain, &call, complete_call, BPS_FOREVER, NULL, report) : status;
}

bps_status bps_reduce_async(const struct bps_collective *request, bps_handle *out, struct bps_report *report)
{
    return bps_collective_start(request, BPS_KIND_REDUCE, NULL, out, report);
}

bps_status bps_reduce(const struct bps_collective *request, struct bps_report *report)
{
    return bps_collective_run(request, BPS_KIND_REDUCE, NULL, report);
}

bps_status bps_reduce_scatter_async(const struct bps_collective *request, bps_handle *out, struct bps_report *report)
{
    return bps_collective_start(request, BPS_KIND_REDUCE_SCATTER, NULL, out, report);
}

bps_status bps_reduce_scatter(const struct bps_collective *request, struct bps_report *report)
{
    return bps_collective_run(request, BPS_KIND_REDUCE_SCATTER, NULL, report);
}

bps_status bps_all_gather_async(const struct bps_collective *request, bps_handle *out, struct bps_report *report)
{
    return bps_collective_start(request, BPS_KIND_ALL_GATHER, NULL, out, report);
}

bps_status bps_all_gather(const struct bps_collective *request, struct bps_report *report)
{
    return bps_collective_run(request, BPS_KIND_ALL_GATHER, NULL, report);
}

bps_status bps_gather_async(const struct bps_collective *request, bps_handle *out, struct bps_report *report)
{
    return bps_collective_start(request, BPS_KIND_GATHER, NULL, out, report);
}

bps_status bps_gather(const struct bps_collective *request, struct bps_report *report)
{
    return bps_collective_run(request, BPS_KIND_GATHER, NULL, report);
}

bps_status bps_scatter_async(const struct bps_collective *request, bps_handle *out, struct bps_report *report)
{
    return bps_collective_start(request, BPS_KIND_SCATTER, NULL, out, report);
}

bps_status bps_scatter(const struct bps_collective *request, struct bps_report *report)
{
    return bps_collective_run(request, BPS_KIND_SCATTER, NULL, report);
}

bps_status bps_all_to_all_async(const struct bps_collective *request, bps_handle *out, struct bps_report *report)
{
    return bps_collective_start(request, BPS_KIND_ALL_TO_ALL, NULL, out, report);
}

bps_status bps_all_to_all(const struct bps_collective *request, struct bps_report *report)
{
    return bps_collective_run(request, BPS_KIND_ALL_TO_ALL, NULL, report);
}
