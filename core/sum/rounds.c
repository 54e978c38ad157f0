/* SPDX-License-Identifier: Apache-2.0 */
/* rounds.c - see rounds.h. */
#include "sum/rounds.h"

#include <stdlib.h>
#include <string.h>

/* Of a key. So far a worker can be ahead of another one: they part only by rounds that have failed. */
#define OPEN_LIMIT 65536u

static uint64_t key_of(const struct bps_round_id *id)
{
    return (uint64_t)id->tensor << 32 | id->partition;
}

static struct bps_key *known_key(const struct bps_rounds *rounds, uint64_t id)
{
    struct bps_key *key;
    HASH_FIND(hh, rounds->keys, &id, sizeof id, key);
    return key;
}

static struct bps_key *find_key(struct bps_rounds *rounds, uint64_t id)
{
    struct bps_key *key = known_key(rounds, id);
    if (key == NULL && (key = calloc(1, sizeof *key)) != NULL) {
        key->id = id;
        HASH_ADD(hh, rounds->keys, id, sizeof key->id, key);
        if (key->hh.tbl == NULL) {
            free(key);
            return NULL;
        }
    }
    return key;
}

static struct bps_round_base *open_of(const struct bps_key *key, uint32_t number)
{
    struct bps_round_base *round = key->rounds;
    while (round != NULL && round->id.round > number) {
        round = round->next;
    }
    return round != NULL && round->id.round == number ? round : NULL;
}

struct bps_round_base *bps_rounds_at(const struct bps_rounds *rounds, const struct bps_round_id *id)
{
    const struct bps_key *key = known_key(rounds, key_of(id));
    return key != NULL ? open_of(key, id->round) : NULL;
}

struct bps_feedback *bps_rounds_feedback(const struct bps_rounds *rounds, uint32_t tensor, uint32_t partition)
{
    const struct bps_round_id id = {tensor, partition, 0};
    struct bps_key *key = known_key(rounds, key_of(&id));
    return key != NULL && key->feedback.coding != NULL ? &key->feedback : NULL;
}

bps_status bps_rounds_find(struct bps_rounds *rounds, const struct bps_round_id *id, struct bps_round_base **out,
                           struct bps_key **key)
{
    *out = NULL;
    *key = find_key(rounds, key_of(id));
    if (*key == NULL) {
        return BPS_ERR_NOMEM;
    }
    *out = open_of(*key, id->round);
    if (*out != NULL) {
        return BPS_OK;
    }
    if (id->round < (*key)->done) {
        *key = NULL;
        return BPS_OK;
    }
    return (*key)->open < OPEN_LIMIT ? BPS_OK : BPS_ERR_PROTOCOL;
}

void bps_rounds_add(struct bps_key *key, const struct bps_round_id *id, struct bps_round_base *round)
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

void bps_rounds_remove(struct bps_round_base *round)
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
    }
    free(round->failure);
    round->failure = NULL;
}

void bps_rounds_forget(struct bps_rounds *rounds, struct bps_key *key)
{
    HASH_DEL(rounds->keys, key);
    bps_feedback_fini(&key->feedback);
    free(key);
}

void bps_rounds_each(struct bps_rounds *rounds, bps_round_base_fn fn, const void *arg)
{
    struct bps_key *key, *next;
    HASH_ITER(hh, rounds->keys, key, next) {
        for (struct bps_round_base *round = key->rounds, *then; round != NULL; round = then) {
            then = round->next;
            fn(round, arg);
        }
    }
}

static void free_failure(struct bps_round_base *round, const void *arg)
{
    (void)arg;
    free(round->failure);
}

void bps_rounds_fini(struct bps_rounds *rounds)
{
    struct bps_key *key, *next;
    bps_rounds_each(rounds, free_failure, NULL);
    HASH_ITER(hh, rounds->keys, key, next) {
        bps_rounds_forget(rounds, key);
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

static void excuse(struct bps_round_base *round, const void *arg)
{
    const uint64_t *ns = arg;
    round->begun += *ns;
    round->reminded += *ns;
}

void bps_rounds_excuse(struct bps_rounds *rounds, uint64_t ns)
{
    bps_rounds_each(rounds, excuse, &ns);
}

bool bps_round_is_overdue(const struct bps_round_base *round, const struct bps_patience *p)
{
    return p->fail > 0 && p->now > round->begun && p->now - round->begun > p->fail;
}

bool bps_round_is_slow(const struct bps_round_base *round, const struct bps_patience *p)
{
    return p->warn > 0 && p->now > round->reminded && p->now - round->reminded > p->warn;
}
