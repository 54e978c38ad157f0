/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engines.c - the blocks of the summation engines: each comes back once and as it was asked for, and at the end of an
 * engine those that are out are those that its keys and open rounds hold.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "simulation.h"
#include "sum/exchange_round.h"
#include "sum/round.h"

#define BUCKETS 4096u /* by address; a hash table of the library's would allocate what the job counts */

struct block {
    LIST_ENTRY(block) entry;
    const void *memory;
    const struct bps_pool *pool;
    size_t bytes;
    bool held; /* by something that was found */
};

static LIST_HEAD(bucket, block) blocks[BUCKETS];

static void fail(const char *what)
{
    fprintf(stderr, "a pool: %s\n", what);
    abort();
}

static struct bucket *bucket_of(const void *memory)
{
    return &blocks[((uintptr_t)memory >> BPS_POOL_SMALLEST) % BUCKETS];
}

static struct block *find(const void *memory)
{
    struct block *block = LIST_FIRST(bucket_of(memory));
    while (block != NULL && block->memory != memory) {
        block = LIST_NEXT(block, entry);
    }
    return block;
}

static void forget(struct block *block)
{
    LIST_REMOVE(block, entry);
    free(block);
}

/* ---- in the place of the pool's ---- */

void *__real_bps_pool_get(struct bps_pool *pool, size_t bytes);
void *__wrap_bps_pool_get(struct bps_pool *pool, size_t bytes);
void *__wrap_bps_pool_get(struct bps_pool *pool, size_t bytes)
{
    void *memory = __real_bps_pool_get(pool, bytes);
    if (memory != NULL) {
        struct block *block = __real_calloc(1, sizeof *block);
        *block = (struct block){.memory = memory, .pool = pool, .bytes = bytes};
        LIST_INSERT_HEAD(bucket_of(memory), block, entry);
    }
    return memory;
}

void __real_bps_pool_put(struct bps_pool *pool, void *memory, size_t bytes);
void __wrap_bps_pool_put(struct bps_pool *pool, void *memory, size_t bytes);
void __wrap_bps_pool_put(struct bps_pool *pool, void *memory, size_t bytes)
{
    struct block *block = find(memory);
    if (block == NULL || block->pool != pool || block->bytes != bytes) {
        fail("a block comes back that is not out, or not as it was asked for");
    }
    forget(block);
    __real_bps_pool_put(pool, memory, bytes);
}

/* ---- who holds them ---- */

static void hold(const void *memory)
{
    struct block *block = memory != NULL ? find(memory) : NULL;
    if (memory != NULL && (block == NULL || block->held)) {
        fail("something holds a block that is not out, or that something else holds");
    }
    if (block != NULL) {
        block->held = true;
    }
}

typedef void (*block_fn)(struct block *block, const void *arg);

static void each_block(block_fn fn, const void *arg)
{
    for (uint32_t i = 0; i < BUCKETS; i++) {
        for (struct block *block = LIST_FIRST(&blocks[i]), *next; block != NULL; block = next) {
            next = LIST_NEXT(block, entry);
            fn(block, arg);
        }
    }
}

static void check(struct block *block, const void *pool)
{
    if (block->pool == pool && !block->held) {
        fail("a block is out at the end that nothing holds");
    }
    if (block->pool == pool) {
        forget(block);
    }
}

void sim_check_pool(const struct bps_pool *pool)
{
    each_block(check, pool);
}

static void hold_slice(const struct bps_sum_slice *slice)
{
    const struct bps_round *round = slice->round;
    hold(slice->block.data);
    for (uint32_t i = 0; i < round->ranks->n && round->policy->apart; i++) {
        const struct bps_part *part = &bps_parts(slice)[i];
        if (part->block.data != slice->block.data && !part->borrowed) {
            hold(part->block.data);
        }
    }
}

static void hold_round(const struct bps_round *round)
{
    hold(round);
    hold(round->odd.data);
    for (uint32_t i = 0; i < round->slices; i++) {
        hold_slice(&round->slice[i]);
    }
}

static void hold_exchanged(const struct bps_exchange_round *round)
{
    hold(round);
    for (uint32_t i = 0; i < round->base.key->sum->config.workers; i++) {
        hold(round->part[i].block.data);
    }
}

/* Rounds of an exchange that are over stay while something of them is arriving. */
static void hold_arriving(struct block *block, const void *key)
{
    const struct bps_exchange_round *round = block->memory;
    bool whole = block->pool == ((const struct bps_key *)key)->sum->pool && !block->held;
    if (whole && block->bytes >= sizeof *round && round->base.key == key && round->over && round->base.holds > 0) {
        hold_exchanged(round);
    }
}

void __real_bps_sum_free(struct bps_sum *sum);
void __wrap_bps_sum_free(struct bps_sum *sum);
void __wrap_bps_sum_free(struct bps_sum *sum)
{
    const struct bps_key *key;
    const struct bps_round_base *base;
    for (key = sum != NULL ? sum->keys[BPS_KEY_ROUNDS] : NULL; key != NULL; key = key->hh.next) {
        for (base = key->rounds; base != NULL; base = base->next) {
            hold_round((const struct bps_round *)base);
        }
    }
    for (key = sum != NULL ? sum->keys[BPS_KEY_EXCHANGE] : NULL; key != NULL; key = key->hh.next) {
        for (base = key->rounds; base != NULL; base = base->next) {
            hold_exchanged((const struct bps_exchange_round *)base);
        }
        each_block(hold_arriving, key);
    }
    if (sum != NULL) {
        sim_check_pool(&sum->own_pool);
    }
    __real_bps_sum_free(sum);
}

static void drop(struct block *block, const void *arg)
{
    (void)arg;
    forget(block);
}

void sim_engines_reset(void)
{
    each_block(drop, NULL);
}
