/* SPDX-License-Identifier: Apache-2.0 */
/*
 * written.c - the memory that reductions in flight write to: each byte by one of them.
 *
 * Two that work in place on one gradient would read what the other has summed already, and what comes of it depends on
 * who is faster. The ranges in the tree are disjoint, so "overlaps" can be its "is equal".
 */
#include <search.h>

#include "base/assert.h"
#include "base/report.h"
#include "flow/flow.h"

static int written_compare(const void *left, const void *right)
{
    const struct bps_range *a = left, *b = right;
    return a->end <= b->begin ? -1 : a->begin >= b->end ? 1 : 0;
}

static bps_status in_use(const struct bps_range *by, struct bps_report *report)
{
    const struct bps_operation *other = bps_container(by, const struct bps_operation, written);
    const struct bps_tensor_entry *tensor = bps_container(other, const struct bps_tensor_entry, operation);
    BPS_REPORT(report,
               "tensor '%s', which is in flight, writes to the same memory; wait for it first. If this is a "
               "parameter's gradient, two wrappers reduce it: use one",
               tensor->named.name);
    return BPS_ERR_BUSY;
}

bps_status bps_written_take(struct bps_operation *operation, struct bps_report *report)
{
    struct bps_worker *worker = bps_container(operation, struct bps_tensor_entry, operation)->worker;
    const struct bps_push_pull *r = &operation->request;
    const struct bps_range in = {.begin = r->in, .end = (const char *)r->in + operation->bytes};
    struct bps_range *own = &operation->written;
    /* What is only moved is the same in whatever order, blocks lie apart; a round that begins anew has its memory. */
    if (operation->kind != BPS_KIND_PUSH_PULL || operation->bytes == 0 || own->begin != NULL || r->rows != NULL) {
        return BPS_OK;
    }
    struct bps_range **node = r->in != r->out ? tfind(&in, &worker->written, written_compare) : NULL;
    if (node != NULL) {
        return in_use(*node, report);
    }
    bps_assert(operation->phase == BPS_PHASE_RUNNING);
    *own = (struct bps_range){.begin = r->out, .end = (const char *)r->out + operation->bytes};
    node = tsearch(own, &worker->written, written_compare);
    if (node == NULL || *node != own) {
        *own = (struct bps_range){0};
        return node != NULL ? in_use(*node, report) : BPS_ERR_NOMEM;
    }
    return BPS_OK;
}

void bps_written_give(struct bps_operation *operation)
{
    struct bps_worker *worker = bps_container(operation, struct bps_tensor_entry, operation)->worker;
    if (operation->written.begin != NULL) {
        tdelete(&operation->written, &worker->written, written_compare);
        operation->written.begin = NULL;
    }
}
