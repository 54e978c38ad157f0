/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kept.h - the last results of partitions whose shard may be lost, until all workers have them.
 *
 * A shard tells the workers of a round one after the other. If it is lost in between, some have the result, and
 * perhaps new numbers in the memory where it was, and others wait for it. So results go to memory of the worker's own
 * first, and from there to where they belong. What is kept of a round stays until something of the result of the next
 * one comes: to that all have contributed, and so they have ended the one before. Of tensors without a name each call
 * is a round of its own; which ones all have ended the results say (`mark`).
 *
 * Rounds that have failed are kept likewise, as the POISON that would make them fail again. [core]
 */
#ifndef BPS_SHARDS_KEPT_H
#define BPS_SHARDS_KEPT_H

#include "flow/step.h"
#include "sum/pool.h"

struct bps_kept_slice {
    void *data;    /* a block of the store's pool; NULL: none */
    void *landing; /* the same, while it comes, if it is to be copied from there to where it belongs as well */
    uint32_t room, bytes, landing_room;
    uint8_t flags; /* of the RESULT */
    bool whole;
};

struct bps_kept_round {
    uint64_t bytes;                     /* of the tensor */
    uint32_t round, size, slices, grid; /* size: of the partition, in so many slices of this size */
    uint32_t whole;                     /* slices that are there */
    uint32_t room;                      /* for so many */
    uint32_t shard;                     /* that sums it, or has */
    bool for_group;
    struct bps_kept_slice *slice;
};

struct bps_kept_failure {
    STAILQ_ENTRY(bps_kept_failure) entry;
    struct bps_header poison;
    uint32_t shard;
    char text[];
};

/* Of a partition. */
struct bps_kept {
    UT_hash_handle hh;
    TAILQ_ENTRY(bps_kept) entry;     /* of those without a name */
    uint64_t id;                     /* tensor, partition */
    struct bps_view *view;           /* by which that of one without a name is placed, held; NULL: it has a name */
    bool begun;                      /* `now` is a round of it */
    struct bps_kept_round now, last; /* last: until something of `now` comes */
    STAILQ_HEAD(, bps_kept_failure) failures;
    uint32_t failed; /* how many */
};

struct bps_kept_store {
    struct bps_kept *of;
    TAILQ_HEAD(bps_kept_list, bps_kept) unnamed[BPS_UNNAMED_KINDS];
    struct bps_pool pool;
};

/* `net`: the transport that is told of the memory. */
void bps_kept_init(struct bps_kept_store *store, struct bps_instance *net);
void bps_kept_fini(struct bps_kept_store *store);

/* A task begins to wait for its result, in slices of so many bytes, from a shard. NULL: no memory. */
struct bps_kept *bps_kept_begin(struct bps_kept_store *store, const struct bps_task *task, uint32_t shard,
                                uint32_t grid);
/* Where so many bytes of a slice go, or less: `bytes` of it says that. NULL: no memory. */
void *bps_kept_place(struct bps_kept_store *store, struct bps_kept *kept, uint32_t index, uint32_t bytes);
/* Likewise, but only until bps_kept_landed() has copied them to `out` as well; NULL: nowhere. */
void *bps_kept_land(struct bps_kept_store *store, struct bps_kept *kept, uint32_t index, uint32_t bytes);
void bps_kept_landed(struct bps_kept_store *store, struct bps_kept *kept, uint32_t index, void *out);
/* They are there; flags: those of the RESULT. */
void bps_kept_whole(struct bps_kept_store *store, struct bps_kept *kept, uint32_t index, uint8_t flags);
/* All of the round that has begun comes once more. */
void bps_kept_again(struct bps_kept *kept);
/* The round of this POISON fails, or has failed, at a shard; `newest`: the newest view. BPS_ERR_NOMEM. */
bps_status bps_kept_fail(struct bps_kept_store *store, struct bps_view *newest, uint32_t shard,
                         const struct bps_header *poison, const char *text);
/* All workers have ended all calls of this kind without a name that come before this number. */
void bps_kept_release(struct bps_kept_store *store, uint32_t kind, uint32_t number);
/* What is kept of a partition; NULL: nothing is. */
struct bps_kept *bps_kept_find(const struct bps_kept_store *store, uint32_t tensor, uint32_t partition);
/* A slice of the result of a round, which this shard has been told of; NULL: it is not there. */
const struct bps_kept_slice *bps_kept_slice(const struct bps_kept *kept, uint32_t shard, uint32_t round,
                                            uint32_t offset);

#endif
