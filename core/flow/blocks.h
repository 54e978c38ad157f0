/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocks.h - operations of blocks: each worker brings some, or parts of some, and gets others.
 *
 * What is done with a block the table in base/roles.h says. The partition 0 of such an operation is empty: by it all
 * workers agree about kind, type, root and sizes, and if they do not, all of the operation ends. Partition i of block b
 * has the number BPS_BLOCKS + i * blocks + b, whatever the sizes of others (of one block: see blocks.c), which is none
 * of a tensor without blocks. A worker has tasks for those blocks alone that it brings or gets; what it would send to
 * itself a step of its own copies.
 */
#ifndef BPS_FLOW_BLOCKS_H
#define BPS_FLOW_BLOCKS_H

#include <stdbool.h>

#include <byteps/byteps.h>

#include "base/roles.h"

struct bps_operation;
struct bps_process_group;
struct bps_task;
struct bps_tensor_entry;
struct bps_worker;

/* Where a worker has them. Blocks are counted by places in the operation's group; of all workers these are ranks. */
struct bps_blocks {
    uint32_t ranks, own; /* how many places there are, 0: the operation has no blocks; and this worker's */
    uint64_t *in;   /* owned: in its input, bytes: where the block for each rank begins, and where the last one ends; */
    uint64_t *out;  /* and in its output that of each rank. One block, if that has only one */
    uint64_t bytes; /* of both, as far as this worker has them */
};

/* What is asked for, beside the request. */
struct bps_call {
    uint32_t op, kind, root; /* op: BPS_WIRE_*; kind: enum bps_kinds; root: a place in the group */
    uint32_t tag;            /* of a message; else 0 */
    bool barrier;
    struct bps_process_group *group; /* NULL: all workers. Used as long as the call lasts */
    struct bps_call_blocks *blocks;  /* NULL: there are none */
};

struct bps_call_blocks {
    uint32_t ranks, own; /* how many take part, and the place of this worker among them */
    /* Elements of each block. NULL: of the one that it has */
    const uint64_t *in_counts, *out_counts;
    uint64_t in_count, out_count;  /* elements of a block, where its counts are NULL */
    int64_t shape[2];              /* for the request to point to */
    struct bps_push_pull *request; /* what its blocks complete */
};

static inline bool bps_call_has_blocks(const struct bps_call *call)
{
    return call->kind > BPS_KIND_BROADCAST;
}

/* Refuses what no worker can do. The request's count becomes that of all blocks of its input, or of its output. */
bps_status bps_blocks_check(const struct bps_call *call, struct bps_push_pull *request, struct bps_report *report);
/* BPS_ERR_NOMEM. */
bps_status bps_blocks_init(struct bps_blocks *blocks, const struct bps_call *call, uint32_t dtype);
void bps_blocks_fini(struct bps_blocks *blocks);

/* [core] The tasks of its operation. BPS_ERR_NOMEM. */
bps_status bps_blocks_tasks(struct bps_tensor_entry *tensor);
/* [core] The number of blocks that the operation has among all workers. */
uint32_t bps_blocks_count(const struct bps_operation *operation);

#endif
