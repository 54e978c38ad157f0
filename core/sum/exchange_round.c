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
    struct bps_exchange_key *key = round->key;
    struct bps_exchange_round **link = &key->rounds;
    while (*link != round) {
        link = &(*link)->next;
    }
    *link = round->next;
    key->open--;
    if (key->done <= round->number) {
        key->done = round->number + 1;
    }
    free(round->failure);
    round->failure = NULL;
    round->over = true;
    bps_exchange_collect(round);
}

static struct bps_notice notice_of(const struct bps_exchange_round *round, enum bps_notice_kind kind,
                                   bps_status status, const char *text)
{
    return (struct bps_notice){
        .kind = kind, .id = round->own.id, .bytes = round->own.spec.bytes, .status = status, .text = text};
}

void bps_exchange_tell(struct bps_exchange_round *round)
{
    const struct bps_exchange_config *config = &round->exchange->config;
    char *text = round->failure;
    const struct bps_notice notice =
        notice_of(round, BPS_NOTICE_FAILED, round->verdict, text != NULL ? text : "");
    round->failure = NULL;
    bps_exchange_retire(round);
    config->events->notice(config->owner, &notice);
    free(text);
}

/* Those who have not come to it hear of it when they come. */
void bps_exchange_end(struct bps_exchange_round *round, bps_status status, const char *text)
{
    if (round->verdict != BPS_OK) {
        return;
    }
    round->verdict = status;
    round->failure = strdup(text);
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

static struct bps_exchange_key *find_key(struct bps_exchange *exchange, uint64_t id)
{
    struct bps_exchange_key *key;
    HASH_FIND(hh, exchange->keys, &id, sizeof id, key);
    if (key == NULL) {
        key = calloc(1, sizeof *key);
        if (key == NULL) {
            return NULL;
        }
        key->id = id;
        HASH_ADD(hh, exchange->keys, id, sizeof id, key);
        if (key->hh.tbl == NULL) {
            free(key);
            return NULL;
        }
    }
    return key;
}

static struct bps_exchange_round *open_round(struct bps_exchange *exchange, struct bps_exchange_key *key,
                                             uint32_t number)
{
    struct bps_exchange_round *round = bps_pool_get(&exchange->pool, round_bytes(exchange));
    if (round == NULL) {
        return NULL;
    }
    memset(round, 0, round_bytes(exchange));
    round->exchange = exchange;
    round->key = key;
    round->number = number;
    round->next = key->rounds;
    key->rounds = round;
    key->open++;
    fail_if_left(round);
    return round;
}

bps_status bps_exchange_find(struct bps_exchange *exchange, const struct bps_round_id *id,
                             struct bps_exchange_round **out)
{
    *out = NULL;
    if (id->tensor >= BPS_ID_UNNAMED || id->partition != 0) {
        return BPS_ERR_PROTOCOL;
    }
    struct bps_exchange_key *key = find_key(exchange, id->tensor);
    if (key == NULL) {
        return BPS_ERR_NOMEM;
    }
    if (id->round < key->done) {
        return BPS_OK;
    }
    struct bps_exchange_round *round = key->rounds;
    while (round != NULL && round->number != id->round) {
        round = round->next;
    }
    if (round == NULL && key->open >= BPS_OPEN_ROUNDS) {
        return BPS_ERR_PROTOCOL;
    }
    if (round == NULL) {
        round = open_round(exchange, key, id->round);
    }
    *out = round;
    return round != NULL ? BPS_OK : BPS_ERR_NOMEM;
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

typedef void (*round_fn)(struct bps_exchange_round *round, const void *arg);

static void each_round(struct bps_exchange *exchange, round_fn fn, const void *arg)
{
    struct bps_exchange_key *key, *next;
    HASH_ITER(hh, exchange->keys, key, next) {
        for (struct bps_exchange_round *round = key->rounds, *then; round != NULL; round = then) {
            then = round->next;
            fn(round, arg);
        }
    }
}

static void check_left(struct bps_exchange_round *round, const void *arg)
{
    (void)arg;
    fail_if_left(round);
}

void bps_exchange_leave(struct bps_exchange *exchange, uint32_t rank)
{
    exchange->left[rank] = true;
    each_round(exchange, check_left, NULL);
}

static void check_stall(struct bps_exchange_round *round, const void *arg)
{
    const struct bps_exchange_config *config = &round->exchange->config;
    const struct bps_patience *p = arg;
    char missing[200], text[400];
    uint64_t age = p->now > round->begun ? p->now - round->begun : 0, silent = 0;
    bool give_up = p->fail > 0 && age > p->fail && !round->overdue;
    bool remind = p->warn > 0 && p->now > round->reminded && p->now - round->reminded > p->warn;
    for (uint32_t i = 0; i < config->workers; i++) {
        silent |= (uint64_t)!round->part[i].spoke << i;
    }
    bool waits = round->part[config->rank].spoke; /* else we have poisoned it, or not come to it */
    if (!waits || silent == 0 || (!give_up && !remind)) {
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
    bps_verdict_waiting(missing, age, text, sizeof text);
    round->reminded = p->now;
    config->events->notice(config->owner, &notice);
}

void bps_exchange_check_stalls(struct bps_exchange *exchange, uint64_t now, uint64_t warn, uint64_t fail)
{
    const struct bps_patience patience = {now, warn, fail};
    each_round(exchange, check_stall, &patience);
}
