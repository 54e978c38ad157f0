/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sparse.c - the policy of a sum of rows: contributions are kept apart as they have come, and when all are there,
 * merged: a chunk of rows after the other, row by row or as if all of them were there, whichever is cheaper.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/rows.h"
#include "sum/round.h"
#include "sum/spread.h"

/* A slice while it is summed. */
struct merge {
    struct bps_sum_slice *slice;
    uint32_t limit, sources;
    const double *weights; /* NULL: none of them is scaled */
    bool exact;            /* zeros may stand for the rows that somebody lacks */
    struct source {
        struct bps_row_list rows;
        const uint64_t *bits; /* which rows, one each */
        const char *next;     /* elements of those that are not summed yet */
        double scale;
    } *source;
    uint64_t *bits; /* any of them */
    uint32_t count;
    struct bps_last_factor last;
    char *scratch;
    char *to;
};

/* Some rows of the slice, all with bits in the same words. */
struct chunk {
    size_t word, words;
    uint32_t rows, count; /* that there may be, and that anybody has brought */
};

static bool is_finite(double x)
{
    return x - x == 0;
}

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
        source->next = source->rows.data;
        merge->weights = part->scale != 1.0 ? round->sum->weight : merge->weights;
        merge->exact &= is_finite(part->scale);
        merge->sources++;
    }
    return BPS_OK;
}

/* Who has which rows, and which anybody has. */
static bps_status mark_rows(struct merge *merge)
{
    size_t words = bps_rows_words(merge->limit);
    merge->bits = calloc((size_t)(merge->sources + 1) * words + 1, sizeof *merge->bits);
    if (merge->bits == NULL) {
        return BPS_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < merge->sources; i++) {
        uint64_t *own = merge->bits + (i + 1) * words;
        bps_rows_mark(&merge->source[i].rows, merge->limit, own);
        merge->source[i].bits = own;
        for (size_t w = 0; w < words; w++) {
            merge->bits[w] |= own[w];
        }
    }
    merge->count = bps_bits_count(merge->bits, words);
    return BPS_OK;
}

static void reduce_rows(const struct merge *merge, uint32_t sources, uint32_t rows, char *to)
{
    const struct bps_round *round = merge->slice->round;
    size_t count = (size_t)rows * (round->spec.row / bps_dtype_size(round->spec.dtype));
    round->kernels.reduce(round->kernels.context, to, round->sum->source, merge->weights, sources, count,
                          merge->last.scale, merge->last.divisor);
}

/* Each row in one pass over those who have brought it. */
static void sum_rows(struct merge *merge, const struct chunk *chunk)
{
    const struct bps_round *round = merge->slice->round;
    struct bps_sum *sum = round->sum;
    for (size_t w = chunk->word; w < chunk->word + chunk->words; w++) {
        for (uint64_t left = merge->bits[w]; left != 0; left &= left - 1) {
            uint32_t n = 0;
            for (uint32_t i = 0; i < merge->sources; i++) {
                struct source *source = &merge->source[i];
                if ((source->bits[w] & left & -left) != 0) {
                    sum->source[n] = source->next;
                    sum->weight[n++] = source->scale;
                    source->next += round->spec.row;
                }
            }
            reduce_rows(merge, n, 1, merge->to);
            merge->to += round->spec.row;
        }
    }
}

/* All rows in one pass over those who have brought any: what one lacks counts as zeros, which change no sum. */
static void sum_at_once(struct merge *merge, const struct chunk *chunk)
{
    const struct bps_round *round = merge->slice->round;
    struct bps_sum *sum = round->sum;
    uint32_t row = round->spec.row, n = 0;
    char *place = merge->scratch;
    for (uint32_t i = 0; i < merge->sources; i++) {
        struct source *source = &merge->source[i];
        uint32_t own = bps_bits_count(source->bits + chunk->word, chunk->words);
        if (own == 0) {
            continue;
        }
        sum->source[n] = source->next;
        sum->weight[n] = source->scale;
        if (own < chunk->rows) {
            bps_spread_zeros(place, (size_t)chunk->rows * row, round->spec.dtype, source->scale < 0);
            bps_spread(place, source->next, source->bits + chunk->word, chunk->words, row);
            sum->source[n] = place;
            place += (size_t)chunk->rows * row;
        }
        source->next += (size_t)own * row;
        n++;
    }
    bool all = chunk->count == chunk->rows;
    reduce_rows(merge, n, chunk->rows, all ? merge->to : place);
    if (!all) {
        bps_spread_back(merge->to, place, merge->bits + chunk->word, chunk->words, row);
    }
    merge->to += (size_t)chunk->count * row;
}

/* Whether nobody lacks a row of which there are others. */
static bool lacks_none(const struct merge *merge, const struct chunk *chunk)
{
    bool whole = true;
    for (uint32_t i = 0; i < merge->sources && whole; i++) {
        uint32_t own = bps_bits_count(merge->source[i].bits + chunk->word, chunk->words);
        whole = own == 0 || own == chunk->rows;
    }
    return whole;
}

static void sum_chunks(struct merge *merge)
{
    uint32_t row = merge->slice->round->spec.row;
    size_t words = bps_rows_words(merge->limit), step = bps_spread_words(row);
    for (struct chunk chunk = {0}; chunk.word < words; chunk.word += step) {
        chunk.words = words - chunk.word < step ? words - chunk.word : step;
        size_t left = merge->limit - 64 * chunk.word;
        chunk.rows = (uint32_t)(left < 64 * step ? left : 64 * step);
        chunk.count = bps_bits_count(merge->bits + chunk.word, chunk.words);
        bool spread = merge->scratch != NULL && bps_spread_pays(merge->sources, chunk.count, chunk.rows, row);
        if (chunk.count > 0 && (spread || lacks_none(merge, &chunk))) {
            sum_at_once(merge, &chunk);
        } else if (chunk.count > 0) {
            sum_rows(merge, &chunk);
        }
    }
}

static bps_status merge_all(struct merge *merge)
{
    struct bps_sum_slice *slice = merge->slice;
    const struct bps_round *round = slice->round;
    uint32_t row = round->spec.row;
    size_t bytes = bps_rows_before(merge->count, merge->limit) + (size_t)merge->count * row;
    char *block = bps_block_get(round->sum, &slice->block, bytes);
    if (merge->exact && bps_spread_pays(merge->sources, 1, 1, row)) {
        merge->scratch = malloc((merge->sources + 1) * 64 * bps_spread_words(row) * row);
    }
    if (block == NULL) {
        return BPS_ERR_NOMEM;
    }
    merge->to = bps_rows_write(block, merge->count, merge->limit, merge->bits);
    merge->last = bps_quorum_factor(slice);
    BPS_CALLING_KERNEL(round->reducer, "reduce", NULL);
    sum_chunks(merge);
    bps_assert(merge->to == block + bytes);
    slice->payload = block;
    slice->payload_bytes = (uint32_t)bytes;
    return BPS_OK;
}

static bps_status sparse_sum_finish(struct bps_sum_slice *slice, struct bps_report *report)
{
    struct merge merge = {.slice = slice, .exact = true, .limit = bps_rows_limit(slice->bytes, slice->round->spec.row)};
    (void)report;
    bps_status status = find_sources(&merge);
    status = status == BPS_OK ? mark_rows(&merge) : status;
    status = status == BPS_OK ? merge_all(&merge) : status;
    free(merge.scratch);
    free(merge.bits);
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
