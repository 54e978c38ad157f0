/* SPDX-License-Identifier: Apache-2.0 */
/* roles.c - the table of operations, and sets of ranks. */
#include "base/roles.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"

const struct bps_kind bps_kinds[BPS_KINDS] = {
    [BPS_KIND_PUSH_PULL] = {"push_pull", BPS_PARTY_ALL, BPS_PARTY_ALL, .all_in = false, .all_out = false},
    [BPS_KIND_BROADCAST] = {"broadcast", BPS_PARTY_ROOT, BPS_PARTY_ALL, .all_in = false, .all_out = false},
    [BPS_KIND_REDUCE] = {"reduce", BPS_PARTY_ALL, BPS_PARTY_ROOT, .all_in = false, .all_out = false},
    [BPS_KIND_REDUCE_SCATTER] = {"reduce_scatter", BPS_PARTY_ALL, BPS_PARTY_BLOCK, .all_in = true, .all_out = false},
    [BPS_KIND_ALL_GATHER] = {"all_gather", BPS_PARTY_BLOCK, BPS_PARTY_ALL, .all_in = false, .all_out = true},
    [BPS_KIND_GATHER] = {"gather", BPS_PARTY_BLOCK, BPS_PARTY_ROOT, .all_in = false, .all_out = true},
    [BPS_KIND_SCATTER] = {"scatter", BPS_PARTY_ROOT, BPS_PARTY_BLOCK, .all_in = true, .all_out = false},
    [BPS_KIND_MESSAGE] = {"message", BPS_PARTY_ROOT, BPS_PARTY_BLOCK, .all_in = true, .all_out = false},
    [BPS_KIND_BLOCK_BROADCAST] = {"broadcast", BPS_PARTY_ROOT, BPS_PARTY_ALL, .all_in = false, .all_out = false},
    [BPS_KIND_ALL_TO_ALL] = {"all_to_all", BPS_PARTY_SENDER, BPS_PARTY_BLOCK, .all_in = true, .all_out = true},
};

static uint32_t party_rank(enum bps_party party, uint32_t root, uint32_t block, uint32_t n)
{
    const uint32_t ranks[] = {
        [BPS_PARTY_ALL] = BPS_EVERYBODY,
        [BPS_PARTY_ROOT] = root,
        [BPS_PARTY_BLOCK] = block % n,
        [BPS_PARTY_SENDER] = block / n,
    };
    return ranks[party];
}

struct bps_roles bps_kind_roles(const struct bps_kind *kind, uint32_t root, uint32_t block, uint32_t n)
{
    bps_assert(n > 0);
    return (struct bps_roles){party_rank(kind->from, root, block, n), party_rank(kind->to, root, block, n)};
}

const char *bps_operation_name(uint32_t kind, uint32_t op)
{
    return kind == BPS_KIND_PUSH_PULL ? bps_op_name(op) : bps_kinds[kind].name;
}

void bps_operation_text(uint32_t kind, uint32_t op, char *text, size_t n)
{
    bool by = kind > BPS_KIND_BROADCAST && bps_kinds[kind].from == BPS_PARTY_ALL;
    snprintf(text, n, "%s%s%s", bps_operation_name(kind, op), by ? " by " : "", by ? bps_op_name(op) : "");
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
