/* SPDX-License-Identifier: Apache-2.0 */
/* group.c - groups of ranks: who contributes here, and for whom a frame speaks. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "sum/round.h"

/* Links the ranks of each group in a ring, in their order. */
static void make_rings(struct bps_sum *sum)
{
    const uint32_t *group = sum->config.group;
    uint32_t *next = sum->mate + sum->config.workers; /* by lowest rank of the group */
    for (uint32_t i = 0; i < sum->config.workers; i++) {
        next[i] = i;
    }
    for (uint32_t i = sum->config.workers; i-- > 0;) {
        sum->mate[i] = next[group[i]];
        next[group[i]] = i;
    }
}

static bool contributes(const void *sum, uint32_t rank)
{
    const struct bps_sum_config *config = &((const struct bps_sum *)sum)->config;
    bool member = config->members == NULL;
    for (uint32_t i = 0; !member && i < config->members_count; i++) {
        member = config->members[i] == rank;
    }
    return member && (config->only == BPS_SUM_ALL || config->group[rank] == config->only);
}

bps_status bps_groups_init(struct bps_sum *sum)
{
    const uint32_t *given = sum->config.group;
    size_t n = sum->config.workers;
    uint32_t *array = calloc(3 * n, sizeof *array);
    sum->config.group = array;
    if (array == NULL) {
        return BPS_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < n; i++) {
        array[i] = given != NULL ? given[i] : i;
        if (array[i] > i || array[array[i]] != array[i]) {
            return BPS_ERR_INVALID;
        }
    }
    sum->mate = array + n;
    make_rings(sum);
    bps_status status = bps_ranks_init(&sum->all, sum->config.workers, contributes, sum);
    return status == BPS_OK && sum->all.n == 0 ? BPS_ERR_INVALID : status;
}

void bps_groups_fini(struct bps_sum *sum)
{
    bps_ranks_fini(&sum->all);
    free((void *)(uintptr_t)sum->config.group); /* the other arrays follow it */
}

bool bps_is_for_group(const struct bps_sum *sum, uint32_t rank, bool for_group)
{
    return for_group && sum->mate[rank] != rank;
}

bool bps_stands_for(const struct bps_sum *sum, uint32_t rank, bool for_group, uint32_t who)
{
    const uint32_t *group = sum->config.group;
    return who == rank || (for_group && who < sum->config.workers && group[who] == group[rank]);
}

bool bps_stands_for_source(const struct bps_sum *sum, uint32_t rank, bool for_group, const struct bps_roles *roles)
{
    return roles->from == BPS_EVERYBODY || bps_stands_for(sum, rank, for_group, roles->from);
}

bool bps_slice_wants(const struct bps_sum_slice *slice, uint32_t rank)
{
    bps_assert(rank < slice->round->sum->config.workers);
    const struct bps_round *round = slice->round;
    const struct bps_roles *roles = &round->spec.roles;
    bool for_group = bps_bit(round->for_group_bits, rank);
    return (bps_sums(roles) || !bps_stands_for(round->sum, rank, for_group, roles->from)) &&
           (roles->to == BPS_EVERYBODY || bps_stands_for(round->sum, rank, for_group, roles->to));
}

/* Whether this rank takes part already. One that has left is only counted, until somebody speaks for it. */
static bool is_taken(const struct bps_round *round, uint32_t rank)
{
    return bps_bit(round->joined_bits, rank) && (bps_bit(round->spoke_bits, rank) || !bps_is_absent(round->sum, rank));
}

/* What others have not joined is held for its opener, who must not fill this process. */
static bool opens(struct bps_round *round, uint32_t rank)
{
    bps_assert(round->opener == UINT32_MAX);
    struct bps_sum *sum = round->sum;
    round->opener = rank;
    sum->held[rank] += round->memory;
    if (sum->held[rank] > sum->config.held) {
        bps_error("sum",
                  "worker %u has pushed more partitions, which others have not, than %s holds for it: %" PRIu64 " MiB",
                  rank, sum->here, sum->config.held >> 20);
    }
    return sum->held[rank] <= sum->config.held;
}

bps_status bps_round_speak(struct bps_round *round, uint32_t rank, bool for_group)
{
    const uint32_t *mate = round->sum->mate;
    uint32_t i = rank;
    if (!bps_ranks_has(round->ranks, rank)) {
        return BPS_ERR_PROTOCOL;
    }
    do {
        if (is_taken(round, i)) {
            return BPS_ERR_PROTOCOL;
        }
        i = for_group ? mate[i] : rank;
    } while (i != rank);
    do {
        round->joined += !bps_bit(round->joined_bits, i) && (i == rank || bps_ranks_has(round->ranks, i));
        bps_set_bit(round->joined_bits, i);
        i = for_group ? mate[i] : rank;
    } while (i != rank);
    bps_set_bit(round->spoke_bits, rank);
    bps_assert(round->joined <= round->ranks->n);
    if (round->opener == UINT32_MAX && !opens(round, rank)) {
        return BPS_ERR_PROTOCOL;
    }
    if (for_group) {
        bps_set_bit(round->for_group_bits, rank);
    }
    return BPS_OK;
}
