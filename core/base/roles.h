/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roles.h - who takes part in an operation, who of them brings a partition, and who gets it. Pure.
 *
 * Each kind of operation is a row of a table; all that sums, sends or receives asks it, and not which kind it is.
 */
#ifndef BPS_BASE_ROLES_H
#define BPS_BASE_ROLES_H

#include <stdbool.h>
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

/* Whether contributions are summed; else there is one, whose bytes are moved as they are. */
static inline bool bps_sums(const struct bps_roles *roles)
{
    return roles->from == BPS_EVERYBODY;
}

/* Who of those who take part: all, the root of the operation, or the one to whom the block belongs. */
enum bps_party { BPS_PARTY_ALL, BPS_PARTY_ROOT, BPS_PARTY_BLOCK };

/* A kind of operation. Where something is of all blocks, one for each rank, it has so many times the bytes of one. */
struct bps_kind {
    const char *name;
    enum bps_party from, to;
    bool all_in, all_out; /* input, output */
};

extern const struct bps_kind bps_kinds[BPS_WIRE_OPS];

/* The row of BPS_SUM, ..., BPS_WIRE_BROADCAST. */
static inline const struct bps_kind *bps_kind_of(uint32_t op)
{
    return &bps_kinds[op < BPS_WIRE_OPS ? op : BPS_SUM];
}

static inline uint32_t bps_party_rank(enum bps_party party, uint32_t root, uint32_t block)
{
    return party == BPS_PARTY_ALL ? BPS_EVERYBODY : party == BPS_PARTY_ROOT ? root : block;
}

/* The roles in a partition of this block. */
static inline struct bps_roles bps_kind_roles(const struct bps_kind *kind, uint32_t root, uint32_t block)
{
    return (struct bps_roles){bps_party_rank(kind->from, root, block), bps_party_rank(kind->to, root, block)};
}
/* Bytes of the input, or the output, of one of n ranks, if a block has so many. */
uint64_t bps_kind_bytes(const struct bps_kind *kind, bool out, uint64_t block, uint32_t n);

/* A set of ranks, all of them below `workers`. */
struct bps_ranks {
    uint32_t n, workers;
    uint32_t *rank; /* they, in order */
    uint32_t *slot; /* of each rank below `workers`: its place among them; UINT32_MAX: it is none of them */
};

/* Of those for which `has` says so. BPS_ERR_NOMEM. */
bps_status bps_ranks_init(struct bps_ranks *ranks, uint32_t workers, bool (*has)(const void *arg, uint32_t rank),
                          const void *arg);
void bps_ranks_fini(struct bps_ranks *ranks);

static inline bool bps_ranks_has(const struct bps_ranks *ranks, uint32_t rank)
{
    return rank < ranks->workers && ranks->slot[rank] < ranks->n;
}

#endif
