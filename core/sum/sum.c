/* SPDX-License-Identifier: Apache-2.0 */
/* sum.c - the engine, and who may contribute what and when. */
#include "sum/sum.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "sum/round.h"

static bps_status init(struct bps_sum *sum)
{
    struct bps_sum_config *config = &sum->config;
    bps_status status = bps_groups_init(sum);
    if (status != BPS_OK) {
        return status;
    }
    sum->words = (config->workers + 63) / 64;
    sum->left_bits = calloc(2 * (size_t)sum->words, sizeof *sum->left_bits);
    sum->source = calloc(sum->all.n, sizeof *sum->source + sizeof *sum->weight + sizeof *sum->origin);
    sum->held = calloc(config->workers, sizeof *sum->held);
    bps_lateness_init(&sum->recent, config->workers);
    bps_lateness_init(&sum->late, config->workers);
    if (sum->left_bits == NULL || sum->source == NULL || sum->held == NULL) {
        return BPS_ERR_NOMEM;
    }
    sum->weight = (double *)(sum->source + sum->all.n);
    sum->origin = (uint32_t *)(sum->weight + sum->all.n);
    sum->gone_bits = sum->left_bits + sum->words;
    snprintf(sum->here, sizeof sum->here, "the server");
    if (bps_aggregates(sum)) {
        config->slice = config->partition;
        snprintf(sum->here, sizeof sum->here, "worker %u", config->leader);
    }
    return BPS_OK;
}

bps_status bps_sum_new(const struct bps_sum_config *config, struct bps_sum **out)
{
    struct bps_sum *sum = calloc(1, sizeof *sum);
    if (sum == NULL) {
        return BPS_ERR_NOMEM;
    }
    sum->config = *config;
    sum->config.held = config->held > 0 ? config->held : BPS_SUM_HELD;
    bps_pool_init(&sum->pool, config->events->attach, config->events->detach, config->owner);
    bps_status status = init(sum);
    if (status != BPS_OK) {
        bps_sum_free(sum);
        return status;
    }
    *out = sum;
    return BPS_OK;
}

static void free_odd(struct bps_round_base *round, const void *arg)
{
    (void)arg;
    free(((struct bps_round *)round)->odd);
}

void bps_sum_free(struct bps_sum *sum)
{
    if (sum == NULL) {
        return;
    }
    bps_rounds_each(&sum->rounds, free_odd, NULL);
    bps_rounds_fini(&sum->rounds);
    bps_heap_fini(&sum->due);
    bps_pool_fini(&sum->pool);
    bps_groups_fini(sum);
    bps_lateness_fini(&sum->recent);
    bps_lateness_fini(&sum->late);
    free(sum->held);
    free(sum->left_bits);
    free(sum->source); /* weight and origin follow it */
    free(sum->scratch);
    free(sum);
}

/* ---- joining a round ---- */

/* Notes for the verdict what this rank, or each of its group, has pushed. */
static bps_status note_odd(struct bps_round *round, uint32_t rank, bool for_group, const struct bps_spec *spec)
{
    uint32_t i = rank;
    do {
        if (!bps_array_reserve(round->odd, round->odd_room, round->odds + 1)) {
            return BPS_ERR_NOMEM;
        }
        round->odd[round->odds++] = (struct bps_pushed){i, *spec};
        i = for_group ? round->sum->mate[i] : rank;
    } while (i != rank);
    if (spec->bytes > round->max_bytes) {
        round->max_bytes = spec->bytes;
    }
    return BPS_OK;
}

/* The first contribution of a worker to a round. */
static bps_status join(struct bps_round *round, uint32_t rank, bool for_group, const struct bps_spec *spec)
{
    bps_status status = bps_round_speak(round, rank, for_group);
    if (status != BPS_OK) {
        return status;
    }
    if (round->base.failure != NULL && round->pending) {
        return BPS_OK; /* told with all others */
    }
    if (round->base.failure != NULL) {
        bps_round_tell(round, rank, BPS_NOTICE_FAILED, round->base.failure);
        return BPS_OK;
    }
    status = bps_spec_equal(&round->spec, spec) ? BPS_OK : note_odd(round, rank, for_group, spec);
    if (status == BPS_OK && round->odds > 0 && round->joined == round->ranks->n) {
        char text[BPS_VERDICT_BYTES];
        bps_verdict_odd(round, text, sizeof text);
        bps_round_fail(round, BPS_ERR_MISMATCH, text, BPS_SUM_ALL);
    }
    return status;
}

/* ---- contributions ---- */

/* Whether it can be the coded form of so many bytes. What cannot be decoded here fails its round in any case. */
static bool fits_coded(const struct bps_contribution *c, uint32_t bytes)
{
    const struct bps_spec *spec = &c->spec;
    bool sums = spec->op == BPS_SUM || spec->op == BPS_AVERAGE;
    if (!sums || bytes == 0 || c->length == 0 || c->prescale != 1.0 || !(c->rate >= 0 && c->rate - c->rate == 0)) {
        return false;
    }
    return spec->coding->compressor == NULL ||
           (bps_coding_takes(spec->coding, spec->dtype) &&
            c->length <= bps_coding_bound(spec->coding, spec->exact, spec->dtype, bytes / bps_dtype_size(spec->dtype)));
}

