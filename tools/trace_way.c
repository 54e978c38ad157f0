/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_way.c - what an operation was held by, and when: the moments of the slice whose result came last. A moment that
 * no event tells is that before it, so that the time until the next one is told of what follows.
 */
#include <string.h>

#include "tools/trace_steps.h"

static const uint32_t server_kinds[] = {BPS_CMD_TRACE_RECEIVE, BPS_CMD_TRACE_GATHER, BPS_CMD_TRACE_SUM};

static const struct bps_cmd_trace_event *last(struct bps_cmd_trace_range range)
{
    const struct bps_cmd_trace_event *found = NULL;
    for (size_t i = 0; i < range.n; i++) {
        if (found == NULL || range.event[i]->end > found->end) {
            found = range.event[i];
        }
    }
    return found;
}

static const struct bps_cmd_trace_event *push_pull_of(const struct bps_cmd_trace_index *index,
                                                      const struct bps_cmd_trace_event *like)
{
    struct bps_cmd_trace_range range =
        bps_cmd_trace_index_find(index, BPS_CMD_TRACE_STAGE, like->rank, like, BPS_CMD_TRACE_OF_PARTITION);
    for (size_t i = 0; i < range.n; i++) {
        if (range.event[i]->push_pull) {
            return range.event[i];
        }
    }
    return NULL;
}

/* Only stages are known: all is theirs, but for push_pull, if it is the last of them. */
static void without_result(const struct bps_cmd_trace_event *stage, struct bps_cmd_trace_way *out)
{
    for (int i = 0; i < BPS_CMD_TRACE_MOMENTS; i++) {
        out->moment[i] = stage->push_pull ? stage->begin : stage->end;
    }
    out->moment[BPS_CMD_TRACE_MOMENTS - 1] = stage->end;
}

static void with_result(const struct bps_cmd_trace_index *index, const struct bps_cmd_trace_event *operation,
                        const struct bps_cmd_trace_event *result, struct bps_cmd_trace_way *out)
{
    const struct bps_cmd_trace_event *stage = push_pull_of(index, result);
    const struct bps_cmd_trace_event *push = bps_cmd_trace_index_slice(index, BPS_CMD_TRACE_PUSH, result);
    out->moment[0] = stage != NULL ? stage->begin : operation->begin;
    out->moment[1] = push != NULL ? push->begin : out->moment[0];
    for (int i = 0; i < 3; i++) {
        const struct bps_cmd_trace_event *event = bps_cmd_trace_index_slice(index, server_kinds[i], result);
        out->served = out->served || event != NULL;
        out->moment[2 + i] = event != NULL ? event->end : out->moment[1 + i];
    }
    out->moment[5] = result->end;
    out->slice = true;
    out->rank = result->rank;
    out->shard = push != NULL && push->shard != BPS_CMD_TRACE_NO_SHARD ? push->shard : result->shard;
    for (int i = 4; i >= 0; i--) { /* clocks of members differ by a little */
        out->moment[i] = out->moment[i] < out->moment[i + 1] ? out->moment[i] : out->moment[i + 1];
    }
}

/*
 * The result of this stage's partition, if it is the last of the operation and another worker of the host had it: this
 * worker has contributed to what that one pushed.
 */
static const struct bps_cmd_trace_event *of_neighbours(const struct bps_cmd_trace_index *index,
                                                       const struct bps_cmd_trace_event *stage,
                                                       const struct bps_cmd_trace_neighbours *neighbours)
{
    const struct bps_cmd_trace_event *found = NULL;
    if (bps_cmd_trace_index_find(index, BPS_CMD_TRACE_RESULT, stage->rank, stage, BPS_CMD_TRACE_OF_PARTITION).n > 0) {
        return NULL;
    }
    for (uint32_t i = 0; i < neighbours->n; i++) {
        const struct bps_cmd_trace_event *result = last(bps_cmd_trace_index_find(
            index, BPS_CMD_TRACE_RESULT, neighbours->rank[i], stage, BPS_CMD_TRACE_OF_PARTITION));
        if (result != NULL && result->end <= stage->end && (found == NULL || result->end > found->end)) {
            found = result;
        }
    }
    return found;
}

