/* SPDX-License-Identifier: Apache-2.0 */
/*
 * served.h - the process groups of a job at whoever sums for them, a shard or a worker: each has a summation engine of
 * its own, in which its members alone take part. One thread.
 *
 * A group begins here when the first member announces it on a connection. It ends when all connections on which it was
 * announced have taken that back, or have ended, and no round of it is open: so nothing of it can be on its way. All
 * groups take their memory from the engine of all workers.
 */
#ifndef BPS_SERVER_SERVED_H
#define BPS_SERVER_SERVED_H

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "sum/sum.h"
#include "wire/frame.h"
#include "wire/message.h"

#define BPS_SERVED_LANES 64u /* connections of a member */

/* The `owner` of an engine: one of these for each, the first for all workers. */
struct bps_served {
    void *host;     /* who sums */
    uint32_t group; /* its id; 0: all workers */
    struct bps_sum *sum;
    uint32_t members;
    uint32_t *member; /* owned: their ranks, in the order of the group; NULL: all */
    uint64_t *lanes;  /* of each member: the connections on which it has announced the group */
    UT_hash_handle hh;
};

struct bps_served_groups {
    const struct bps_sum_config *config; /* of their engines, but for what a group has of its own; of the owner */
    struct bps_served *by_id;
};

/*
 * A member announces a group on one of its connections, or takes that back: frame and payload of a GROUP.
 * BPS_ERR_PROTOCOL: it is not a member, the ranks make no sense, or are of other hosts than an aggregator's, or others
 * have announced other ones. BPS_ERR_NOMEM.
 */
bps_status bps_served_announce(struct bps_served_groups *groups, struct bps_sum *all, void *host, uint32_t rank,
                               uint32_t lane, const struct bps_header *header, struct bps_reader *payload);
/* The engine of a group; NULL: nobody has announced it. */
struct bps_sum *bps_served_find(const struct bps_served_groups *groups, uint32_t id);
/* A connection has ended. */
void bps_served_lane_ended(struct bps_served_groups *groups, uint32_t rank, uint32_t lane);
/* Frees groups that have ended. */
void bps_served_sweep(struct bps_served_groups *groups);
/* Before the engine of all workers is freed. */
void bps_served_fini(struct bps_served_groups *groups);

#endif
