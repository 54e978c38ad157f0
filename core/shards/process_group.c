/* SPDX-License-Identifier: Apache-2.0 */
/* process_group.c - what shards are told of process groups: their members, and that they have ended for this worker. */
#include <stdlib.h>
#include <string.h>

#include "shards/shards.h"

/* On each lane, before all of the group that comes on it, or behind that. */
static void tell_lanes(struct bps_remote *remote, const struct bps_process_group *group, uint8_t flags,
                       const struct bps_writer *members)
{
    const struct bps_header header = {
        .type = BPS_FRAME_GROUP, .flags = flags, .epoch = remote->worker->job.epoch, .group = group->id};
    for (uint32_t i = 0; i < remote->lanes; i++) {
        bps_link_send(&remote->lane[i].link, &header, members->data, members->size);
    }
}

static void announce_end(struct bps_process_group *group)
{
    const struct bps_shards *shards = group->worker->shards;
    const struct bps_writer nothing = {.size = 0};
    for (uint32_t i = 0; i < group->shards && group->worker->failure == BPS_OK; i++) {
        if (group->announced[i] && !shards->remote[i]->retired && !shards->remote[i]->broken) {
            tell_lanes(shards->remote[i], group, BPS_FLAG_ENDS, &nothing);
        }
    }
}

static bool has_room(struct bps_process_group *group, uint32_t shards)
{
    if (group->shards < shards) {
        bool *announced = realloc(group->announced, shards * sizeof *announced);
        if (announced == NULL) {
            return false;
        }
        memset(announced + group->shards, 0, shards - group->shards);
        group->announced = announced;
        group->shards = shards;
    }
    return true;
}

bool bps_remote_announce(struct bps_remote *remote, struct bps_process_group *group)
{
    struct bps_worker *worker = remote->worker;
    struct bps_writer members;
    bool room = has_room(group, worker->shards->remotes);
    if (room && group->announced[remote->index]) {
        return true;
    }
    bps_process_group_write(group, &members);
    bool memory = room && !members.failed;
    if (memory) {
        tell_lanes(remote, group, 0, &members);
        group->announced[remote->index] = true;
        group->take_back[BPS_TOLD_SHARDS] = announce_end;
    } else {
        bps_worker_fail(worker, BPS_ERR_NOMEM, "out of memory");
    }
    bps_writer_fini(&members);
    return memory;
}
