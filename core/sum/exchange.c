/* SPDX-License-Identifier: Apache-2.0 */
/* exchange.c - what is exchanged: our contribution, those of others, and their sum. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "sum/exchange_round.h"

struct bps_exchange *bps_exchange_new(const struct bps_exchange_config *config)
{
    struct bps_exchange *exchange = calloc(1, sizeof *exchange);
    if (exchange != NULL) {
        exchange->config = *config;
        bps_lateness_init(&exchange->recent, config->workers);
        bps_pool_init(&exchange->pool, NULL, NULL, NULL);
    }
    return exchange;
}

void bps_exchange_free(struct bps_exchange *exchange)
{
    if (exchange == NULL) {
        return;
    }
    bps_rounds_fini(&exchange->rounds);
    bps_pool_fini(&exchange->pool);
    bps_lateness_fini(&exchange->recent);
    free(exchange);
}

/* ---- all are there ---- */

static bool agree(const struct bps_exchange_round *round)
{
    for (uint32_t i = 1; i < round->exchange->config.workers; i++) {
        if (!bps_spec_equal(&round->part[0].spec, &round->part[i].spec)) {
            return false;
        }
    }
    return true;
}

static void fail_mismatch(struct bps_exchange_round *round)
{
    uint32_t workers = round->exchange->config.workers;
    struct bps_pushed pushed[BPS_EXCHANGE_WORKERS];
    char text[BPS_VERDICT_BYTES];
    for (uint32_t i = 0; i < workers; i++) {
        pushed[i] = (struct bps_pushed){i, round->part[i].spec};
    }
    bps_verdict_mismatch(pushed, workers, workers, text, sizeof text);
    bps_exchange_end(round, BPS_ERR_MISMATCH, text);
}

/* Bit by bit what the pass of an aggregator's engine makes (one_pass.c). */
static void sum(struct bps_exchange_round *round)
{
    const struct bps_exchange_config *config = &round->exchange->config;
    const struct bps_exchange_part *own = &round->part[config->rank];
    const void *source[BPS_EXCHANGE_WORKERS];
    double scale[BPS_EXCHANGE_WORKERS];
    const struct bps_spec *spec = &own->spec;
    double share = bps_share(spec->op, spec->dtype, config->workers);
    struct bps_last_factor last = bps_last_factor(spec->op, spec->dtype, config->workers, spec->postscale);
    bool scaled = false;
    for (uint32_t i = 0; i < config->workers; i++) {
        source[i] = round->part[i].data;
        scale[i] = round->part[i].scale * share;
        scaled = scaled || scale[i] != 1.0;
    }
    round->kernels.reduce(round->to, source, scaled ? scale : NULL, config->workers,
                          own->bytes / bps_dtype_size(spec->dtype), last.scale, last.divisor);
}

static void conclude(struct bps_exchange_round *round)
{
    const struct bps_exchange_config *config = &round->exchange->config;
    const struct bps_spec *spec = &round->part[config->rank].spec;
    char text[80];
    if (!agree(round)) {
        fail_mismatch(round);
        return;
    }
    if (!bps_sums(&spec->roles) && spec->roles.from >= config->workers) {
        bps_verdict_root(spec->roles.from, config->workers, text, sizeof text);
        bps_exchange_end(round, BPS_ERR_INVALID, text);
        return;
    }
    if (bps_sums(&spec->roles) && spec->bytes > 0) {
        sum(round);
    } else if (bps_gets(&spec->roles, config->rank) && spec->bytes > 0) {
        memcpy(round->to, round->part[spec->roles.from].data, spec->bytes);
    }
    void *task = round->task;
    bps_exchange_retire(round);
    config->events->done(config->owner, task);
}

/* Who came last, if this one did. */
static void note_late(struct bps_exchange_round *round, uint32_t rank)
{
    struct bps_exchange *exchange = round->exchange;
    const struct bps_spec *spec = &round->part[rank].spec;
    uint64_t now;
    if (exchange->config.rank == 0 && bps_sums(&spec->roles) && spec->bytes > 0 &&
        bps_gathering_note(&round->gathering, round->here + 1, exchange->config.workers, &now)) {
        bps_wait_note(&exchange->wait, &exchange->recent, round->base.key, round->gathering.most, now, rank);
    }
}

void bps_exchange_lateness(struct bps_exchange *exchange, struct bps_lateness *into)
{
    bps_lateness_add(into, &exchange->recent);
    bps_lateness_clear(&exchange->recent);
}

static void check(const struct bps_exchange_round *round)
{
    uint32_t spoke = 0, workers = round->exchange->config.workers;
    for (uint32_t i = 0; i < workers; i++) {
        const struct bps_exchange_part *part = &round->part[i];
        bps_assert(part->spoke || (part->data == NULL && part->block == NULL));
        bps_assert(part->spec.bytes <= BPS_EXCHANGE_BYTES);
        spoke += part->spoke;
    }
    bps_assert(round->here <= spoke && round->arriving <= spoke);
    bps_assert((round->base.verdict == BPS_OK) == (round->base.failure == NULL));
    bps_assert(!round->over);
}

/* One more contribution, of this rank, is complete. */
static void arrive(struct bps_exchange_round *round, uint32_t rank)
{
    bps_check(check(round));
    note_late(round, rank);
    if (++round->here == round->exchange->config.workers) {
        conclude(round);
    }
}

/* ---- our part ---- */

