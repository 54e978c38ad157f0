/* SPDX-License-Identifier: Apache-2.0 */
/* rounds.c - keys whose rounds are summed here: who may contribute what and when, and what ends a round otherwise. */
#include "base/rows.h"
#include "base/tensor.h"
#include "sum/round.h"

/* ---- joining ---- */

/* Notes for the verdict what this rank, or each of its group, has pushed. */
static bps_status note_odd(struct bps_round *round, uint32_t rank, bool for_group, const struct bps_spec *spec)
{
    struct bps_sum *sum = round->sum;
    struct bps_pushed *odd = (void *)bps_block_get(sum, &round->odd, sum->config.workers * sizeof *odd);
    uint32_t i = rank;
    if (odd == NULL) {
        return BPS_ERR_NOMEM;
    }
    do {
        odd[round->odds++] = (struct bps_pushed){i, *spec};
        i = for_group ? sum->mate[i] : rank;
    } while (i != rank);
    if (spec->bytes > round->max_bytes) {
        round->max_bytes = spec->bytes;
    }
    return BPS_OK;
}

/* The others have ended the round already: this one alone is told. */
static void refuse_odd(struct bps_round *round, uint32_t rank)
{
    char text[BPS_VERDICT_BYTES];
    bps_verdict_odd(round, text, sizeof text);
    round->odds = 0;
    bps_round_refuse_late(round, rank, BPS_ERR_MISMATCH, text);
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
    bool opens = round->opener == rank; /* so it is what the others are compared with */
    status = opens || bps_spec_equal(&round->spec, spec) ? BPS_OK : note_odd(round, rank, for_group, spec);
    if (status == BPS_OK && round->odds > 0 && bps_round_ended_early(round)) {
        refuse_odd(round, rank);
    } else if (status == BPS_OK && round->odds > 0 && round->joined == round->ranks->n) {
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
    return spec->coding->compressor == NULL || (bps_coding_takes(spec->coding, spec->dtype) &&
                                                c->length <= bps_coding_bound(spec->coding, spec->exact, spec->dtype,
                                                                              bytes / bps_element_size(spec->dtype)));
}

/* Whether it can be some rows of so many bytes. */
static bool fits_rows(const struct bps_contribution *c, uint32_t bytes)
{
    const struct bps_spec *spec = &c->spec;
    bool sums = bps_sums(&spec->roles) && (spec->op == BPS_SUM || spec->op == BPS_AVERAGE) && spec->coding == NULL;
    bool cuts = spec->row % bps_element_size(spec->dtype) == 0 && spec->bytes % spec->row == 0;
    return sums && cuts && bytes > 0 && c->length >= BPS_ROWS_HEAD && c->length <= bps_rows_bound(bytes, spec->row);
}

/* Whether it has the size of what it stands for. */
static bool rounds_fits(const struct bps_sum *sum, bool receiver, const struct bps_contribution *c)
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
    return c->spec.row > 0 ? fits_rows(c, own) : c->spec.coding == NULL ? c->length == own : fits_coded(c, own);
}

static bool rounds_has(const struct bps_sum *sum, const struct bps_round_id *id, uint64_t bytes, uint32_t size)
{
    bool block = id->tensor >= BPS_ID_UNNAMED && id->partition >= BPS_BLOCKS;
    uint32_t number = block ? 0 : id->partition; /* blocks have any numbers */
    return bps_is_partition(bytes, sum->config.partition, number, size);
}

/* Whether it is one of blocks, which alone have one who gets them; they are sent one by one, to or from a leader. */
static bool fits_blocks(const struct bps_sum *sum, const struct bps_contribution *c)
{
    const struct bps_spec *spec = &c->spec;
    bool moved = !c->for_group && spec->roles.from != spec->roles.to;
    bool all = !bps_aggregates(sum) || bps_sums(&spec->roles) || spec->roles.to == BPS_EVERYBODY;
    bool here = all || spec->roles.from == sum->config.leader || spec->roles.to == sum->config.leader;
    return spec->kind > BPS_KIND_BROADCAST && here && (bps_sums(&spec->roles) || moved);
}

