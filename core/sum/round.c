/* SPDX-License-Identifier: Apache-2.0 */
/* round.c - keys and their rounds: how they are found, their memory, their end. */
#include "sum/round.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/report.h"
#include "base/tensor.h"
#include "plugin/use.h"

#define FEW_MEMBERS 16u

bps_status bps_find_kernels(const struct bps_instance *reducer, const struct bps_spec *spec, struct bps_kernels *out,
                            const struct bps_instance **by, struct bps_report *report)
{
    *by = reducer;
    if (!bps_sums(&spec->roles)) {
        *out = (struct bps_kernels){.accumulator = spec->dtype}; /* only moves bytes */
        return BPS_OK;
    }
    return bps_reducer_kernels(reducer, spec->op, spec->dtype, out, by, report);
}

/*
 * The same of a round, whose contributions are summed as this type. One round is mostly like the one before it, so that
 * the reducer need not be asked, and its answer not be checked, for each.
 */
static bps_status round_find_kernels(struct bps_sum *sum, const struct bps_spec *spec, uint32_t dtype,
                                     struct bps_kernels *out, const struct bps_instance **by, struct bps_report *report)
{
    struct bps_found *found = &sum->found;
    bool sums = bps_sums(&spec->roles);
    if (sums && found->reducer != NULL && found->op == spec->op && found->dtype == dtype) {
        *out = found->kernels;
        *by = found->reducer;
        return BPS_OK;
    }
    struct bps_spec summed = *spec;
    summed.dtype = (uint8_t)dtype;
    bps_status status = bps_find_kernels(sum->config.reducer, &summed, out, by, report);
    if (sums && status == BPS_OK) {
        *found = (struct bps_found){.op = spec->op, .dtype = dtype, .reducer = *by, .kernels = *out};
    }
    return status;
}

/*
 * Contributions are kept apart if one pass is needed, or cheaper. Of few that would be widened, that is what takes
 * fewer bytes: each is read once and the result written, while an accumulator would be read and written for
 * each. An average of integers is always made in one pass.
 */
static const struct bps_sum_policy *choose_policy(const struct bps_sum *sum, const struct bps_ranks *ranks,
                                                  uint32_t quorum, const struct bps_spec *spec,
                                                  const struct bps_kernels *kernels)
{
    if (spec->coding != NULL || spec->row > 0) {
        return spec->row > 0 ? &bps_sparse : &bps_coded;
    }
    bool average = spec->op == BPS_AVERAGE && bps_is_integer(spec->dtype);
    bool widened = kernels->accumulator != spec->dtype;
    bool early = quorum < ranks->n; /* what is late has not been added to the others */
    bool apart = early || sum->config.rank_order || average || (widened && ranks->n <= FEW_MEMBERS);
    bool moves = spec->bytes == 0 || !bps_sums(&spec->roles); /* there is nothing to be summed */
    return (bps_aggregates(sum) ? spec->bytes > 0 : apart && !moves) ? &bps_one_pass : &bps_accumulate;
}

/* Carves the arrays that follow the struct out of one zeroed block. */
static struct bps_round *round_allocate(struct bps_sum *sum, const struct bps_ranks *ranks, uint32_t quorum,
                                        uint32_t slices, const struct bps_sum_policy *policy)
{
    size_t n = ranks->n, words = sum->words, sets = quorum < n ? 3 : 2;
    size_t head = sizeof(struct bps_round) + slices * sizeof(struct bps_sum_slice);
    size_t bits = (3 + sets * slices) * words * sizeof(uint64_t);
    size_t parts = policy->apart ? slices * n * sizeof(struct bps_part) : 0;
    struct bps_round *round = bps_pool_get(sum->pool, head + bits + parts);
    if (round == NULL) {
        return NULL;
    }
    memset(round, 0, head + bits + parts);
    round->memory = head + bits + parts;
    round->opener = UINT32_MAX;
    round->joined_bits = (uint64_t *)((char *)round + head);
    round->spoke_bits = round->joined_bits + words;
    round->for_group_bits = round->spoke_bits + words;
    round->begun_bits = round->for_group_bits + words;
    round->arrived_bits = round->begun_bits + slices * words;
    round->counted_bits = round->arrived_bits + (sets - 2) * slices * words;
    round->part = (struct bps_part *)((char *)round + head + bits);
    round->policy = policy;
    round->ranks = ranks;
    round->quorum = quorum;
    return round;
}

