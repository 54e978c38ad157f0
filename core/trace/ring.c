/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.c - the records of all threads: each has a ring, written by it alone and read by whoever makes the timeline.
 *
 * A ring consists of blocks, which are allocated when they are first needed and stay. The words of a record are
 * atomic, because they may be replaced while somebody reads them; so the oldest block of a full ring is not read.
 */
#include "trace/ring.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"

#define BLOCK_RECORDS 4096u
#define BLOCKS        256u
#define WORDS         5u

struct block {
    _Atomic uint64_t word[BLOCK_RECORDS][WORDS];
};

struct ring {
    struct ring *next; /* of all that there are */
    atomic_bool used;  /* its thread lives */
    _Atomic uint64_t count, lost;
    uint64_t last; /* time of the last record; of the thread's own */
    struct block *_Atomic block[BLOCKS];
};

static struct ring *_Atomic rings;
static _Thread_local struct ring *own;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t ends; /* of threads: another one may have the ring */

static void ring_leave(void *ring)
{
    atomic_store(&((struct ring *)ring)->used, false);
}

static void make_key(void)
{
    pthread_key_create(&ends, ring_leave);
}

static struct ring *find_unused(void)
{
    for (struct ring *ring = atomic_load(&rings); ring != NULL; ring = ring->next) {
        bool used = false;
        if (atomic_compare_exchange_strong(&ring->used, &used, true)) {
            return ring;
        }
    }
    return NULL;
}

static struct ring *ring_take(void)
{
    pthread_once(&once, make_key);
    struct ring *ring = find_unused();
    if (ring == NULL && (ring = calloc(1, sizeof *ring)) != NULL) {
        atomic_init(&ring->used, true);
        ring->next = atomic_load(&rings);
        while (!atomic_compare_exchange_weak(&rings, &ring->next, ring)) {
        }
    }
    pthread_setspecific(ends, ring);
    return ring;
}

static struct block *block_for(struct ring *ring, uint64_t index)
{
    struct block *_Atomic *place = &ring->block[index / BLOCK_RECORDS % BLOCKS];
    struct block *block = atomic_load_explicit(place, memory_order_relaxed);
    if (block == NULL) {
        block = calloc(1, sizeof *block);
        atomic_store_explicit(place, block, memory_order_release);
    }
    return block;
}

static uint64_t both(uint32_t low, uint32_t high)
{
    return low | (uint64_t)high << 32;
}

void bps_ring_put(const struct bps_trace_record *r)
{
    bps_assert(r->kind < BPS_TRACE_KINDS);
    if (own == NULL && (own = ring_take()) == NULL) {
        return;
    }
    uint64_t count = atomic_load_explicit(&own->count, memory_order_relaxed);
    bps_assert(atomic_load(&own->used));
    struct block *block = block_for(own, count);
    if (block == NULL) {
        atomic_fetch_add_explicit(&own->lost, 1, memory_order_relaxed);
        return;
    }
    own->last = r->at == BPS_TRACE_NOW ? bps_now() : r->at == BPS_TRACE_ALSO ? own->last : r->at;
    const uint64_t word[WORDS] = {own->last, both(r->tensor, r->round), both(r->partition, r->offset),
                                  both(r->bytes, r->step),
                                  both(r->peer, r->label | (uint32_t)r->kind << 16 | (uint32_t)r->end << 24)};
    for (uint32_t i = 0; i < WORDS; i++) {
        atomic_store_explicit(&block->word[count % BLOCK_RECORDS][i], word[i], memory_order_relaxed);
    }
    atomic_store_explicit(&own->count, count + 1, memory_order_release);
}

static struct bps_trace_record get(struct ring *ring, uint64_t index)
{
    struct block *block = atomic_load_explicit(&ring->block[index / BLOCK_RECORDS % BLOCKS], memory_order_acquire);
    uint64_t w[WORDS];
    for (uint32_t i = 0; i < WORDS; i++) {
        w[i] = atomic_load_explicit(&block->word[index % BLOCK_RECORDS][i], memory_order_relaxed);
    }
    return (struct bps_trace_record){.at = w[0],
                                     .tensor = (uint32_t)w[1],
                                     .round = (uint32_t)(w[1] >> 32),
                                     .partition = (uint32_t)w[2],
                                     .offset = (uint32_t)(w[2] >> 32),
                                     .bytes = (uint32_t)w[3],
                                     .step = (uint32_t)(w[3] >> 32),
                                     .peer = (uint32_t)w[4],
                                     .label = (uint16_t)(w[4] >> 32),
                                     .kind = (uint8_t)(w[4] >> 48),
                                     .end = (w[4] >> 56) != 0};
}

/* The first record that is not about to be replaced. */
static uint64_t oldest(uint64_t count)
{
    bps_assert((BLOCKS & (BLOCKS - 1)) == 0);
    const uint64_t kept = (uint64_t)(BLOCKS - 1) * BLOCK_RECORDS;
    return count > kept ? count - kept : 0;
}

/* What began earlier stands first, and of what happened at once the beginning. */
static int by_time(const void *a, const void *b)
{
    const struct bps_trace_record *x = a, *y = b;
    return x->at != y->at ? (x->at < y->at ? -1 : 1) : (int)x->end - (int)y->end;
}

struct bps_trace_record *bps_ring_all(size_t *n, uint64_t *lost)
{
    size_t room = 0, total = 0;
    struct ring *first = atomic_load(&rings);
    for (struct ring *ring = first; ring != NULL; ring = ring->next) {
        room += (size_t)atomic_load(&ring->count);
    }
    struct bps_trace_record *all = room > 0 ? calloc(room, sizeof *all) : NULL;
    *lost = 0;
    for (struct ring *ring = first; ring != NULL && all != NULL; ring = ring->next) {
        uint64_t count = atomic_load_explicit(&ring->count, memory_order_acquire), from = oldest(count);
        *lost += from + atomic_load(&ring->lost);
        for (uint64_t i = from; i < count && total < room; i++) {
            all[total++] = get(ring, i);
        }
    }
    if (all != NULL) {
        qsort(all, total, sizeof *all, by_time);
    }
    *n = total;
    return all;
}
