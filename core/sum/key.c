/* SPDX-License-Identifier: Apache-2.0 */
/* key.c - keys of any kind and their open rounds: how they are found, walked over and forgotten. */
#include "sum/key.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "sum/round.h"

/* Of a key. So far a worker can be ahead of another one: they part by rounds that have failed, or ended early. */
#define OPEN_LIMIT 65536u

struct bps_key *bps_key_known(const struct bps_sum *sum, const struct bps_round_id *id)
{
    bps_assert(id->kind < BPS_KEY_KINDS);
    uint64_t number = (uint64_t)id->tensor << 32 | id->partition;
    struct bps_key *key;
    HASH_FIND(hh, sum->keys[id->kind], &number, sizeof number, key);
    return key;
}

static struct bps_key *key_make(struct bps_sum *sum, const struct bps_key_ops *ops, const struct bps_round_id *id)
{
    bps_assert(ops->bytes >= sizeof(struct bps_key) && ops->push != NULL && ops->has != NULL);
    struct bps_key *key = calloc(1, ops->bytes);
    if (key == NULL) {
        return NULL;
    }
    key->id = (uint64_t)id->tensor << 32 | id->partition;
    key->ops = ops;
    key->sum = sum;
    HASH_ADD(hh, sum->keys[id->kind], id, sizeof key->id, key);
    if (key->hh.tbl == NULL) {
        free(key);
        return NULL;
    }
    return key;
}

bps_status bps_key_find(struct bps_sum *sum, const struct bps_round_id *id, uint64_t bytes, uint32_t size,
                        struct bps_key **out)
{
    const struct bps_key_ops *ops = sum->config.ops[id->kind];
    if (ops == NULL || !ops->has(sum, id, bytes, size)) {
        return BPS_ERR_PROTOCOL;
    }
    *out = bps_key_known(sum, id);
    *out = *out != NULL ? *out : key_make(sum, ops, id);
    return *out != NULL ? BPS_OK : BPS_ERR_NOMEM;
}

void bps_key_drop_notes(struct bps_key *key, uint32_t before)
{
    struct bps_held_note **link = &key->notes, *note;
    while ((note = *link) != NULL) {
        if (note->round < before) {
            *link = note->next;
            free(note);
        } else {
            link = &note->next;
        }
    }
}

void bps_key_forget(struct bps_key *key, uint32_t kind)
{
    HASH_DEL(key->sum->keys[kind], key);
    if (key->ops->fini != NULL) {
        key->ops->fini(key);
    }
    bps_feedback_fini(&key->feedback);
    bps_key_drop_notes(key, UINT32_MAX);
    free(key);
}

void bps_keys_fini(struct bps_sum *sum)
{
    struct bps_key *key, *next;
    for (uint32_t kind = 0; kind < BPS_KEY_KINDS; kind++) {
        HASH_ITER(hh, sum->keys[kind], key, next) {
            for (struct bps_round_base *round = key->rounds; round != NULL; round = round->next) {
                free(round->failure);
            }
            bps_key_forget(key, kind);
        }
    }
}

/* ---- open rounds ---- */

struct bps_round_base *bps_key_open_round(const struct bps_key *key, uint32_t number)
{
    struct bps_round_base *round = key->rounds;
    while (round != NULL && round->id.round > number) {
        round = round->next;
    }
    return round != NULL && round->id.round == number ? round : NULL;
}

bool bps_sum_is_open(const struct bps_sum *sum, const struct bps_round_id *id)
{
    const struct bps_key *key = bps_key_known(sum, id);
    return key != NULL && bps_key_open_round(key, id->round) != NULL;
}

bps_status bps_key_round(struct bps_key *key, const struct bps_contribution *c, struct bps_round_base **out)
{
    *out = bps_key_open_round(key, c->id.round);
    if (*out != NULL || c->id.round < key->done) {
        return BPS_OK;
    }
    if (key->open >= OPEN_LIMIT) {
        return BPS_ERR_PROTOCOL;
    }
    *out = key->ops->open(key, c);
    return *out != NULL ? BPS_OK : BPS_ERR_NOMEM;
}

bps_status bps_key_ending(struct bps_key *key, const struct bps_notice *notice, struct bps_round_base **out)
{
    const struct bps_contribution shape = {
        .id = notice->id,
        .spec = {.bytes = notice->bytes, .roles = notice->roles, .dtype = BPS_UINT8, .op = BPS_SUM, .postscale = 1.0},
        .size = notice->size,
    };
    return bps_key_round(key, &shape, out);
}

void bps_key_add(struct bps_key *key, const struct bps_round_id *id, struct bps_round_base *round)
{
    struct bps_round_base **link = &key->rounds;
    while (*link != NULL && (*link)->id.round > id->round) {
        link = &(*link)->next;
    }
    round->id = *id;
    round->key = key;
    round->next = *link;
    *link = round;
    key->open++;
}

void bps_key_remove(struct bps_round_base *round)
{
    struct bps_key *key = round->key;
    struct bps_round_base **link = &key->rounds;
    while (*link != round) {
        link = &(*link)->next;
    }
    *link = round->next;
    key->open--;
    if (key->done <= round->id.round) {
        key->done = round->id.round + 1;
        bps_key_drop_notes(key, key->done);
    }
    free(round->failure);
    round->failure = NULL;
}

static void each(struct bps_sum *sum, bps_round_base_fn fn, const void *arg)
{
    struct bps_key *key, *next;
    for (uint32_t kind = 0; kind < BPS_KEY_KINDS; kind++) {
        HASH_ITER(hh, sum->keys[kind], key, next) {
            for (struct bps_round_base *round = key->rounds, *then; round != NULL; round = then) {
                then = round->next;
                fn(round, arg);
            }
        }
    }
}

static void key_collect(struct bps_round_base *round, const void *arg)
{
    (void)arg;
    round->key->ops->collect(round);
}

void bps_rounds_walk(struct bps_sum *sum, bps_round_base_fn fn, const void *arg)
{
    sum->walking++;
    each(sum, fn, arg);
    if (--sum->walking == 0 && sum->uncollected) {
        sum->uncollected = false;
        each(sum, key_collect, NULL);
    }
}

void bps_round_set_failure(struct bps_round_base *round, bps_status status, const char *text)
{
    free(round->failure);
    round->verdict = status;
    round->failure = strdup(text);
    if (round->failure == NULL) {
        round->failure = calloc(1, 1); /* the status alone must do */
    }
}
