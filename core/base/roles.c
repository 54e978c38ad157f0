/* SPDX-License-Identifier: Apache-2.0 */
/* roles.c - the table of operations, and sets of ranks. */
#include "base/roles.h"

#include <stdlib.h>

#include "base/assert.h"

const struct bps_kind bps_kinds[BPS_WIRE_OPS] = {
    [BPS_SUM] = {"sum", BPS_PARTY_ALL, BPS_PARTY_ALL, .all_in = false, .all_out = false},
    [BPS_AVERAGE] = {"average", BPS_PARTY_ALL, BPS_PARTY_ALL, .all_in = false, .all_out = false},
    [BPS_MIN] = {"min", BPS_PARTY_ALL, BPS_PARTY_ALL, .all_in = false, .all_out = false},
    [BPS_MAX] = {"max", BPS_PARTY_ALL, BPS_PARTY_ALL, .all_in = false, .all_out = false},
    [BPS_PRODUCT] = {"product", BPS_PARTY_ALL, BPS_PARTY_ALL, .all_in = false, .all_out = false},
    [BPS_WIRE_BROADCAST] = {"broadcast", BPS_PARTY_ROOT, BPS_PARTY_ALL, .all_in = false, .all_out = false},
};

uint64_t bps_kind_bytes(const struct bps_kind *kind, bool out, uint64_t block, uint32_t n)
{
    return (out ? kind->all_out : kind->all_in) ? block * n : block;
}

bps_status bps_ranks_init(struct bps_ranks *ranks, uint32_t workers, bool (*has)(const void *arg, uint32_t rank),
                          const void *arg)
{
    bps_assert(workers > 0);
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
