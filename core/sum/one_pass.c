/* SPDX-License-Identifier: Apache-2.0 */
/*
 * one_pass.c - the policy of a sum that is made when all are there: contributions are kept apart, and one pass
 * goes over all of them, in the order of their ranks.
 *
 * With loans the pass goes in chunks: each is summed, and the sum copied to everybody's answer while it is in
 * the cache. So every byte is read from memory once and written once for each answer, which is the least
 * there can be.
 */
#include <stdlib.h>
#include <string.h>

#include "sum/round.h"

#include "base/assert.h"

/* Where all is mapped: half of a first-level cache would do, but this many pages in a row please the prefetchers. */
#define CHUNK_MAPPED (32u << 10)
/*
 * Where a system call copies: large enough to make up for the call, and all copies together still in the second level.
 */
#define CHUNK_COPIED (256u << 10)

/* ---- contributions ---- */

/* The last contribution, if it is whole and summed at once, need not be copied to a block. */
static bool borrow(const struct bps_sum_cursor *cursor, uint32_t offset, const void *data, uint32_t bytes)
{
    const struct bps_sum_slice *slice = bps_cursor_slice(cursor);
    struct bps_part *part = bps_part_of(cursor);
    if (part->block.data != NULL || offset > 0 || bytes < cursor->bytes || slice->ended ||
        slice->arrived + 1 < slice->round->quorum || !bps_slice_is_quick(slice)) {
        return false;
    }
    part->block.data = (void *)(uintptr_t)data;
    part->borrowed = true;
    return true;
}

static bps_status one_pass_take(const struct bps_sum_cursor *cursor, uint32_t offset, const void *data, uint32_t bytes)
{
    bps_assert(bps_part_of(cursor)->loan == NULL);
    if (borrow(cursor, offset, data, bytes)) {
        bps_part_of(cursor)->scale = cursor->scale;
        return BPS_OK;
    }
    return bps_apart_take(cursor, offset, data, bytes);
}

/* ---- the pass ---- */

/* The sources are in the engine's arrays: origin is their slot. */
struct pass {
    struct bps_sum_slice *slice;
    uint32_t sources;
    uint32_t unmapped; /* of the sources */
    uint32_t chunk;
    const double *weights;
    struct bps_last_factor last;
    char *direct; /* where the sum can be made in place; NULL: only in the scratch memory */
};

static struct bps_loan *loan_in(const struct pass *pass, uint32_t slot)
{
    return bps_parts(pass->slice)[slot].loan;
}

/* Who brings data. */
static void list_sources(struct pass *pass)
{
    struct bps_round *round = pass->slice->round;
    struct bps_sum *sum = round->sum;
    bool all = pass->slice->arrived == round->ranks->n;
    for (uint32_t i = 0; i < round->ranks->n; i++) {
        const struct bps_part *part = &bps_parts(pass->slice)[i];
        bool brings = bps_brings(&round->spec.roles, round->ranks->rank[i]);
        if (!brings || (!all && bps_part_is_open(pass->slice, i)) || (part->block.data == NULL && part->loan == NULL)) {
            continue;
        }
        pass->unmapped += part->loan != NULL && part->loan->data == NULL;
        sum->origin[pass->sources] = i;
        bps_assert(pass->sources < sum->all.n);
        sum->weight[pass->sources++] = part->scale;
        if (part->scale != 1.0) {
            pass->weights = sum->weight;
        }
    }
}

/* Where the leader gets the sum, if in memory here: those who have lent none can be sent it from there. */
static void *leader_answer(const struct bps_sum_slice *slice)
{
    const struct bps_sum *sum = slice->round->sum;
    uint32_t leader = sum->config.leader;
    bool gets = bps_aggregates(sum) && (bps_is_partial(sum) || bps_slice_wants(slice, leader));
    const struct bps_loan *loan = gets ? bps_sum_loan(slice, leader) : NULL;
    return loan != NULL ? loan->answer : NULL;
}