static bool is_unknown(const struct bps_sum *sum, uint32_t rank)
{
    bool elsewhere = bps_aggregates(sum) && rank < sum->config.workers; /* in another group */
    return !elsewhere && !bps_ranks_has(&sum->all, rank);
}

static inline bool has_strangers(const struct bps_sum *sum, const struct bps_roles *roles)
{
    return (roles->from != BPS_EVERYBODY && is_unknown(sum, roles->from)) ||
           (roles->to != BPS_EVERYBODY && is_unknown(sum, roles->to));
}

/* What makes a round fail whatever comes: nobody is in it yet, so all hear of it when they come. */
static void check_possible(struct bps_round *round, bps_status known, const char *unknown)
{
    const struct bps_sum *sum = round->sum;
    const struct bps_spec *spec = &round->spec;
    char text[BPS_VERDICT_BYTES];
    if (spec->coding != NULL && spec->coding->compressor == NULL) {
        snprintf(text, sizeof text, "%s cannot decode it: %s", sum->here, spec->coding->problem);
        bps_round_fail(round, BPS_ERR_UNSUPPORTED, text, BPS_SUM_ALL);
    } else if (known != BPS_OK) {
        struct bps_report why;
        bps_fail(&why, known, "%s's %s", sum->here, unknown);
        bps_round_fail(round, known, why.text, BPS_SUM_ALL);
    } else if (has_strangers(sum, &spec->roles)) {
        bps_verdict_root(bps_sums(&spec->roles) ? spec->roles.to : spec->roles.from, sum->config.workers, text,
                         sizeof text);
        bps_round_fail(round, BPS_ERR_INVALID, text, BPS_SUM_ALL);
    }
    bps_round_join_left(round);
}

uint32_t bps_round_grid(const struct bps_sum *sum, const struct bps_contribution *c)
{
    bps_assert(sum->config.slice > 0);
    const struct bps_coding *coding = c->spec.coding;
    if (c->spec.row > 0 && c->size > 0) {
        return c->size; /* all of the partition is one slice */
    }
    if (coding != NULL && coding->compressor != NULL) {
        return bps_coding_slice(coding, c->spec.dtype);
    }
    return c->slice > 0 && !bps_aggregates(sum) ? c->slice : (uint32_t)sum->config.slice;
}

/* A partial sum is divided before it is made: its postscale and the rest of an average come in the network. */
static void choose_factors(struct bps_round *round)
{
    const struct bps_sum *sum = round->sum;
    const struct bps_spec *spec = &round->spec;
    if (bps_is_partial(sum)) {
        round->share = 1.0 / bps_group_divisor(spec->op, spec->dtype, round->ranks->n);
        round->last = (struct bps_last_factor){1.0, 1};
        return;
    }
    round->share = bps_share(spec->op, spec->dtype, round->ranks->n);
    round->last = bps_last_factor(spec->op, spec->dtype, round->ranks->n, spec->postscale);
}

/* One worker sends it to one other. */
static bool is_pair(const struct bps_sum *sum, const struct bps_roles *roles)
{
    return roles->from < sum->config.workers && roles->to < sum->config.workers && roles->from != roles->to;
}

/* Those who take part: in what goes from one worker to another these two. */
static void choose_ranks(struct bps_round *round, const struct bps_roles *roles)
{
    bool ascends = roles->from < roles->to;
    if (is_pair(round->sum, roles) && !bps_is_partial(round->sum)) {
        round->pair[0] = ascends ? roles->from : roles->to;
        round->pair[1] = ascends ? roles->to : roles->from;
        round->two = (struct bps_ranks){.n = 2, .workers = round->sum->config.workers, .rank = round->pair};
        round->ranks = &round->two;
        round->quorum = 2;
    }
}