/* Whether it has the size of what it stands for. */
static bool fits(const struct bps_sum *sum, bool receiver, const struct bps_contribution *c)
{
    uint32_t bytes = c->size;
    if (c->empty) {
        bool lends = bps_aggregates(sum) && c->length == bytes;
        return receiver && c->offset == 0 && (c->length == 0 || lends);
    }
    uint32_t grid = bps_round_grid(sum, c);
    if (receiver || c->offset % grid != 0 || (c->offset >= bytes && c->offset > 0)) {
        return false;
    }
    uint32_t own = bps_partition_bytes(bytes, grid, c->offset / grid);
    return c->spec.coding == NULL ? c->length == own : fits_coded(c, own);
}

/* What holds for every contribution of a worker that works, whatever the others do. */
static bps_status check_push(const struct bps_sum *sum, uint32_t rank, const struct bps_contribution *c)
{
    const struct bps_spec *spec = &c->spec;
    size_t size = bps_dtype_size(spec->dtype);
    if (size == 0 || spec->op >= BPS_WIRE_OPS || spec->bytes % size != 0 || c->size % size != 0 ||
        !bps_is_partition(spec->bytes, sum->config.partition, c->id.partition, c->size) ||
        !bps_is_slice(c->slice, sum->config.slice)) {
        return BPS_ERR_PROTOCOL;
    }
    if (!bps_ranks_has(&sum->all, rank) || (bps_aggregates(sum) && (c->for_group || spec->coding != NULL))) {
        return BPS_ERR_PROTOCOL; /* an aggregator hears its own group, one by one, and within the host */
    }
    bool brings = bps_stands_for_source(sum, rank, bps_is_for_group(sum, rank, c->for_group), &spec->roles);
    return fits(sum, !brings, c) ? BPS_OK : BPS_ERR_PROTOCOL;
}

/* A contribution without payload: a receiver's to all slices of a broadcast, or to an empty tensor. */
static void push_empty(struct bps_round *round, uint32_t rank, bool for_group)
{
    bps_round_hold(round);
    for (uint32_t i = 0; i < round->slices; i++) {
        bps_slice_arrived(&round->slice[i], rank, for_group);
    }
    bps_round_release(round);
}

/* The round goes well. */
static bps_status begin(struct bps_round *round, const struct bps_contribution *c, struct bps_sum_cursor *cursor)
{
    uint32_t rank = cursor->rank;
    cursor->slice = c->offset / round->grid;
    if (!bps_spec_equal(&round->spec, &c->spec) || bps_bit(round->for_group_bits, rank) != cursor->for_group ||
        round->bytes != c->size || round->grid != bps_round_grid(round->sum, c) ||
        bps_bit(bps_begun(round, cursor->slice), rank)) {
        return BPS_ERR_PROTOCOL; /* it began otherwise, or this came before */
    }
    bps_set_bit(bps_begun(round, cursor->slice), rank);
    round->rate = c->rate > round->rate ? c->rate : round->rate;
    round->slice[cursor->slice].brought |= c->brings;
    round->slice[cursor->slice].codes |= c->codes;
    if (c->length == 0 && !(bps_aggregates(round->sum) && round->bytes > 0)) {
        push_empty(round, rank, cursor->for_group);
        return BPS_OK;
    }
    bps_sum_trace(&round->slice[cursor->slice], BPS_TRACE_RECEIVE, rank, false, BPS_TRACE_NOW);
    cursor->round = round;
    cursor->scale *= round->share;
    bps_round_hold(round);
    return BPS_OK;
}

bps_status bps_sum_push(struct bps_sum *sum, uint32_t rank, const struct bps_contribution *c,
                        struct bps_sum_cursor *cursor)
{
    struct bps_round *round = NULL;
    *cursor = (struct bps_sum_cursor){
        .sink = {.place = bps_sum_place, .take = bps_sum_take, .lend = bps_aggregates(sum) ? bps_sum_lend : NULL},
        .sum = sum,
        .rank = rank,
        .bytes = c->length,
        .scale = c->prescale,
    };
    bps_status status = check_push(sum, rank, c);
    if (status == BPS_OK) {
        status = bps_round_find(sum, c, &round);
    }
    if (status != BPS_OK || round == NULL) {
        return status;
    }
    if (c->spec.coding != NULL && !c->dropped) {
        bps_round_settle_before(round);
    }
    cursor->for_group = bps_is_for_group(sum, rank, c->for_group);
    cursor->hollow = c->empty;
    cursor->slot = round->ranks->slot[cursor->for_group ? sum->config.group[rank] : rank];
    if (!bps_bit(round->spoke_bits, rank)) {
        bps_round_hold(round);
        status = join(round, rank, cursor->for_group, &c->spec);
        if (status == BPS_OK) {
            bps_round_came(round, rank, c);
        }
        round->holds--;
    }
    if (status != BPS_OK || round->base.failure != NULL || round->odds > 0) {
        bps_round_collect(round); /* its bytes no longer matter */
        return status;
    }
    bps_check(bps_round_check(round));
    return begin(round, c, cursor);
}
