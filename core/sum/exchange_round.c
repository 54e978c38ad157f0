/* SPDX-License-Identifier: Apache-2.0 */
/* exchange_round.c - the rounds of an exchange: how they are found, and how they end without a sum. */
#include <stdlib.h>
#include <string.h>

#include "sum/exchange_round.h"

/* ---- the life of a round ---- */

static size_t round_bytes(const struct bps_exchange *exchange)
{
    return sizeof(struct bps_exchange_round) + exchange->config.workers * sizeof(struct bps_exchange_part);
}

static void release_blocks(struct bps_exchange_round *round)
{
    struct bps_exchange *exchange = round->exchange;
    for (uint32_t i = 0; i < exchange->config.workers; i++) {
        struct bps_exchange_part *part = &round->part[i];
        if (part->block != NULL) {
            bps_pool_put(&exchange->pool, part->block, part->bytes);
            part->block = NULL;
        }
    }
}

void bps_exchange_collect(struct bps_exchange_round *round)
{
    if (round->over && round->arriving == 0) {
        release_blocks(round);
        bps_pool_put(&round->exchange->pool, round, round_bytes(round->exchange));
    }
}

void bps_exchange_retire(struct bps_exchange_round *round)
{
    bps_rounds_remove(&round->base);
    round->over = true;
    bps_exchange_collect(round);
}

static struct bps_notice notice_of(const struct bps_exchange_round *round, enum bps_notice_kind kind, bps_status status,
                                   const char *text)
{
    return (struct bps_notice){
        .kind = kind, .id = round->own.id, .bytes = round->own.spec.bytes, .status = status, .text = text};
}

void bps_exchange_tell(struct bps_exchange_round *round)
{
    const struct bps_exchange_config *config = &round->exchange->config;
    char *text = round->base.failure;
    const struct bps_notice notice = notice_of(round, BPS_NOTICE_FAILED, round->base.verdict, text);
    round->base.failure = NULL;
    bps_exchange_retire(round);
    config->events->notice(config->owner, &notice);
    free(text);
}

/* Those who have not come to it hear of it when they come. */
void bps_exchange_end(struct bps_exchange_round *round, bps_status status, const char *text)
{
    if (round->base.verdict != BPS_OK) {
        return;
    }
    bps_round_set_failure(&round->base, status, text);
    if (round->arriving == 0) {
        release_blocks(round); /* nobody sums them */
    }
    if (round->entered) {
        bps_exchange_tell(round);
    }
}

static void fail_if_left(struct bps_exchange_round *round)
{
    const struct bps_exchange *exchange = round->exchange;
    char text[80];
    for (uint32_t i = 0; i < exchange->config.workers; i++) {
        if (exchange->left[i] && !round->part[i].spoke) {
            snprintf(text, sizeof text, "worker %u has left the job", i);
            bps_exchange_end(round, BPS_ERR_LOST, text);
            return;
        }
    }
}

/* ---- finding it ---- */

static struct bps_exchange_round *open_round(struct bps_exchange *exchange, struct bps_key *key,
                                             const struct bps_round_id *id)
{
    struct bps_exchange_round *round = bps_pool_get(&exchange->pool, round_bytes(exchange));
    if (round == NULL) {
        return NULL;
    }
    memset(round, 0, round_bytes(exchange));
    round->exchange = exchange;
    bps_rounds_add(key, id, &round->base);
    fail_if_left(round);
    return round;
}

bps_status bps_exchange_find(struct bps_exchange *exchange, const struct bps_round_id *id,
                             struct bps_exchange_round **out)
{
    struct bps_round_base *base;
    struct bps_key *key;
    *out = NULL;
    if (id->tensor >= BPS_ID_UNNAMED || id->partition != 0) {
        return BPS_ERR_PROTOCOL;
    }
    bps_status status = bps_rounds_find(&exchange->rounds, id, &base, &key);
    *out = (struct bps_exchange_round *)base;
    if (status == BPS_OK && base == NULL && key != NULL) {
        *out = open_round(exchange, key, id);
        status = *out != NULL ? BPS_OK : BPS_ERR_NOMEM;
    }
    return status;
}

/* ---- what ends a round otherwise ---- */

bps_status bps_exchange_fail(struct bps_exchange *exchange, const struct bps_notice *failed)
{
    struct bps_exchange_round *round;
    bps_status status = bps_exchange_find(exchange, &failed->id, &round);
    if (status == BPS_OK && round != NULL) {
        bps_exchange_end(round, failed->status, failed->text);
    }
    return status;
}

/* Even if it is over for us: whoever says this waits for the answer. */
bps_status bps_exchange_poison(struct bps_exchange *exchange, const struct bps_notice *poison)
{
    const struct bps_exchange_config *config = &exchange->config;
    struct bps_exchange_round *round;
    struct bps_notice failed = *poison;
    bps_status status = bps_exchange_find(exchange, &poison->id, &round);
    if (status != BPS_OK) {
        return status;
    }
    failed.kind = BPS_NOTICE_FAILED;
    config->events->poisoned(config->owner, &failed);
    return bps_exchange_fail(exchange, &failed);
}

static void check_left(struct bps_round_base *round, const void *arg)
{
    (void)arg;
    fail_if_left((struct bps_exchange_round *)round);
}

void bps_exchange_leave(struct bps_exchange *exchange, uint32_t rank)
{
    exchange->left[rank] = true;
    bps_rounds_each(&exchange->rounds, check_left, NULL);
}

static void check_stall(struct bps_round_base *base, const void *arg)
{
    struct bps_exchange_round *round = (struct bps_exchange_round *)base;
    const struct bps_exchange_config *config = &round->exchange->config;
    const struct bps_patience *p = arg;
    char missing[200], text[400];
    uint64_t silent = 0;
    bool give_up = bps_round_is_overdue(base, p) && !round->overdue;
    for (uint32_t i = 0; i < config->workers; i++) {
        silent |= (uint64_t)!round->part[i].spoke << i;
    }
    bool waits = round->part[config->rank].spoke; /* else we have poisoned it, or not come to it */
    if (!waits || silent == 0 || (!give_up && !bps_round_is_slow(base, p))) {
        return;
    }
    bps_verdict_ranks(&silent, config->workers, missing, sizeof missing);
    if (give_up) {
        const struct bps_notice poison = notice_of(round, BPS_NOTICE_POISON, BPS_ERR_TIMEOUT, text);
        bps_verdict_overdue(missing, p->fail, text, sizeof text);
        round->overdue = true;
        config->events->notice(config->owner, &poison);
        return;
    }
    const struct bps_notice notice = notice_of(round, BPS_NOTICE_STALLED, BPS_OK, text);
    bps_verdict_waiting(missing, p->now - base->begun, text, sizeof text);
    base->reminded = p->now;
    config->events->notice(config->owner, &notice);
}

void bps_exchange_check_stalls(struct bps_exchange *exchange, uint64_t now, uint64_t warn, uint64_t fail)
{
    const struct bps_patience patience = {now, warn, fail};
    bps_rounds_each(&exchange->rounds, check_stall, &patience);
}

void bps_exchange_excuse(struct bps_exchange *exchange, uint64_t ns)
{
    bps_rounds_excuse(&exchange->rounds, ns);
}