void bps_cmd_trace_way_find(const struct bps_cmd_trace_index *index, const struct bps_cmd_trace_event *operation,
                            const struct bps_cmd_trace_neighbours *neighbours, struct bps_cmd_trace_way *out)
{
    uint32_t rank = operation->rank;
    const struct bps_cmd_trace_event *result =
        last(bps_cmd_trace_index_find(index, BPS_CMD_TRACE_RESULT, rank, operation, BPS_CMD_TRACE_OF_ROUND));
    const struct bps_cmd_trace_event *stage =
        last(bps_cmd_trace_index_find(index, BPS_CMD_TRACE_STAGE, rank, operation, BPS_CMD_TRACE_OF_ROUND));
    const struct bps_cmd_trace_event *other = stage == NULL ? NULL : of_neighbours(index, stage, neighbours);
    if (other != NULL && (result == NULL || other->end > result->end)) {
        result = other;
    }
    *out = (struct bps_cmd_trace_way){.known = result != NULL || stage != NULL, .shard = BPS_CMD_TRACE_NO_SHARD};
    if (result != NULL) {
        with_result(index, operation, result, out);
    } else if (stage != NULL) {
        without_result(stage, out);
    }
}

/*
 * Adds how long of this the shard's queue held for credit, which others hold where they have not contributed to what
 * the shard has of this worker. Intervals of credit do not overlap; if they did, none counts twice. Returns their sum.
 */
static int64_t divide_credit(const struct bps_cmd_trace_index *index, const struct bps_cmd_trace_way *way,
                             int64_t begin, int64_t end, int64_t part[BPS_CMD_TRACE_PARTS])
{
    struct bps_cmd_trace_event like = {.shard = way->shard};
    struct bps_cmd_trace_range range =
        bps_cmd_trace_index_find(index, BPS_CMD_TRACE_CREDIT, way->rank, &like, BPS_CMD_TRACE_OF_SLICE);
    size_t low = 0, high = range.n;
    while (low < high) { /* to the first that ends later */
        size_t middle = low + (high - low) / 2;
        if (range.event[middle]->end <= begin) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    int64_t all = 0;
    for (size_t i = low; i < range.n && begin < end && range.event[i]->begin < end; i++) {
        const struct bps_cmd_trace_event *credit = range.event[i];
        int64_t from = begin > credit->begin ? begin : credit->begin, to = end < credit->end ? end : credit->end;
        if (from < to) {
            int64_t others = bps_cmd_trace_held_in(index, way->rank, way->shard, from, to);
            part[BPS_CMD_TRACE_OTHERS] += others;
            part[BPS_CMD_TRACE_CREDITS] += to - from - others;
            all += to - from;
            begin = to;
        }
    }
    return all;
}

void bps_cmd_trace_way_divide(const struct bps_cmd_trace_index *index, const struct bps_cmd_trace_way *way,
                              int64_t begin, int64_t end, int64_t part[BPS_CMD_TRACE_PARTS])
{
    static const enum bps_cmd_trace_part of[BPS_CMD_TRACE_MOMENTS + 1] = {
        BPS_CMD_TRACE_STAGES,  BPS_CMD_TRACE_QUEUE, BPS_CMD_TRACE_WIRE,  BPS_CMD_TRACE_OTHERS,
        BPS_CMD_TRACE_SUMMING, BPS_CMD_TRACE_WIRE,  BPS_CMD_TRACE_STAGES};
    if (!way->known) {
        part[BPS_CMD_TRACE_UNKNOWN] += end - begin;
        return;
    }
    int64_t from = INT64_MIN;
    for (int i = 0; i <= BPS_CMD_TRACE_MOMENTS; i++) {
        int64_t to = i < BPS_CMD_TRACE_MOMENTS ? way->moment[i] : INT64_MAX;
        int64_t some = bps_cmd_trace_overlap(begin, end, from, to);
        if (of[i] == BPS_CMD_TRACE_QUEUE && some > 0 && way->shard != BPS_CMD_TRACE_NO_SHARD) {
            some -= divide_credit(index, way, begin > from ? begin : from, end < to ? end : to, part);
        }
        part[of[i]] += some;
        from = to > from ? to : from;
    }
}
