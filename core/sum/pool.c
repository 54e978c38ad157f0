/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c - free lists of blocks, cut from large chunks; or blocks that end at a page that cannot be touched. */
#include "sum/pool.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"

#define CHUNK_BYTES (4u << 20)

struct bps_pool_block {
    struct bps_pool_block *next;
};

/* At the front of each chunk; the blocks begin a page after it. */
struct bps_pool_chunk {
    struct bps_pool_chunk *next;
    size_t bytes;
    struct bps_region region; /* the blocks, if somebody was told of them */
};
#define CHUNK_HEAD 4096u

static atomic_bool guarding;

void bps_pools_guard(bool wanted)
{
    atomic_store_explicit(&guarding, wanted, memory_order_relaxed);
}

/* ---- guarded blocks ---- */

/* A page before the block's, which ends with the block. */
struct bps_pool_guarded {
    LIST_ENTRY(bps_pool_guarded) entry;
    size_t bytes, mapped;
};

static void *guarded_get(struct bps_pool *pool, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), own = (bytes + page - 1) / page * page;
    char *memory = mmap(NULL, page + own + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    if (mprotect(memory + page + own, page, PROT_NONE) != 0) {
        munmap(memory, page + own + page);
        return NULL;
    }
    struct bps_pool_guarded *guarded = (struct bps_pool_guarded *)memory;
    *guarded = (struct bps_pool_guarded){.bytes = bytes, .mapped = page + own + page};
    LIST_INSERT_HEAD(&pool->guarded, guarded, entry);
    pool->bytes += guarded->mapped;
    return memory + page + own - bytes;
}

static void guarded_unmap(struct bps_pool *pool, struct bps_pool_guarded *guarded)
{
    LIST_REMOVE(guarded, entry);
    pool->bytes -= guarded->mapped;
    munmap(guarded, guarded->mapped);
}

static void guarded_put(struct bps_pool *pool, void *block, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), own = (bytes + page - 1) / page * page;
    struct bps_pool_guarded *guarded = (void *)((char *)block + bytes - own - page);
    bps_assert(guarded->bytes == bytes && guarded->mapped == page + own + page);
    guarded_unmap(pool, guarded);
}

/* ---- pools ---- */

void bps_pool_init(struct bps_pool *pool, bps_pool_fn attach, bps_pool_fn detach, void *owner)
{
    *pool = (struct bps_pool){.attach = attach, .detach = detach, .owner = owner};
    pool->guards = atomic_load_explicit(&guarding, memory_order_relaxed);
}

void bps_pool_fini(struct bps_pool *pool)
{
    while (pool->chunks != NULL) {
        struct bps_pool_chunk *chunk = pool->chunks;
        pool->chunks = chunk->next;
        if (pool->detach != NULL && chunk->region.bytes > 0) {
            pool->detach(pool->owner, &chunk->region);
        }
        munmap(chunk, chunk->bytes);
    }
    while (!LIST_EMPTY(&pool->guarded)) {
        guarded_unmap(pool, LIST_FIRST(&pool->guarded));
    }
    memset(pool, 0, sizeof *pool);
}

static unsigned class_of(size_t bytes)
{
    const size_t smallest = (size_t)1 << BPS_POOL_SMALLEST;
    return bytes <= smallest ? 0 : 64 - (unsigned)__builtin_clzl(bytes - 1) - BPS_POOL_SMALLEST;
}

/* Maps a chunk and cuts it into blocks of one class. */
static void refill(struct bps_pool *pool, unsigned c)
{
    size_t block = (size_t)1 << (BPS_POOL_SMALLEST + c);
    size_t bytes = block < CHUNK_BYTES ? CHUNK_BYTES : block;
    char *memory = mmap(NULL, bytes + CHUNK_HEAD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return;
    }
    madvise(memory, bytes + CHUNK_HEAD, MADV_HUGEPAGE); /* only an optimisation */
    struct bps_pool_chunk *chunk = (struct bps_pool_chunk *)memory;
    chunk->bytes = bytes + CHUNK_HEAD;
    chunk->next = pool->chunks;
    pool->chunks = chunk;
    pool->bytes += chunk->bytes;
    if (pool->attach != NULL && block >= CHUNK_HEAD) {
        chunk->region = (struct bps_region){.memory = memory + CHUNK_HEAD, .bytes = bytes, .fd = -1};
        pool->attach(pool->owner, &chunk->region);
    }
    for (size_t at = bytes; at >= block; at -= block) {
        bps_pool_put(pool, memory + CHUNK_HEAD + at - block, block);
    }
}

void *bps_pool_get(struct bps_pool *pool, size_t bytes)
{
    unsigned c = class_of(bytes);
    if (c >= BPS_POOL_CLASSES) {
        return NULL;
    }
    if (pool->guards) {
        return guarded_get(pool, bytes);
    }
    if (pool->free[c] == NULL) {
        refill(pool, c);
    }
    struct bps_pool_block *block = pool->free[c];
    if (block != NULL) {
        pool->free[c] = block->next;
    }
    return block;
}

void bps_pool_put(struct bps_pool *pool, void *memory, size_t bytes)
{
    bps_assert(memory != NULL && class_of(bytes) < BPS_POOL_CLASSES);
    if (pool->guards) {
        guarded_put(pool, memory, bytes);
        return;
    }
    bps_assert((uintptr_t)memory % 64 == 0);
    unsigned c = class_of(bytes);
    struct bps_pool_block *block = memory;
    block->next = pool->free[c];
    pool->free[c] = block;
}
