/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h - blocks of memory for slices, in classes of powers of two.
 *
 * A block lives from the first byte of a slice until its result has been sent to all workers. The block freed
 * last is used first, so that in the steady state all sums happen in the few blocks that are warm in the
 * cache, whatever the size of the model. Not thread-safe: each shard has its own.
 */
#ifndef BPS_SUM_POOL_H
#define BPS_SUM_POOL_H

#include <stdbool.h>
#include <sys/queue.h>

#include <byteps/plugin.h>

#define BPS_POOL_SMALLEST 8u /* 2^8 bytes */
#define BPS_POOL_CLASSES  24u

typedef void (*bps_pool_fn)(void *owner, const struct bps_region *region);

struct bps_pool {
    bps_pool_fn attach, detach; /* NULL: nobody is told */
    void *owner;
    struct bps_pool_block *free[BPS_POOL_CLASSES];
    struct bps_pool_chunk *chunks;
    bool guards; /* each block ends at a page that nobody may touch, and is gone when it is returned */
    LIST_HEAD(, bps_pool_guarded) guarded; /* those that are out */
    uint64_t bytes;                        /* taken from the system */
};

/*
 * Whether pools that are made later guard their blocks, so that a plugin that goes beyond one ends its process there
 * and then. They tell nobody of memory then.
 */
void bps_pools_guard(bool wanted);

/* `attach` and `detach` hear of the memory that blocks of a page or more lie in. */
void bps_pool_init(struct bps_pool *pool, bps_pool_fn attach, bps_pool_fn detach, void *owner);
/* Frees all memory; blocks that are still out are gone. */
void bps_pool_fini(struct bps_pool *pool);
/*
 * A block of at least `bytes`, aligned to 64 bytes; of a pool that guards them, of `bytes`, aligned to what divides
 * these. NULL: no memory.
 */
void *bps_pool_get(struct bps_pool *pool, size_t bytes);
/* Returns a block; `bytes` as it was asked for. */
void bps_pool_put(struct bps_pool *pool, void *block, size_t bytes);

#endif