/* Whether somebody is to get the sum, and there is no memory for it yet. */
static bool needs_block(const struct pass *pass)
{
    const struct bps_sum *sum = pass->slice->round->sum;
    const struct bps_ranks *ranks = pass->slice->round->ranks;
    bool answer = leader_answer(pass->slice) != NULL;
    if (answer || bps_is_partial(sum)) {
        return !answer;
    }
    for (uint32_t i = 0; i < ranks->n; i++) {
        if (loan_in(pass, i) == NULL && bps_slice_wants(pass->slice, ranks->rank[i])) {
            return true;
        }
    }
    return false;
}

/* The block of the first source will do: the sum may be made in place of a source. */
static bps_status take_block(struct pass *pass)
{
    struct bps_sum_slice *slice = pass->slice;
    struct bps_sum *sum = slice->round->sum;
    struct bps_part *first = &bps_parts(slice)[sum->origin[0]];
    if (!first->borrowed) {
        slice->block = first->block;
    }
    return bps_block_get(sum, &slice->block, slice->bytes) != NULL ? BPS_OK : BPS_ERR_NOMEM;
}

/* Finds a place for the sum to be made in at once: somebody's answer, or the block. */
static void choose_direct(struct pass *pass)
{
    const struct bps_sum *sum = pass->slice->round->sum;
    const struct bps_ranks *ranks = pass->slice->round->ranks;
    pass->direct = pass->slice->block.data;
    for (uint32_t i = 0; i < ranks->n; i++) {
        const struct bps_loan *loan = loan_in(pass, i);
        bool wants = !bps_is_partial(sum) || ranks->rank[i] == sum->config.leader;
        if (wants && loan != NULL && loan->answer != NULL) {
            pass->direct = loan->answer;
            return;
        }
    }
}

/* How much at once, and the memory for it. */
static bps_status choose_chunk(struct pass *pass)
{
    struct bps_sum *sum = pass->slice->round->sum;
    bool lent = false, mapped = true;
    for (uint32_t i = 0; i < pass->slice->round->ranks->n; i++) {
        const struct bps_loan *loan = loan_in(pass, i);
        lent = lent || loan != NULL;
        mapped = mapped && (loan == NULL || loan->data != NULL);
    }
    pass->chunk = mapped ? CHUNK_MAPPED : CHUNK_COPIED;
    if (pass->unmapped > 1) {
        uint32_t share = CHUNK_COPIED / pass->unmapped / CHUNK_MAPPED * CHUNK_MAPPED;
        pass->chunk = share > CHUNK_MAPPED ? share : CHUNK_MAPPED;
    }
    if (!lent) {
        pass->chunk = pass->slice->bytes; /* nothing to be copied while it is warm */
    }
    bool sums = bps_sums(&pass->slice->round->spec.roles), apart = pass->direct == NULL;
    size_t bytes = sums ? (size_t)(pass->unmapped + apart) * pass->chunk : apart ? pass->chunk : 0;
    bytes = (bytes + CHUNK_MAPPED - 1) / CHUNK_MAPPED * CHUNK_MAPPED;
    if (bytes > sum->scratch_bytes) {
        free(sum->scratch);
        sum->scratch = aligned_alloc(CHUNK_MAPPED, bytes);
        sum->scratch_bytes = sum->scratch != NULL ? bytes : 0;
    }
    return sum->scratch != NULL || bytes == 0 ? BPS_OK : BPS_ERR_NOMEM;
}

