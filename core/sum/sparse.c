/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sparse.c - the policy of a sum of rows: contributions are kept apart as they have come, and when all are there,
 * merged in the order of the rows, each row summed in one pass over those who have brought it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/rows.h"
#include "sum/round.h"

/* A slice while it is summed. */
struct merge {
    struct bps_sum_slice *slice;
    uint32_t sources;
    bool scaled; /* any of them */
    struct source {
        struct bps_row_list rows;
        uint32_t at; /* the next one */
        double scale;
    } *source;
};

/* Those that are there. BPS_ERR_PROTOCOL: one of them, round->lost, has sent something else. */
static bps_status find_sources(struct merge *merge)
{
    struct bps_round *round = merge->slice->round;
    merge->source = calloc(round->ranks->n, sizeof *merge->source);
    if (merge->source == NULL) {
        return BPS_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < round->ranks->n; i++) {
        const struct bps_part *part = &bps_parts(merge->slice)[i];
        struct source *source = &merge->source[merge->sources];
        if (part->block.data == NULL || bps_part_is_open(merge->slice, i)) {
            continue;
        }
        if (!bps_rows_read(part->block.data, part->block.bytes, merge->slice->bytes, round->spec.row, &source->rows)) {
            round->lost = round->ranks->rank[i];
            return BPS_ERR_PROTOCOL;
        }
        source->scale = part->scale;
        merge->scaled |= part->scale != 1.0;
        merge->sources++;
    }
    return BPS_OK;
}

/* The next row that anybody has brought; UINT32_MAX: there is none. */
static uint32_t lowest(const struct merge *merge)
{
    uint32_t row = UINT32_MAX;
    for (uint32_t i = 0; i < merge->sources; i++) {
        const struct source *source = &merge->source[i];
        bool left = source->at < source->rows.count;
        row = left && source->rows.index[source->at] < row ? source->rows.index[source->at] : row;
    }
    return row;
}

/* All that have a row are behind it. Returns how many have it: the engine's arrays say where, and times what. */
static uint32_t pass_row(const struct merge *merge, uint32_t row)
{
    const struct bps_round *round = merge->slice->round;
    struct bps_sum *sum = round->sum;
    uint32_t n = 0;
    for (uint32_t i = 0; i < merge->sources; i++) {
        struct source *source = &merge->source[i];
        if (source->at < source->rows.count && source->rows.index[source->at] == row) {
            sum->source[n] = source->rows.data + (size_t)source->at * round->spec.row;
            sum->weight[n++] = source->scale;
            source->at++;
        }
    }
    return n;
}

/* Which rows there are; returns how many. */
static uint32_t merge_indices(struct merge *merge, uint32_t *index)
{
    uint32_t n = 0;
    for (uint32_t row; (row = lowest(merge)) != UINT32_MAX; n++) {
        index[n] = row;
        (void)pass_row(merge, row);
    }
    for (uint32_t i = 0; i < merge->sources; i++) {
        merge->source[i].at = 0;
    }
    return n;
}

static void sum_rows(const struct merge *merge, const uint32_t *index, uint32_t n, char *to)
{
    const struct bps_round *round = merge->slice->round;
    struct bps_sum *sum = round->sum;
    const struct bps_last_factor last = bps_quorum_factor(merge->slice);
    uint32_t row = round->spec.row, count = row / (uint32_t)bps_dtype_size(round->spec.dtype);
    const double *weights = merge->scaled ? sum->weight : NULL;
    BPS_CALLING(round->reducer, "reduce", NULL);
    for (uint32_t i = 0; i < n; i++, to += row) {
        uint32_t sources = pass_row(merge, index[i]);
        round->kernels.reduce(to, sum->source, weights, sources, count, last.scale, last.divisor);
    }
}

static bps_status merge_all(struct merge *merge)
{
    struct bps_sum_slice *slice = merge->slice;
    const struct bps_round *round = slice->round;
    uint64_t most = 0, limit = bps_rows_limit(slice->bytes, round->spec.row);
    for (uint32_t i = 0; i < merge->sources; i++) {
        most += merge->source[i].rows.count;
    }
    char *block =
        bps_block_get(round->sum, &slice->block, bps_rows_bytes(most < limit ? most : limit, round->spec.row));
    if (block == NULL) {
        return BPS_ERR_NOMEM;
    }
    uint32_t *index = (uint32_t *)(void *)(block + BPS_ROWS_HEAD), n = merge_indices(merge, index);
    sum_rows(merge, index, n, bps_rows_finish(block, n));
    slice->payload = block;
    slice->payload_bytes = (uint32_t)bps_rows_bytes(n, round->spec.row);
    return BPS_OK;
}

static bps_status sparse_sum_finish(struct bps_sum_slice *slice, struct bps_report *report)
{
    struct merge merge = {.slice = slice};
    (void)report;
    bps_status status = find_sources(&merge);
    if (status == BPS_OK) {
        status = merge_all(&merge);
    }
    free(merge.source);
    bps_apart_free(slice);
    return status;
}

const struct bps_sum_policy bps_sparse = {
    .apart = true,
    .entry = bps_apart_entry,
    .take = bps_apart_take,
    .finish = sparse_sum_finish,
    .free_parts = bps_apart_free,
};