static void forget_earlier(struct bps_exchange_round *round)
{
    struct bps_round_base *next;
    while ((next = round->base.next) != NULL) {
        bps_exchange_retire((struct bps_exchange_round *)next);
    }
    round->base.key->done = round->base.id.round;
}

bps_status bps_exchange_enter(struct bps_exchange *exchange, const struct bps_contribution *own,
                              struct bps_exchange_round **out)
{
    struct bps_exchange_round *round;
    bps_status status = bps_exchange_find(exchange, &own->id, &round);
    *out = NULL;
    if (status != BPS_OK || round == NULL) {
        return status != BPS_OK ? status : BPS_ERR_INVALID;
    }
    forget_earlier(round);
    round->own = *own;
    round->entered = true;
    round->base.begun = round->base.reminded = bps_now_roughly();
    if (round->base.verdict != BPS_OK) {
        bps_exchange_tell(round);
        return BPS_OK;
    }
    *out = round;
    return BPS_OK;
}

static void speak(struct bps_exchange_part *part, const struct bps_contribution *c)
{
    part->spoke = true;
    part->spec = c->spec;
    part->scale = c->prescale;
    part->bytes = c->length;
}

bps_status bps_exchange_contribute(struct bps_exchange_round *round, const void *from, void *to, void *task,
                                   struct bps_report *report)
{
    const struct bps_exchange_config *config = &round->exchange->config;
    struct bps_exchange_part *part = &round->part[config->rank];
    const struct bps_instance *by;
    bps_status status = bps_find_kernels(config->reducer, &round->own.spec, &round->kernels, &by, report);
    if (status != BPS_OK) {
        return status;
    }
    speak(part, &round->own);
    part->data = from;
    round->to = to;
    round->task = task;
    return BPS_OK;
}

void bps_exchange_ready(struct bps_exchange_round *round)
{
    arrive(round, round->exchange->config.rank);
}

/* ---- that of others ---- */

/* What holds for every contribution of a worker that works, whatever the others do. */
static bool is_sane(const struct bps_exchange *exchange, uint32_t rank, const struct bps_contribution *c)
{
    const struct bps_spec *spec = &c->spec;
    size_t size = bps_dtype_size(spec->dtype);
    bool receiver = !bps_brings(&spec->roles, rank);
    return rank < exchange->config.workers && rank != exchange->config.rank && size != 0 && spec->op < BPS_WIRE_OPS &&
           spec->bytes <= BPS_EXCHANGE_BYTES && spec->bytes % size == 0 && c->offset == 0 && !c->for_group &&
           c->empty == receiver && c->length == (receiver ? 0 : spec->bytes);
}

bps_status bps_exchange_push(struct bps_exchange *exchange, uint32_t rank, const struct bps_contribution *c,
                             struct bps_exchange_cursor *cursor)
{
    struct bps_exchange_round *round;
    *cursor = (struct bps_exchange_cursor){
        .sink = {.place = bps_exchange_place, .take = bps_exchange_take}, .rank = rank, .bytes = c->length};
    if (!is_sane(exchange, rank, c)) {
        return BPS_ERR_PROTOCOL;
    }
    bps_status status = bps_exchange_find(exchange, &c->id, &round);
    if (status != BPS_OK || round == NULL) {
        return status;
    }
    struct bps_exchange_part *part = &round->part[rank];
    if (part->spoke) {
        return BPS_ERR_PROTOCOL;
    }
    speak(part, c);
    if (round->base.verdict != BPS_OK) {
        return BPS_OK;
    }
    if (c->length == 0) {
        arrive(round, rank);
        return BPS_OK;
    }
    part->block = bps_pool_get(&exchange->pool, part->bytes);
    if (part->block == NULL) {
        return BPS_ERR_NOMEM;
    }
    round->arriving++;
    cursor->round = round;
    return BPS_OK;
}

void *bps_exchange_place(struct bps_sink *sink, uint32_t offset, uint32_t *bytes)
{
    struct bps_exchange_cursor *cursor = (struct bps_exchange_cursor *)sink;
    if (cursor->round == NULL) {
        return NULL;
    }
    *bytes = cursor->bytes - offset;
    return (char *)cursor->round->part[cursor->rank].block + offset;
}

uint32_t bps_exchange_take(struct bps_sink *sink, uint32_t offset, const void *data, uint32_t bytes)
{
    struct bps_exchange_cursor *cursor = (struct bps_exchange_cursor *)sink;
    struct bps_exchange_round *round = cursor->round;
    if (round == NULL) {
        return bytes;
    }
    struct bps_exchange_part *part = &round->part[cursor->rank];
    char *place = (char *)part->block + offset;
    /* The last contribution is summed before we return: if it is whole it need not be copied. */
    bool last = bytes == cursor->bytes && round->here + 1 == round->exchange->config.workers;
    if (!last && place != data) {
        memcpy(place, data, bytes);
    }
    if (offset + bytes == cursor->bytes) {
        part->data = last ? data : part->block;
        bool counts = round->base.verdict == BPS_OK && !round->over;
        bps_exchange_abandon(cursor);
        if (counts) {
            arrive(round, cursor->rank);
        }
    }
    return bytes;
}

void bps_exchange_abandon(struct bps_exchange_cursor *cursor)
{
    struct bps_exchange_round *round = cursor->round;
    if (round != NULL) {
        cursor->round = NULL;
        round->arriving--;
        bps_exchange_collect(round);
    }
}