/* Where the sources have these bytes. *scratch: memory behind what was copied. What is moved comes to its place. */
static bps_status fetch(struct pass *pass, uint32_t offset, uint32_t bytes, char **scratch)
{
    struct bps_sum *sum = pass->slice->round->sum;
    bool moves = pass->direct != NULL && !bps_sums(&pass->slice->round->spec.roles);
    *scratch = moves ? pass->direct + offset : sum->scratch;
    for (uint32_t i = 0; i < pass->sources; i++) {
        const char *block = bps_parts(pass->slice)[sum->origin[i]].block.data;
        const char *data = block != NULL ? block + offset : NULL;
        if (data == NULL) {
            data = bps_loan_data(pass->slice, pass->slice->round->ranks->rank[sum->origin[i]], offset, bytes, *scratch);
        }
        if (data == NULL) {
            return BPS_ERR_LOST;
        }
        if (data == *scratch) {
            *scratch += pass->chunk;
        }
        sum->source[i] = data;
    }
    return BPS_OK;
}

/* Copies the sum to all who get it here. */
static bps_status spread(struct pass *pass, uint32_t offset, uint32_t bytes, const char *data)
{
    struct bps_sum_slice *slice = pass->slice;
    const struct bps_sum *sum = slice->round->sum;
    char *block = slice->block.data;
    if (block != NULL && block + offset != data) {
        memcpy(block + offset, data, bytes);
    }
    if (bps_is_partial(sum)) {
        return bps_loan_write(slice, sum->config.leader, offset, bytes, data);
    }
    return bps_loans_write(slice, BPS_SUM_ALL, offset, bytes, data);
}

static bps_status sum_chunk(struct pass *pass, uint32_t offset, uint32_t bytes)
{
    struct bps_round *round = pass->slice->round;
    struct bps_sum *sum = round->sum;
    char *scratch;
    bps_status status = fetch(pass, offset, bytes, &scratch);
    if (status != BPS_OK) {
        return status;
    }
    if (!bps_sums(&round->spec.roles)) {
        return spread(pass, offset, bytes, sum->source[0]);
    }
    char *to = pass->direct != NULL ? pass->direct + offset : scratch;
    BPS_CALLING_KERNEL(round->reducer, "reduce", NULL);
    round->kernels.reduce(round->kernels.context, to, sum->source, pass->weights, pass->sources, bytes / round->element,
                          pass->last.scale, pass->last.divisor);
    return spread(pass, offset, bytes, to);
}

/* Returns the blocks of contributions that have come, except one that has become the slice's. */
static void one_pass_free_parts(struct bps_sum_slice *slice)
{
    struct bps_round *round = slice->round;
    struct bps_sum *sum = round->sum;
    bool all = slice->arrived == round->ranks->n;
    for (uint32_t i = 0; i < round->ranks->n; i++) {
        struct bps_part *part = &bps_parts(slice)[i];
        if (!all && bps_part_is_open(slice, i)) {
            continue;
        }
        if (part->block.data != slice->block.data && !part->borrowed) {
            bps_block_put(sum, &part->block);
        }
        part->block.data = NULL;
    }
}

static bps_status one_pass_finish(struct bps_sum_slice *slice, struct bps_report *report)
{
    struct pass pass = {.slice = slice, .last = bps_quorum_factor(slice)};
    (void)report;
    list_sources(&pass);
    if (pass.sources == 0) {
        return BPS_OK; /* who brings it is in another group */
    }
    bps_status status = needs_block(&pass) ? take_block(&pass) : BPS_OK;
    choose_direct(&pass);
    if (status == BPS_OK) {
        status = choose_chunk(&pass);
    }
    for (uint32_t at = 0, bytes; at < slice->bytes && status == BPS_OK; at += bytes) {
        bytes = slice->bytes - at < pass.chunk ? slice->bytes - at : pass.chunk;
        status = sum_chunk(&pass, at, bytes);
    }
    if (status == BPS_OK) {
        slice->payload = slice->block.data != NULL ? slice->block.data : leader_answer(slice);
        one_pass_free_parts(slice);
    }
    return status;
}

const struct bps_sum_policy bps_one_pass = {
    .apart = true,
    .entry = bps_apart_entry,
    .take = one_pass_take,
    .finish = one_pass_finish,
    .free_parts = one_pass_free_parts,
};
