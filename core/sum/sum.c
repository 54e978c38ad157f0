/* SPDX-License-Identifier: Apache-2.0 */
/* sum.c - the engine: what comes from outside, and which key it is for. */
#include "sum/sum.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/tensor.h"
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
    sum->told = calloc(config->workers, sizeof *sum->told);
    bps_lateness_init(&sum->recent, config->workers);
    bps_lateness_init(&sum->late, config->workers);
    if (sum->left_bits == NULL || sum->source == NULL || sum->held == NULL || sum->told == NULL) {
        return BPS_ERR_NOMEM;
    }
    sum->weight = (double *)(sum->source + sum->all.n);
    sum->origin = (uint32_t *)(sum->weight + sum->all.n);
    sum->gone_bits = sum->left_bits + sum->words;
    if (config->parent != NULL) {
        bps_assert(config->parent->words == sum->words);
        memcpy(sum->left_bits, config->parent->left_bits, 2 * (size_t)sum->words * sizeof *sum->left_bits);
    }
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
    sum->config.ops[BPS_KEY_ROUNDS] = &bps_rounds_ops;
    bps_pool_init(&sum->own_pool, config->attach, config->detach, config->transport);
    sum->pool = config->parent != NULL ? config->parent->pool : &sum->own_pool;
    bps_status status = init(sum);
    if (status != BPS_OK) {
        bps_sum_free(sum);
        return status;
    }
    *out = sum;
    return BPS_OK;
}

void bps_sum_free(struct bps_sum *sum)
{
    if (sum == NULL) {
        return;
    }
    bps_keys_fini(sum);
    bps_heap_fini(&sum->due);
    bps_pool_fini(&sum->own_pool);
    bps_groups_fini(sum);
    bps_lateness_fini(&sum->recent);
    bps_lateness_fini(&sum->late);
    free(sum->held);
    free(sum->told);
    free(sum->left_bits);
    free(sum->source); /* weight and origin follow it */
    free(sum->scratch);
    free(sum);
}

/* ---- contributions ---- */

bps_status bps_sum_push(struct bps_sum *sum, uint32_t rank, const struct bps_contribution *c,
                        struct bps_sum_cursor *cursor)
{
    const struct bps_spec *spec = &c->spec;
    size_t size = bps_element_size(spec->dtype);
    struct bps_key *key;
    *cursor = (struct bps_sum_cursor){
        .sink = {.place = bps_sum_place, .take = bps_sum_take, .lend = bps_aggregates(sum) ? bps_sum_lend : NULL},
        .sum = sum,
        .rank = rank,
        .bytes = c->length,
        .scale = c->prescale,
    };
    if (size == 0 || spec->op >= BPS_WIRE_OPS || spec->bytes % size != 0 || !bps_ranks_has(&sum->all, rank)) {
        return BPS_ERR_PROTOCOL;
    }
    bps_status status = bps_key_find(sum, &c->id, spec->bytes, c->size, &key);
    return status == BPS_OK ? key->ops->push(key, rank, c, cursor) : status;
}

void bps_sum_abandon(struct bps_sum_cursor *cursor)
{
    struct bps_round_base *round = cursor->round;
    if (cursor->block != NULL) {
        bps_pool_put(cursor->sum->pool, cursor->block, cursor->bytes);
        cursor->block = NULL;
    }
    if (round != NULL) {
        cursor->round = NULL;
        round->holds--;
        round->key->ops->collect(round);
    }
}

/* ---- results ---- */

bool bps_sum_wants_data(const struct bps_sum_slice *slice, uint32_t rank)
{
    return slice->key->ops->wants(slice, rank);
}

void *bps_sum_owner(const struct bps_sum_slice *slice)
{
    return slice->key->sum->config.owner;
}

void bps_sum_delivered(struct bps_sum_slice *slice)
{
    slice->key->ops->delivered(slice);
}

bool bps_sum_is_idle(const struct bps_sum *sum)
{
    bool idle = true;
    for (uint32_t kind = 0; kind < BPS_KEY_KINDS; kind++) {
        for (const struct bps_key *key = sum->keys[kind]; key != NULL; key = key->hh.next) {
            idle &= key->rounds == NULL;
        }
    }
    return idle;
}

/* ---- what ends a round otherwise ---- */

bps_status bps_sum_poison(struct bps_sum *sum, uint32_t rank, const struct bps_notice *poison)
{
    bps_assert(rank < sum->config.workers && poison->text != NULL);
    struct bps_key *key;
    if (!bps_ranks_has(&sum->all, rank)) {
        return BPS_ERR_PROTOCOL;
    }
    bps_status status = bps_key_find(sum, &poison->id, poison->bytes, poison->size, &key);
    return status == BPS_OK ? key->ops->poison(key, rank, poison) : status;
}

bps_status bps_sum_fail(struct bps_sum *sum, const struct bps_notice *failed)
{
    struct bps_key *key;
    bps_status status = bps_key_find(sum, &failed->id, failed->bytes, failed->size, &key);
    return status == BPS_OK ? key->ops->fail(key, failed) : status;
}

static void sum_leave(struct bps_round_base *round, const void *rank)
{
    round->key->ops->leave(round, *(const uint32_t *)rank);
}

void bps_sum_leave(struct bps_sum *sum, uint32_t rank)
{
    bps_assert(rank < sum->config.workers);
    bps_set_bit(sum->left_bits, rank);
    bps_rounds_walk(sum, sum_leave, &rank);
}

void bps_sum_gone(struct bps_sum *sum, uint32_t rank)
{
    bps_assert(rank < sum->config.workers);
    if (bps_ranks_has(&sum->all, rank)) {
        bps_set_bit(sum->gone_bits, rank);
        bps_rounds_walk(sum, sum_leave, &rank);
    }
}

/* How long who is in a round has to wait. */
struct patience {
    uint64_t now, warn, fail; /* ns; warn, fail: 0 for never */
};

static bool is_longer(uint64_t limit, uint64_t since, uint64_t now)
{
    return limit > 0 && now > since && now - since > limit;
}

static void sum_check_stall(struct bps_round_base *round, const void *patience)
{
    const struct patience *p = patience;
    const struct bps_key_ops *ops = round->key->ops;
    char missing[200], late[200], text[600];
    bool overdue = !round->overdue && is_longer(p->fail, round->begun, p->now);
    if ((!overdue && !is_longer(p->warn, round->reminded, p->now)) ||
        !ops->missing(round, missing, sizeof missing, late, sizeof late)) {
        return;
    }
    if (overdue) {
        round->overdue = true;
        bps_verdict_overdue(missing, p->fail, text, sizeof text);
    } else {
        bps_verdict_waiting(missing, p->now - round->begun, text, sizeof text);
        strcat(text, late);
        round->reminded = p->now;
    }
    ops->stalled(round, overdue, text);
}

void bps_sum_check_stalls(struct bps_sum *sum, uint64_t now, uint64_t warn, uint64_t fail)
{
    const struct patience patience = {now, warn, fail};
    bps_rounds_walk(sum, sum_check_stall, &patience);
}

static void excuse(struct bps_round_base *round, const void *arg)
{
    const uint64_t *ns = arg;
    round->begun += *ns;
    round->reminded += *ns;
}

void bps_sum_excuse(struct bps_sum *sum, uint64_t ns)
{
    bps_rounds_walk(sum, excuse, &ns);
}
