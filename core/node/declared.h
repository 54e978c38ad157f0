/* SPDX-License-Identifier: Apache-2.0 */
/*
 * declared.h - the scheduler's table of declared tensors: name to id, size and placement.
 *
 * The first worker that declares a name decides its size; the others are told that size and compare.
 * Placement is twofold: which shard sums a partition, and which worker of a group leads it, that is, sums it
 * for the group and speaks with the shard. Groups of the same size have the same leaders. What is declared at
 * once is placed by size.
 */
#ifndef BPS_NODE_DECLARED_H
#define BPS_NODE_DECLARED_H

#include "node/book.h"
#include "node/placement.h"
#include "wire/message.h"

#define BPS_NAME_LIMIT       1023u        /* bytes of a tensor's name */
#define BPS_TENSOR_LIMIT     (1ull << 46) /* bytes: larger than any memory */
#define BPS_PARTITIONS_LIMIT (1u << 20)   /* smaller than what would make tables of partitions absurd */

struct bps_declared {
    struct bps_declared_tensor *tensors; /* by name */
    struct bps_placement placement;
    struct bps_placement *lead; /* over the places of a group, for each size that groups have */
    uint32_t leads;
    uint16_t *lead_of;  /* by rank: of its group's size */
    uint64_t partition; /* bytes */
    uint32_t count;
};

bps_status bps_declared_init(struct bps_declared *declared, const struct bps_book *book, uint64_t partition);
void bps_declared_fini(struct bps_declared *declared);
/*
 * Answers the DECLARE message of a worker: reads all names, places the new ones, writes the DECLARED message.
 */
bps_status bps_declared_answer(struct bps_declared *declared, uint32_t rank, struct bps_reader *request,
                               struct bps_writer *reply);

#endif
