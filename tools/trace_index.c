/* SPDX-License-Identifier: Apache-2.0 */
/* trace_index.c - the events of a trace by what they are about. */
#include <stdlib.h>

#include "tools/cmd.h"
#include "tools/trace_steps.h"

static int order(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* The intervals of credit of one shard are in the order of time: nothing else tells them apart. */
static int compare(const struct bps_cmd_trace_event *a, const struct bps_cmd_trace_event *b,
                   enum bps_cmd_trace_depth depth)
{
    bool credit = a->kind == BPS_CMD_TRACE_CREDIT;
    int result = order(a->kind, b->kind);
    result = result != 0 ? result : order(a->rank, b->rank);
    if (result != 0 || depth == BPS_CMD_TRACE_OF_RANK) {
        return result;
    }
    result = credit ? order(a->shard, b->shard) : order(a->tensor, b->tensor);
    result = result != 0 || credit ? result : order(a->round, b->round);
    if (result != 0 || credit || depth == BPS_CMD_TRACE_OF_ROUND) {
        return result;
    }
    result = order(a->partition, b->partition);
    return result != 0 || depth == BPS_CMD_TRACE_OF_PARTITION ? result : order(a->offset, b->offset);
}

static int by_all(const void *a, const void *b)
{
    const struct bps_cmd_trace_event *x = *(const struct bps_cmd_trace_event *const *)a;
    const struct bps_cmd_trace_event *y = *(const struct bps_cmd_trace_event *const *)b;
    int result = compare(x, y, BPS_CMD_TRACE_OF_SLICE);
    result = result != 0 ? result : (x->end > y->end) - (x->end < y->end);
    return result != 0 ? result : (x > y) - (x < y);
}

void bps_cmd_trace_index_make(const struct bps_cmd_trace *trace, struct bps_cmd_trace_index *out)
{
    *out = (struct bps_cmd_trace_index){.event = bps_cmd_alloc(trace->events, sizeof *out->event)};
    for (size_t i = 0; i < trace->events; i++) {
        if (trace->event[i].kind < BPS_CMD_TRACE_OTHER) {
            out->event[out->n++] = &trace->event[i];
        }
    }
    qsort(out->event, out->n, sizeof *out->event, by_all);
}

void bps_cmd_trace_index_fini(struct bps_cmd_trace_index *index)
{
    free(index->event);
    free(index->held);
}

/* The first that is not before the key, or the first after it. */
static size_t bound(const struct bps_cmd_trace_index *index, const struct bps_cmd_trace_event *key,
                    enum bps_cmd_trace_depth depth, bool after)
{
    size_t low = 0, high = index->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int result = compare(index->event[middle], key, depth);
        if (result < 0 || (after && result == 0)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

struct bps_cmd_trace_range bps_cmd_trace_index_find(const struct bps_cmd_trace_index *index, uint32_t kind,
                                                    uint32_t rank, const struct bps_cmd_trace_event *like,
                                                    enum bps_cmd_trace_depth depth)
{
    struct bps_cmd_trace_event key = *like;
    key.kind = kind;
    key.rank = rank;
    size_t first = bound(index, &key, depth, false);
    return (struct bps_cmd_trace_range){index->event + first, bound(index, &key, depth, true) - first};
}

const struct bps_cmd_trace_event *bps_cmd_trace_index_slice(const struct bps_cmd_trace_index *index, uint32_t kind,
                                                            const struct bps_cmd_trace_event *like)
{
    bool ranked = kind <= BPS_CMD_TRACE_RECEIVE; /* what comes after that is of no worker */
    struct bps_cmd_trace_range range =
        bps_cmd_trace_index_find(index, kind, ranked ? like->rank : 0, like, BPS_CMD_TRACE_OF_SLICE);
    return range.n == 0 ? NULL : range.event[range.n - 1];
}
