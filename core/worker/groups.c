/* SPDX-License-Identifier: Apache-2.0 */
/* groups.c - the functions of groups.h, but for the barrier. */
#include <byteps/groups.h>

#include <inttypes.h>
#include <stdlib.h>

#include "base/report.h"
#include "base/sized.h"
#include "worker/api.h"

/* ---- process groups ---- */

/* What workers compare of the ranks that they were given: FNV-1a. */
static uint64_t fingerprint(const uint32_t *rank, uint32_t n)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint32_t i = 0; i < n; i++) {
        hash = (hash ^ rank[i]) * 0x100000001b3u;
    }
    return hash;
}

/* All have given the same ranks: else the first who differs from worker 0 is named, on all workers. */
static bps_status agree(const struct bps_worker *worker, uint64_t own, struct bps_report *report)
{
    uint32_t size = worker->job.size, odd = 0;
    uint64_t *all = calloc(size, sizeof *all);
    if (all == NULL) {
        return bps_fail(report, BPS_ERR_NOMEM, "out of memory");
    }
    const struct bps_collective gather = {
        .size = sizeof gather, .in = &own, .out = all, .count = sizeof own, .dtype = BPS_UINT8};
    bps_status status = bps_all_gather(&gather, report);
    while (status == BPS_OK && odd < size && all[odd] == all[0]) {
        odd++;
    }
    if (status == BPS_OK && odd < size) {
        status = bps_fail(report, BPS_ERR_MISMATCH,
                          "worker %u makes a process group of other ranks than worker 0; all workers must make "
                          "the same groups in the same order",
                          odd);
    }
    free(all);
    return status;
}

/* A worker that refuses its ranks has others wait for it: all hear of it, as it has no ranks that others have. */
static bps_status make(struct bps_worker *worker, const uint32_t *ranks, uint32_t n, uint32_t *out,
                       struct bps_report *report)
{
    struct bps_process_group *group;
    struct bps_report why;
    bps_status own = bps_process_group_new(worker, ranks, n, &group, report);
    bps_status status = agree(worker, own == BPS_OK ? fingerprint(ranks, n) : worker->job.rank, &why);
    if (own != BPS_OK) {
        return own;
    }
    if (status != BPS_OK) {
        bps_process_group_free(worker, group->id, NULL);
        return bps_fail(report, status, "%s", why.text);
    }
    *out = group->id;
    return BPS_OK;
}

bps_status bps_group_new(const uint32_t *ranks, uint32_t n, uint32_t *out, struct bps_report *report)
{
    struct bps_worker *worker = bps_api_acquire(report);
    if (worker == NULL) {
        return BPS_ERR_STATE;
    }
    bps_status status = make(worker, ranks, n, out, report);
    bps_api_release();
    return status;
}

bps_status bps_group_open(uint32_t number, const uint32_t *ranks, uint32_t n, uint32_t *out, struct bps_report *report)
{
    struct bps_process_group *group;
    struct bps_worker *worker = bps_api_acquire(report);
    if (worker == NULL) {
        return BPS_ERR_STATE;
    }
    bps_status status = bps_process_group_open(worker, number, ranks, n, &group, report);
    if (status == BPS_OK) {
        *out = group->id;
    }
    bps_api_release();
    return status;
}

bps_status bps_group_free(uint32_t group, struct bps_report *report)
{
    struct bps_worker *worker = bps_api_acquire(report);
    if (worker == NULL) {
        return BPS_ERR_STATE;
    }
    bps_status status = bps_process_group_free(worker, group, report);
    bps_api_release();
    return status;
}

bps_status bps_group_place(uint32_t group, uint32_t *rank, uint32_t *size, struct bps_report *report)
{
    struct bps_process_group *of;
    struct bps_worker *worker = bps_api_acquire(report);
    if (worker == NULL) {
        return BPS_ERR_STATE;
    }
    bps_status status = bps_process_group_use(worker, group, &of, report);
    if (status == BPS_OK) {
        *rank = of != NULL ? of->own : worker->job.rank;
        *size = of != NULL ? of->n : worker->job.size;
    }
    bps_process_group_leave(of);
    bps_api_release();
    return status;
}

