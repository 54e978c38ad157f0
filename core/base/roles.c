/* SPDX-License-Identifier: Apache-2.0 */
/* roles.c - the table of operations, and sets of ranks. */
#include "base/roles.h"

#include <stdlib.h>

#include "base/tensor.h"

static const struct bps_kind kinds[BPS_WIRE_OPS] = {
    [BPS_SUM] = {"sum", BPS_PARTY_ALL, BPS_PARTY_ALL, .all_in = false, .all_out = false},
    [BPS_AVERAGE] = {"average", BPS_PARTY_ALL, BPS_PARTY_ALL, .all_in = false, .all_out = false},
    [BPS_MIN] = {"min", BPS_PARTY_ALL, BPS_PARTY_ALL, .all_in = false, .all_out = false},
    [BPS_MAX] = {"max", BPS_PARTY_ALL, BPS_PARTY_ALL, .all_in = false, .all_out = false},
    [BPS_PRODUCT] = {"product", BPS_PARTY_ALL, BPS_PARTY_ALL, .all_in = false, .all_out = false},
    [BPS_WIRE_BROADCAST] = {"broadcast", BPS_PARTY_ROOT, BPS_PARTY_ALL, .all_in = false, .all_out = false},
};

const struct bps_kind *bps_kind_of(uint32_t op)
{
    return &kinds[op < BPS_WIRE_OPS ? op : BPS_SUM];
}

static uint32_t party(enum bps_party party, uint32_t root, uint32_t block)
{
    return party == BPS_PARTY_ALL ? BPS_EVERYBODY : party == BPS_PARTY_ROOT ? root : block;
}

struct bps_roles bps_kind_roles(const struct bps_kind *kind, uint32_t root, uint32_t block)
{
    return (struct bps_roles){party(kind->from, root, block), party(kind->to, root, block)};
}

uint64_t bps_kind_bytes(const struct bps_kind *kind, bool out, uint64_t block, uint32_t n)
{
    return (out ? kind->all_out : kind->all_in) ? block * n : block;
}

bps_status bps_ranks_init(struct bps_ranks *ranks, uint32_t workers, bool (*has)(const void *arg, uint32_t rank),
                          const void *arg)
{
    *ranks = (struct bps_ranks){.workers = workers, .rank = calloc(2 * (size_t)workers + 1, sizeof *ranks->rank)};
    if (ranks->rank == NULL) {
        return BPS_ERR_NOMEM;
    }
    ranks->slot = ranks->rank + workers;
    for (uint32_t i = 0; i < workers; i++) {
        ranks->slot[i] = UINT32_MAX;
        if (has(arg, i)) {
            ranks->slot[i] = ranks->n;
            ranks->rank[ranks->n++] = i;
        }
    }
    return BPS_OK;
}

void bps_ranks_fini(struct bps_ranks *ranks)
{
    free(ranks->rank); /* the other array follows it */
}
