/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local_group.c - process groups whose members are all on this host, which may be one of several: each has an engine of
 * its own at every member that leads something of it, which is announced to it before all else.
 */
#include "group/local.h"

#include "base/assert.h"

/* ---- engines ---- */

struct bps_sum *bps_local_engine(const struct bps_local *local, uint32_t group)
{
    return group == 0 ? local->all.sum : bps_served_find(&local->groups, group);
}

void bps_local_each_engine(const struct bps_local *local, void (*tell)(struct bps_sum *sum, uint32_t rank),
                           uint32_t rank)
{
    tell(local->all.sum, rank);
    for (const struct bps_served *group = local->groups.by_id; group != NULL; group = group->hh.next) {
        tell(group->sum, rank);
    }
}

bool bps_local_work(const struct bps_local *local)
{
    bool more = bps_sum_work(local->all.sum);
    for (const struct bps_served *group = local->groups.by_id; group != NULL; group = group->hh.next) {
        more |= bps_sum_work(group->sum);
    }
    return more;
}

static void look_at_engine(const struct bps_local *local, struct bps_sum *sum, uint64_t now)
{
    const struct bps_conf_cluster *cluster = &local->worker->conf->cluster;
    bps_sum_excuse(sum, bps_loop_late(local->worker->loop));
    bps_sum_check_stalls(sum, now, cluster->stall_warning, cluster->stall_timeout);
}

void bps_local_look(struct bps_local *local, uint64_t now)
{
    bps_served_sweep(&local->groups);
    look_at_engine(local, local->all.sum, now);
    for (const struct bps_served *group = local->groups.by_id; group != NULL; group = group->hh.next) {
        look_at_engine(local, group->sum, now);
    }
}

/* ---- announcing ---- */

bps_status bps_local_announced(struct bps_local *local, uint32_t rank, const struct bps_header *header,
                               struct bps_reader *payload)
{
    if (local->dropped) {
        return BPS_OK;
    }
    return bps_served_announce(&local->groups, local->all.sum, local, rank, 0, header, payload);
}

/* To a member, who may be this worker. */
static bps_status tell_member(struct bps_local_peer *peer, const struct bps_process_group *group, uint8_t flags,
                              const struct bps_writer *members)
{
    struct bps_local *local = peer->local;
    const struct bps_header header = {
        .type = BPS_FRAME_GROUP, .flags = flags, .epoch = local->worker->job.epoch, .group = group->id};
    struct bps_reader payload;
    if (peer->rank == local->worker->job.rank) {
        bps_reader_init(&payload, members->data, members->size);
        return bps_local_announced(local, peer->rank, &header, &payload);
    }
    if (peer->link != NULL) {
        bps_link_send(peer->link, &header, members->data, members->size);
    }
    return BPS_OK;
}

static void local_take_back(struct bps_process_group *group)
{
    const struct bps_writer nothing = {.size = 0};
    struct bps_local *local = group->worker->local;
    for (uint32_t place = 0; place < local->size && !local->dropped; place++) {
        if ((group->places >> place & 1) != 0) {
            tell_member(&local->peer[place], group, BPS_FLAG_ENDS, &nothing);
        }
    }
}

bool bps_local_announce(struct bps_local_peer *peer, struct bps_process_group *group)
{
    struct bps_local *local = peer->local;
    struct bps_writer members;
    uint32_t bit = group != NULL ? 1u << (peer - local->peer) : 0;
    if (group == NULL || (group->places & bit) != 0) {
        return true;
    }
    bps_process_group_write(group, &members);
    bps_status status = members.failed ? BPS_ERR_NOMEM : tell_member(peer, group, 0, &members);
    bps_writer_fini(&members);
    if (status != BPS_OK) {
        bps_worker_fail(local->worker, status, "could not announce a process group");
        return false;
    }
    group->places |= bit;
    group->take_back[BPS_TOLD_HOST] = local_take_back;
    return true;
}
