/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_held.c - when a shard has what a worker pushed there, and cannot answer it, as others have not contributed.
 * Meanwhile that worker's credit there does not come back, and it is them that hold its queue.
 */
#include <stdlib.h>

#include "tools/cmd.h"
#include "tools/trace_steps.h"

static int by_place(const struct bps_cmd_trace_held *a, const struct bps_cmd_trace_held *b)
{
    int result = (a->rank > b->rank) - (a->rank < b->rank);
    return result != 0 ? result : (a->shard > b->shard) - (a->shard < b->shard);
}

static int by_begin(const void *a, const void *b)
{
    const struct bps_cmd_trace_held *x = a, *y = b;
    int result = by_place(x, y);
    return result != 0 ? result : (x->begin > y->begin) - (x->begin < y->begin);
}

/* Joins those of one place that overlap. */
static size_t join(struct bps_cmd_trace_held *held, size_t n)
{
    size_t out = 0;
    for (size_t i = 0; i < n; i++) {
        struct bps_cmd_trace_held *last = out > 0 ? &held[out - 1] : NULL;
        if (last == NULL || by_place(last, &held[i]) != 0 || held[i].begin > last->end) {
            held[out++] = held[i];
        } else if (held[i].end > last->end) {
            last->end = held[i].end;
        }
    }
    return out;
}

void bps_cmd_trace_held_make(struct bps_cmd_trace_index *index)
{
    index->held = bps_cmd_alloc(index->n, sizeof *index->held);
    index->helds = 0;
    for (size_t i = 0; i < index->n; i++) {
        const struct bps_cmd_trace_event *push = index->event[i];
        if (push->kind != BPS_CMD_TRACE_PUSH || push->shard == BPS_CMD_TRACE_NO_SHARD) {
            continue;
        }
        const struct bps_cmd_trace_event *receive = bps_cmd_trace_index_slice(index, BPS_CMD_TRACE_RECEIVE, push);
        const struct bps_cmd_trace_event *gather = bps_cmd_trace_index_slice(index, BPS_CMD_TRACE_GATHER, push);
        if (receive != NULL && gather != NULL && receive->end < gather->end) {
            int64_t begin = receive->end > gather->begin ? receive->end : gather->begin;
            index->held[index->helds++] = (struct bps_cmd_trace_held){push->rank, push->shard, begin, gather->end};
        }
    }
    qsort(index->held, index->helds, sizeof *index->held, by_begin);
    index->helds = join(index->held, index->helds);
}

int64_t bps_cmd_trace_held_in(const struct bps_cmd_trace_index *index, uint32_t rank, uint32_t shard, int64_t begin,
                              int64_t end)
{
    const struct bps_cmd_trace_held key = {rank, shard, begin, end};
    size_t low = 0, high = index->helds;
    while (low < high) { /* to the first there that ends later */
        size_t middle = low + (high - low) / 2;
        int place = by_place(&index->held[middle], &key);
        if (place < 0 || (place == 0 && index->held[middle].end <= begin)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    int64_t all = 0;
    for (size_t i = low; i < index->helds && by_place(&index->held[i], &key) == 0 && index->held[i].begin < end; i++) {
        all += bps_cmd_trace_overlap(begin, end, index->held[i].begin, index->held[i].end);
    }
    return all;
}
