/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies.h - what a worker keeps of values whose shard may be lost: the last answer of each slice, with its tail
 * (sum/value.h).
 *
 * An answer goes to memory of its own while it comes, and takes the place of the one before when it is whole. So what
 * this worker has told an heir of stays until there is something newer. [core]
 */
#ifndef BPS_SHARDS_COPIES_H
#define BPS_SHARDS_COPIES_H

#include "flow/step.h"
#include "sum/pool.h"

/* Of a partition. */
struct bps_value_copy {
    UT_hash_handle hh;
    uint64_t id;                 /* tensor, partition */
    uint64_t bytes;              /* of the tensor */
    uint32_t shard;              /* that has the value */
    uint32_t broadcasts;         /* that have ended */
    uint32_t size, slices, grid; /* size: of the partition, in so many slices of this size */
    uint32_t tail;
    uint8_t dtype;
    struct bps_value_copy_slice {
        char *data, *landing; /* blocks of the pool; NULL: none */
        uint64_t torn;        /* the number of the newest version of which rows have come since; 0: none have */
    } slice[];
};

struct bps_value_copies {
    struct bps_value_copy *of;
    struct bps_pool *pool;
};

void bps_value_copies_fini(struct bps_value_copies *copies);
/* The copy of a task's partition, which a shard has, in slices of so many bytes. NULL: no memory. */
struct bps_value_copy *bps_value_copy_of(struct bps_value_copies *copies, const struct bps_task *task, uint32_t shard,
                                         uint32_t grid);
/* NULL: this worker has none. */
struct bps_value_copy *bps_value_copy_find(const struct bps_value_copies *copies, uint32_t tensor, uint32_t partition);
/* Bytes of an answer, with its tail. */
uint32_t bps_value_copy_bytes(const struct bps_value_copy *copy, uint32_t index);
/* Where one goes; NULL: no memory. */
char *bps_value_copy_land(struct bps_value_copies *copies, struct bps_value_copy *copy, uint32_t index);
/* It is there. Returns it. */
const char *bps_value_copy_landed(struct bps_value_copies *copies, struct bps_value_copy *copy, uint32_t index);
/* The number of the newest version of a slice, with BPS_VALUE_TORN if only rows of it have come; 0: there is none. */
uint64_t bps_value_copy_number(const struct bps_value_copy *copy, uint32_t index);
/* Rows have come, with this tail. */
void bps_value_copy_tear(struct bps_value_copy *copy, uint32_t index, const char *tail);

#endif