/* ---- messages ---- */

/* The rank in the job of the worker at the other end. */
static bps_status find_peer(struct bps_worker *worker, const struct bps_collective *request, uint32_t *peer,
                            struct bps_report *report)
{
    struct bps_process_group *group;
    bps_status status = bps_process_group_use(worker, request->group, &group, report);
    uint32_t n = group != NULL ? group->n : worker->job.size;
    if (status == BPS_OK && group != NULL && group->own == UINT32_MAX) {
        status = bps_fail(report, BPS_ERR_INVALID, "worker %u is not a member of process group %u", worker->job.rank,
                          request->group);
    }
    if (status == BPS_OK && request->root >= n) {
        status = bps_fail(report, BPS_ERR_INVALID, "root %u is not a worker of this %s (0..%u)", request->root,
                          group != NULL ? "process group" : "job", n - 1);
    }
    if (status == BPS_OK && request->tag >= BPS_TAGS) {
        status =
            bps_fail(report, BPS_ERR_INVALID, "the tag of a message is %u, expected 0..%u", request->tag, BPS_TAGS - 1);
    }
    *peer = status == BPS_OK ? bps_process_group_rank(group, request->root) : 0;
    bps_process_group_leave(group);
    return status;
}

/* A message is from the first to the second worker of a group of two, which has an empty block for the first. */
static bps_status begin_message(const struct bps_collective *request, bool sends, struct bps_collective *two,
                                uint64_t counts[2], struct bps_message *message, struct bps_report *report)
{
    uint32_t peer;
    bps_status status = BPS_SIZED(bps_collective, request, two, report);
    if (status != BPS_OK) {
        return status;
    }
    request = two;
    struct bps_worker *worker = bps_api_acquire(report);
    if (worker == NULL) {
        return BPS_ERR_STATE;
    }
    status = find_peer(worker, request, &peer, report);
    if (status == BPS_OK) {
        uint32_t own = worker->job.rank;
        status = bps_process_group_pair(worker, sends ? own : peer, sends ? peer : own, &message->group, report);
    }
    bps_api_release();
    counts[0] = 0;
    counts[1] = request->count;
    message->tag = request->tag;
    two->root = two->group = 0;
    two->in = sends ? request->in : NULL;
    two->out = sends ? NULL : request->out;
    two->in_counts = sends ? counts : NULL;
    two->out_counts = NULL;
    two->count = sends ? 0 : request->count;
    return status;
}

static bps_status start(const struct bps_collective *request, bool sends, bps_handle *out, struct bps_report *report)
{
    struct bps_collective two;
    struct bps_message message = {.group = NULL};
    uint64_t counts[2];
    bps_status status = begin_message(request, sends, &two, counts, &message, report);
    return status == BPS_OK ? bps_collective_start(&two, BPS_KIND_MESSAGE, &message, out, report) : status;
}

static bps_status run(const struct bps_collective *request, bool sends, struct bps_report *report)
{
    struct bps_collective two;
    struct bps_message message = {.group = NULL};
    uint64_t counts[2];
    bps_status status = begin_message(request, sends, &two, counts, &message, report);
    return status == BPS_OK ? bps_collective_run(&two, BPS_KIND_MESSAGE, &message, report) : status;
}

bps_status bps_send_async(const struct bps_collective *request, bps_handle *out, struct bps_report *report)
{
    return start(request, true, out, report);
}

bps_status bps_recv_async(const struct bps_collective *request, bps_handle *out, struct bps_report *report)
{
    return start(request, false, out, report);
}

bps_status bps_send(const struct bps_collective *request, struct bps_report *report)
{
    return run(request, true, report);
}

bps_status bps_recv(const struct bps_collective *request, struct bps_report *report)
{
    return run(request, false, report);
}