/* What holds for every contribution of a worker that works, whatever the others do. */
static bool rounds_is_sane(const struct bps_sum *sum, uint32_t rank, const struct bps_contribution *c)
{
    const struct bps_spec *spec = &c->spec;
    if (c->size % bps_element_size(spec->dtype) != 0 || !bps_is_slice(c->slice, sum->config.slice) ||
        (bps_aggregates(sum) && (c->for_group || spec->coding != NULL || spec->row > 0))) {
        return false; /* an aggregator hears its own group, one by one, and within the host */
    }
    if (spec->kind > BPS_KIND_BROADCAST || spec->roles.to != BPS_EVERYBODY) {
        return fits_blocks(sum, c) && rounds_fits(sum, !bps_brings(&spec->roles, rank), c);
    }
    bool brings = bps_sums(&spec->roles) ||
                  bps_stands_for_source(sum, rank, bps_is_for_group(sum, rank, c->for_group), &spec->roles);
    return rounds_fits(sum, !brings, c);
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

/* The round goes well. `joins`: it is the first contribution of the worker, and has been compared. */
static bps_status rounds_begin(struct bps_round *round, bool joins, const struct bps_contribution *c,
                               struct bps_sum_cursor *cursor)
{
    uint32_t rank = cursor->rank;
    cursor->slice = c->offset / round->grid;
    if ((!joins && !bps_spec_equal(&round->spec, &c->spec)) ||
        bps_bit(round->for_group_bits, rank) != cursor->for_group || round->bytes != c->size ||
        round->grid != bps_round_grid(round->sum, c) || bps_bit(bps_begun(round, cursor->slice), rank)) {
        return BPS_ERR_PROTOCOL; /* it began otherwise, or this came before */
    }
    bps_set_bit(bps_begun(round, cursor->slice), rank);
    round->rate = c->rate > round->rate ? c->rate : round->rate;
    if (!round->slice[cursor->slice].ended) {
        round->slice[cursor->slice].brought |= c->brings;
        round->slice[cursor->slice].codes |= c->codes;
    }
    round->mark = bps_number_is_before(c->mark, round->mark) ? c->mark : round->mark;
    if (c->length == 0 && !(bps_aggregates(round->sum) && round->bytes > 0)) {
        push_empty(round, rank, cursor->for_group);
        return BPS_OK;
    }
    bps_sum_trace(&round->slice[cursor->slice], BPS_TRACE_RECEIVE, rank, false, BPS_TRACE_NOW);
    cursor->round = &round->base;
    cursor->scale *= round->share;
    bps_round_hold(round);
    return BPS_OK;
}

/* Whether nothing of it is awaited any more. */
static bool has_all_of(const struct bps_round *round, uint32_t rank)
{
    uint32_t i = 0;
    while (i < round->slices && bps_bit(bps_arrived(round, i), rank)) {
        i++;
    }
    return i == round->slices;
}

/* Of what two workers send to each other: its operation is another one than theirs. */
static bool is_stranger(const struct bps_round *round, uint32_t rank)
{
    return round->ranks == &round->two && !bps_ranks_has(round->ranks, rank);
}

static bps_status rounds_push(struct bps_key *key, uint32_t rank, const struct bps_contribution *c,
                              struct bps_sum_cursor *cursor)
{
    struct bps_sum *sum = key->sum;
    struct bps_round_base *base;
    bps_status status = rounds_is_sane(sum, rank, c) ? bps_key_round(key, c, &base) : BPS_ERR_PROTOCOL;
    if (status != BPS_OK || base == NULL) {
        return status;
    }
    struct bps_round *round = (struct bps_round *)base;
    if (key->notes != NULL && (status = bps_round_apply_held(round, false)) != BPS_OK) {
        return status;
    }
    if (is_stranger(round, rank)) {
        bps_round_tell_stranger(round, rank);
        return BPS_OK;
    }
    if (c->spec.coding != NULL && !c->dropped) {
        bps_round_settle_before(round);
    }
    cursor->for_group = bps_is_for_group(sum, rank, c->for_group);
    cursor->hollow = c->empty;
    cursor->slot = bps_ranks_slot(round->ranks, cursor->for_group ? sum->config.group[rank] : rank);
    bool joins = !bps_bit(round->spoke_bits, rank);
    if (joins) {
        bps_round_hold(round);
        status = join(round, rank, cursor->for_group, &c->spec);
        if (status == BPS_OK) {
            bps_round_came(round, rank, c);
            bps_round_go_on(round);
        }
        round->base.holds--;
    }
    bool refused = status == BPS_OK && bps_round_ended_early(round) && has_all_of(round, rank);
    if (status != BPS_OK || round->base.failure != NULL || round->odds > 0 || refused) {
        bps_round_collect(round); /* its bytes no longer matter */
        return status;
    }
    bps_check(bps_round_check(round));
    return rounds_begin(round, joins, c, cursor);
}

/* ---- what ends a round from outside: a worker's word, or the network's, or nobody's ---- */

/* Whether it has spoken, but not pushed all slices: it cannot make the next one. */
static bool stops(const struct bps_round *round, uint32_t rank)
{
    return bps_bit(round->spoke_bits, rank) && !has_all_of(round, rank);
}

static bps_status poison_round(struct bps_key *key, uint32_t rank, const struct bps_notice *poison)
{
    const struct bps_sum *sum = key->sum;
    struct bps_round_base *base;
    bool fits = !bps_aggregates(sum) || !poison->for_group;
    bps_status status = fits ? bps_key_ending(key, poison, &base) : BPS_ERR_PROTOCOL;
    if (status != BPS_OK || base == NULL) {
        return status;
    }
    struct bps_round *round = (struct bps_round *)base;
    if (is_stranger(round, rank)) {
        bps_round_collect(round);
        return BPS_OK;
    }
    if (key->notes != NULL && (status = bps_round_apply_held(round, true)) != BPS_OK) {
        return status;
    }
    bool withdraws = round->spec.kind > BPS_KIND_BROADCAST && bps_bit(round->spoke_bits, rank);
    if (!stops(round, rank) && !withdraws) {
        status = bps_round_speak(round, rank, bps_is_for_group(sum, rank, poison->for_group));
    }
    if (status != BPS_OK) {
        return status;
    }
    bps_check(bps_round_check(round));
    if (bps_round_ended_early(round)) {
        bps_round_refuse_late(round, rank, poison->status, poison->answer ? poison->text : NULL);
        bps_round_collect(round);
        return BPS_OK;
    }
    bps_round_hold(round);
    bps_round_fail(round, poison->status, poison->text, rank);
    bps_assert(round->base.failure != NULL);
    if (poison->answer && !round->pending) {
        bps_round_tell(round, rank, BPS_NOTICE_FAILED, round->base.failure);
    }
    bps_round_release(round);
    return BPS_OK;
}

static bps_status fail_round(struct bps_key *key, const struct bps_notice *failed)
{
    struct bps_round_base *base;
    bps_status status = bps_key_ending(key, failed, &base);
    if (status != BPS_OK || base == NULL) {
        return status;
    }
    struct bps_round *round = (struct bps_round *)base;
    bps_round_hold(round);
    if (round->deliveries == 0) { /* else the result is there and on its way */
        round->max_bytes = failed->bytes > round->max_bytes ? failed->bytes : round->max_bytes;
        round->handed_on = true;
        round->summed = failed->summed;
        if (round->pending) {
            bps_round_end_pending(round, failed->status, failed->text);
        } else {
            bps_round_fail(round, failed->status, failed->text, BPS_SUM_ALL);
        }
    }
    bps_round_release(round);
    return BPS_OK;
}

/* ---- workers that are no longer there ---- */

static void rounds_leave(struct bps_round_base *base, uint32_t rank)
{
    struct bps_round *round = (struct bps_round *)base;
    if (bps_bit(round->sum->gone_bits, rank)) {
        bps_loans_forget(round, rank);
        if (!round->sum->config.elastic && round->complete < round->slices && bps_ranks_has(round->ranks, rank)) {
            bps_round_fail_without(round, rank);
        }
    }
    bps_round_join_left(round);
    bps_round_go_on(round);
    bps_check(bps_round_check(round));
    bps_round_collect(round);
}

/* A slow receiver is not a missing one. */
static bool rounds_missing(const struct bps_round_base *base, char *text, size_t n, char *late, size_t room)
{
    text[0] = '\0';
    if (base->failure == NULL && !bps_round_ended_early((const struct bps_round *)base)) {
        bps_verdict_missing((const struct bps_round *)base, text, n, late, room);
    }
    return text[0] != '\0';
}

static void rounds_stalled(struct bps_round_base *base, bool overdue, const char *text)
{
    struct bps_round *round = (struct bps_round *)base;
    if (overdue) {
        bps_round_fail(round, BPS_ERR_TIMEOUT, text, BPS_SUM_ALL);
        bps_round_collect(round);
    } else {
        bps_round_tell_all(round, BPS_NOTICE_STALLED, text, BPS_SUM_ALL);
    }
}

static void rounds_collect(struct bps_round_base *round)
{
    bps_round_collect((struct bps_round *)round);
}

const struct bps_key_ops bps_rounds_ops = {
    .bytes = sizeof(struct bps_key),
    .has = rounds_has,
    .push = rounds_push,
    .poison = poison_round,
    .fail = fail_round,
    .open = bps_round_open,
    .leave = rounds_leave,
    .missing = rounds_missing,
    .stalled = rounds_stalled,
    .collect = rounds_collect,
    .wants = bps_slice_wants,
    .delivered = bps_slice_delivered,
};
