/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roles.h - who takes part in an operation, who of them brings a partition, and who gets it. Pure.
 *
 * Each kind of operation is a row of a table; all that sums, sends or receives asks it, and not which kind it is.
 */
#ifndef BPS_BASE_ROLES_H
#define BPS_BASE_ROLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <byteps/types.h>

#include "base/tensor.h"

#define BPS_EVERYBODY UINT32_MAX

/* Of one partition: a rank, or BPS_EVERYBODY who takes part. Where one alone brings it, that one needs no result. */
struct bps_roles {
    uint32_t from, to;
};

static inline bool bps_brings(const struct bps_roles *roles, uint32_t rank)
{
    return roles->from == BPS_EVERYBODY || roles->from == rank;
}

static inline bool bps_gets(const struct bps_roles *roles, uint32_t rank)
{
    return roles->from != rank && (roles->to == BPS_EVERYBODY || roles->to == rank);
}

/* Whether it has the result without getting it, as it has brought what all get. */
static inline bool bps_has(const struct bps_roles *roles, uint32_t rank)
{
    return roles->from == rank && roles->to == BPS_EVERYBODY;
}

/* Whether contributions are summed; else there is one, whose bytes are moved as they are. */
static inline bool bps_sums(const struct bps_roles *roles)
{
    return roles->from == BPS_EVERYBODY;
}

/* Who of those who take part: all, the root of the operation, whom a block is for, or whom it is from. */
enum bps_party { BPS_PARTY_ALL, BPS_PARTY_ROOT, BPS_PARTY_BLOCK, BPS_PARTY_SENDER };

/* Partitions of blocks have numbers from this one on, which a tensor without blocks never has. */
#define BPS_BLOCKS 0x80000000u

enum bps_kinds {
    BPS_KIND_PUSH_PULL,
    BPS_KIND_BROADCAST,
    BPS_KIND_REDUCE, /* from this one on: of blocks, see flow/blocks.h */
    BPS_KIND_REDUCE_SCATTER,
    BPS_KIND_ALL_GATHER,
    BPS_KIND_GATHER,
    BPS_KIND_SCATTER,
    BPS_KIND_ALL_TO_ALL,
    BPS_KIND_MESSAGE,
    BPS_KIND_BLOCK_BROADCAST, /* a broadcast as one block, which is spread over all but the root */
    BPS_KINDS
};

/* A kind of operation. Its input, or its output, is one block, or has one for each rank. */
struct bps_kind {
    const char *name;
    enum bps_party from, to;
    bool all_in, all_out; /* input, output */
};

extern const struct bps_kind bps_kinds[BPS_KINDS];

/*
 * How many blocks there are, of n ranks. Where each block has both a sender and one that it is for, block b is from
 * b / n, and for b % n.
 */
static inline uint32_t bps_kind_blocks(const struct bps_kind *kind, uint32_t n)
{
    bool pairs = kind->from == BPS_PARTY_SENDER || kind->to == BPS_PARTY_SENDER;
    bool each = kind->from == BPS_PARTY_BLOCK || kind->to == BPS_PARTY_BLOCK;
    return pairs ? n * n : each ? n : 1;
}

/* The roles in a partition of this block, of n ranks. */
struct bps_roles bps_kind_roles(const struct bps_kind *kind, uint32_t root, uint32_t block, uint32_t n);

/*
 * On the wire the byte `op` has the kind and the reduction, or that bytes are moved, and `root` has the roles: who
 * brings it in its lower half, and in its upper one who gets it, counted from 1; 0: everybody does.
 */
#define BPS_OP_BITS   3u
#define BPS_RANK_BITS 16u
#define BPS_LAST_RANK 0xfffeu /* and one that is larger, and so of no job, stays one */

static inline uint8_t bps_op_write(uint32_t kind, uint32_t op)
{
    return (uint8_t)(kind > BPS_KIND_BROADCAST ? kind << BPS_OP_BITS | op : op);
}

/* False: there is no such operation. */
static inline bool bps_op_read(uint8_t wire, uint8_t *kind, uint8_t *op)
{
    if (wire < BPS_WIRE_OPS) {
        *kind = wire == BPS_WIRE_BROADCAST ? BPS_KIND_BROADCAST : BPS_KIND_PUSH_PULL;
        *op = wire;
        return true;
    }
    *kind = wire >> BPS_OP_BITS;
    *op = wire & ((1u << BPS_OP_BITS) - 1);
    return *kind > BPS_KIND_BROADCAST && *kind < BPS_KINDS && *op < BPS_WIRE_OPS;
}

static inline uint32_t bps_roles_write(const struct bps_roles *roles)
{
    uint32_t from = roles->from < BPS_LAST_RANK ? roles->from : roles->from == BPS_EVERYBODY ? 0 : BPS_LAST_RANK;
    uint32_t to = roles->to < BPS_LAST_RANK ? roles->to + 1 : roles->to == BPS_EVERYBODY ? 0 : BPS_LAST_RANK + 1;
    return to << BPS_RANK_BITS | from;
}

static inline struct bps_roles bps_roles_read(uint8_t op, uint32_t root)
{
    uint32_t from = root & ((1u << BPS_RANK_BITS) - 1), to = root >> BPS_RANK_BITS;
    return (struct bps_roles){op == BPS_WIRE_BROADCAST ? from : BPS_EVERYBODY, to == 0 ? BPS_EVERYBODY : to - 1};
}

/* "sum", "broadcast", "reduce". */
const char *bps_operation_name(uint32_t kind, uint32_t op);
/* "sum", "broadcast", "reduce by sum". */
void bps_operation_text(uint32_t kind, uint32_t op, char *text, size_t n);

/* A set of ranks, all of them below `workers`. */
struct bps_ranks {
    uint32_t n, workers;
    uint32_t *rank; /* they, in order */
    uint32_t *slot; /* of each rank below `workers`: its place among them; UINT32_MAX: it is none. NULL: they are few */
};

/* Of those for which `has` says so. BPS_ERR_NOMEM. */
bps_status bps_ranks_init(struct bps_ranks *ranks, uint32_t workers, bool (*has)(const void *arg, uint32_t rank),
                          const void *arg);
void bps_ranks_fini(struct bps_ranks *ranks);

/* The place of a rank among them; UINT32_MAX: it is none of them. */
static inline uint32_t bps_ranks_slot(const struct bps_ranks *ranks, uint32_t rank)
{
    if (ranks->slot != NULL) {
        return rank < ranks->workers ? ranks->slot[rank] : UINT32_MAX;
    }
    uint32_t i = 0;
    while (i < ranks->n && ranks->rank[i] != rank) {
        i++;
    }
    return i < ranks->n ? i : UINT32_MAX;
}

static inline bool bps_ranks_has(const struct bps_ranks *ranks, uint32_t rank)
{
    return bps_ranks_slot(ranks, rank) != UINT32_MAX;
}

#endif