struct bps_round_base *bps_round_open(struct bps_key *key, const struct bps_contribution *c)
{
    struct bps_sum *sum = key->sum;
    const struct bps_sum_config *config = &sum->config;
    uint32_t grid = bps_round_grid(sum, c), slices = bps_partitions(c->size, grid);
    bps_assert(grid > 0 && slices > 0);
    uint32_t summed =
        c->spec.coding != NULL ? bps_coding_type(c->spec.dtype) : c->spec.dtype; /* what it is decoded to */
    struct bps_kernels kernels = {.accumulator = summed};
    const struct bps_instance *reducer;
    struct bps_report why;
    bps_status known = round_find_kernels(sum, &c->spec, summed, &kernels, &reducer, &why);
    const struct bps_ranks *ranks = config->ranks != NULL ? config->ranks(config->owner, &c->id) : NULL;
    ranks = ranks != NULL ? ranks : &sum->all;
    uint32_t quorum = bps_quorum(sum, ranks, c);
    struct bps_round *round =
        round_allocate(sum, ranks, quorum, slices, choose_policy(sum, ranks, quorum, &c->spec, &kernels));
    if (round == NULL) {
        return NULL;
    }
    round->sum = sum;
    round->spec = c->spec;
    choose_ranks(round, &c->spec.roles);
    round->kernels = kernels;
    round->reducer = reducer;
    choose_factors(round);
    round->element = c->spec.coding != NULL || c->spec.row > 0 ? 1 : (uint32_t)bps_element_size(c->spec.dtype);
    round->grid = grid;
    round->width = round->policy->apart ? round->element : (uint32_t)bps_element_size(kernels.accumulator);
    round->priority = c->priority;
    round->slices = round->unfinished = slices;
    round->bytes = c->size;
    round->max_bytes = c->spec.bytes;
    round->mark = c->mark;
    round->base.begun = round->base.reminded = bps_now_roughly();
    for (uint32_t i = 0; i < slices; i++) {
        struct bps_sum_slice *slice = &round->slice[i];
        slice->key = key;
        slice->round = round;
        slice->id = c->id;
        slice->spec = &round->spec;
        slice->priority = round->priority;
        slice->index = i;
        slice->step = bps_trace_is_on() && !bps_aggregates(sum) ? c->step : 0;
        slice->may_end_early = quorum < ranks->n;
        slice->size = c->size;
        slice->offset = i * grid;
        slice->bytes = slice->payload_bytes = bps_partition_bytes(c->size, grid, i);
    }
    bps_key_add(key, &c->id, &round->base);
    check_possible(round, known, why.text);
    return &round->base;
}

/* ---- the end ---- */

/* Returns the blocks of a round that has failed. */
static void round_release_blocks(struct bps_round *round)
{
    for (uint32_t i = 0; i < round->slices; i++) {
        if (round->policy->apart) {
            round->policy->free_parts(&round->slice[i]);
        }
        bps_quorum_forget(&round->slice[i]);
        bps_block_put(round->sum, &round->slice[i].block);
    }
}

static void free_round(struct bps_round *round)
{
    bps_assert(round->base.holds == 0 && round->deliveries == 0);
    bps_assert(round->opener == UINT32_MAX || round->sum->held[round->opener] >= round->memory);
    round_release_blocks(round);
    bps_key_remove(&round->base);
    bps_block_put(round->sum, &round->odd);
    bps_block_put(round->sum, &round->held);
    if (round->opener != UINT32_MAX) {
        round->sum->held[round->opener] -= round->memory;
    }
    bps_pool_put(round->sum->pool, round, round->memory);
}

void bps_round_collect(struct bps_round *round)
{
    bps_assert(round->complete <= round->slices && round->unfinished <= round->slices);
    struct bps_sum *sum = round->sum;
    struct bps_key *key = round->base.key;
    if (round->base.holds > 0 || round->deliveries > 0 || (round->base.failure == NULL && round->unfinished > 0)) {
        return;
    }
    if (sum->walking > 0) {
        sum->uncollected = true;
        return;
    }
    if (round->joined < round->ranks->n) {
        round_release_blocks(round); /* it has failed: those who come now only hear of it */
        return;
    }
    /* Late slices of a failed round must still find its key; all others of unnamed tensors are forgotten. */
    bool forget = round->base.failure == NULL && round->base.id.tensor >= BPS_ID_UNNAMED;
    free_round(round);
    if (forget) {
        bps_key_forget(key, BPS_KEY_ROUNDS);
    }
}
