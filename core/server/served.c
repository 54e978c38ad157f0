/* SPDX-License-Identifier: Apache-2.0 */
/* served.c - see served.h. */
#include "server/served.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"

#define GROUPS_LIMIT (1u << 16) /* at one shard: more than a program has, and fewer than fill its memory */

/* The place of a rank; UINT32_MAX: it is not a member. */
static uint32_t member_place(const struct bps_served *group, uint32_t rank)
{
    uint32_t i = 0;
    while (i < group->members && group->member[i] != rank) {
        i++;
    }
    return i < group->members ? i : UINT32_MAX;
}

static void free_group(struct bps_served *group)
{
    bps_sum_free(group->sum);
    free(group->member);
    free(group->lanes);
    free(group);
}

static struct bps_served *known(const struct bps_served_groups *groups, uint32_t id)
{
    struct bps_served *group;
    HASH_FIND(hh, groups->by_id, &id, sizeof id, group);
    return group;
}

struct bps_sum *bps_served_find(const struct bps_served_groups *groups, uint32_t id)
{
    const struct bps_served *group = known(groups, id);
    return group != NULL ? group->sum : NULL;
}

/* Whether a rank can be a member: of the job, and of the host that an aggregator is of. */
static bool may_be_member(const struct bps_sum_config *config, uint32_t rank)
{
    return rank < config->workers && (config->only == BPS_SUM_ALL || config->group[rank] == config->only);
}

/* The ranks of an announcement, none of them twice. NULL: they make no sense, or no memory. */
static uint32_t *read_announced(struct bps_reader *payload, uint32_t n, const struct bps_sum_config *config)
{
    uint32_t *member = calloc(n, sizeof *member);
    uint8_t *seen = calloc(config->workers, 1);
    bool good = member != NULL && seen != NULL;
    for (uint32_t i = 0; good && i < n; i++) {
        member[i] = bps_get_u32(payload);
        good = !payload->bad && may_be_member(config, member[i]) && seen[member[i]]++ == 0;
    }
    free(seen);
    if (!good) {
        free(member);
        return NULL;
    }
    return member;
}

/* The workers of a group push one by one: nobody sums for others before. Who aggregates does so for its host. */
static bps_status make_engine(struct bps_served *group, const struct bps_sum_config *like, struct bps_sum *all)
{
    struct bps_sum_config config = *like;
    config.group = like->only == BPS_SUM_ALL ? NULL : like->group;
    config.members = group->member;
    config.members_count = group->members;
    config.parent = all;
    config.backups = 0;
    config.owner = group;
    return bps_sum_new(&config, &group->sum);
}

static bps_status begin_group(struct bps_served_groups *groups, struct bps_sum *all, void *host, uint32_t id,
                              uint32_t *member, uint32_t n, struct bps_served **out)
{
    struct bps_served *group = calloc(1, sizeof *group);
    if (group == NULL) {
        free(member);
        return BPS_ERR_NOMEM;
    }
    *group = (struct bps_served){.host = host, .group = id, .member = member, .members = n};
    group->lanes = calloc(n, sizeof *group->lanes);
    bps_status status = group->lanes != NULL ? make_engine(group, groups->config, all) : BPS_ERR_NOMEM;
    if (status == BPS_OK) {
        HASH_ADD(hh, groups->by_id, group, sizeof group->group, group);
        status = group->hh.tbl != NULL ? BPS_OK : BPS_ERR_NOMEM;
    }
    if (status != BPS_OK) {
        free_group(group);
        return status;
    }
    *out = group;
    return BPS_OK;
}

static bps_status refuse_group(uint32_t rank, uint32_t id, const char *why)
{
    bps_error("shard", "worker %u announces process group %u, which %s", rank, id, why);
    return BPS_ERR_PROTOCOL;
}

/* The group of an announcement, which is the first one or says what the others have said. */
static bps_status announced(struct bps_served_groups *groups, struct bps_sum *all, void *host, uint32_t rank,
                            uint32_t id, struct bps_reader *payload, struct bps_served **out)
{
    const struct bps_sum_config *config = groups->config;
    uint32_t n = bps_get_u32(payload);
    uint32_t *member = !payload->bad && n > 0 && n <= config->workers ? read_announced(payload, n, config) : NULL;
    struct bps_served *group = known(groups, id);
    if (member == NULL || !bps_reader_done(payload)) {
        free(member);
        return BPS_ERR_PROTOCOL;
    }
    if (group != NULL) {
        bool same = group->members == n && memcmp(group->member, member, n * sizeof *member) == 0;
        free(member);
        *out = group;
        return same ? BPS_OK : refuse_group(rank, id, "has other members than another worker of it has announced");
    }
    if (HASH_COUNT(groups->by_id) >= GROUPS_LIMIT) {
        bps_error("shard", "there are %u process groups here, which is the maximum; free those that are not needed",
                  GROUPS_LIMIT);
        free(member);
        return BPS_ERR_PROTOCOL;
    }
    return begin_group(groups, all, host, id, member, n, out);
}

bps_status bps_served_announce(struct bps_served_groups *groups, struct bps_sum *all, void *host, uint32_t rank,
                               uint32_t lane, const struct bps_header *header, struct bps_reader *payload)
{
    bps_assert(lane < BPS_SERVED_LANES);
    bool ends = (header->flags & BPS_FLAG_ENDS) != 0;
    struct bps_served *group = known(groups, header->group);
    bps_status status = ends ? BPS_OK : announced(groups, all, host, rank, header->group, payload, &group);
    if (status != BPS_OK) {
        return status;
    }
    uint32_t place = group != NULL ? member_place(group, rank) : UINT32_MAX;
    if (place == UINT32_MAX) {
        return refuse_group(rank, header->group, "does not have this worker");
    }
    uint64_t bit = 1ull << lane;
    if (((group->lanes[place] & bit) != 0) != ends) {
        return BPS_ERR_PROTOCOL; /* it was announced before, or never */
    }
    group->lanes[place] ^= bit;
    return BPS_OK;
}

void bps_served_lane_ended(struct bps_served_groups *groups, uint32_t rank, uint32_t lane)
{
    for (struct bps_served *group = groups->by_id; group != NULL; group = group->hh.next) {
        uint32_t place = member_place(group, rank);
        if (place != UINT32_MAX) {
            group->lanes[place] &= ~(1ull << lane);
        }
    }
}

static bool has_ended(const struct bps_served *group)
{
    uint64_t lanes = 0;
    for (uint32_t i = 0; i < group->members; i++) {
        lanes |= group->lanes[i];
    }
    return lanes == 0 && bps_sum_is_idle(group->sum);
}

void bps_served_sweep(struct bps_served_groups *groups)
{
    struct bps_served *group, *next;
    HASH_ITER(hh, groups->by_id, group, next) {
        if (has_ended(group)) {
            HASH_DEL(groups->by_id, group);
            free_group(group);
        }
    }
}

void bps_served_fini(struct bps_served_groups *groups)
{
    struct bps_served *group, *next;
    HASH_ITER(hh, groups->by_id, group, next) {
        HASH_DEL(groups->by_id, group);
        free_group(group);
    }
}
