/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process_group.h - some of the workers of a job, who make operations among themselves.
 *
 * A group costs no connection and no thread: frames of its operations carry its number, and shards sum them in an
 * engine of the group (server/served.h). Its operations have no names; they are counted for each group, so that each
 * has its own order. They are placed by the first view of the epoch at shards of its members, if these host any.
 *
 * Who sends to one other worker does so in a group of these two, which is made when it is first used; its number says
 * which two. There each tag has its own order.
 *
 * Where nothing else is said, any thread may call; members are marked as in operation.h.
 */
#ifndef BPS_FLOW_PROCESS_GROUP_H
#define BPS_FLOW_PROCESS_GROUP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <byteps/byteps.h>
#include <byteps/groups.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "base/loop.h"
#include "base/roles.h"

struct bps_tensor_entry;
struct bps_worker;
struct bps_writer;

/* Numbers of bps_group_open() begin here; below are those of bps_group_new(). */
#define BPS_GROUP_OPENED 0x40000000u
/* Numbers of groups of two. In a larger job than this a worker cannot send to one other. */
#define BPS_GROUP_PAIRS 0x80000000u
#define BPS_PAIRS_RANKS 46340u

/* Those who sum for a group, and are told of it. */
enum bps_group_told { BPS_TOLD_SHARDS, BPS_TOLD_HOST, BPS_TOLD };

struct bps_process_group {
    struct bps_post post; /* the first member */
    struct bps_worker *worker;
    uint32_t id;                  /* [const] on the wire, never 0 */
    uint32_t n, own;              /* [const] members; the place of this worker among them, UINT32_MAX: it is none */
    uint32_t *rank;               /* [const] owned: of each place */
    uint32_t *calls;              /* operations so far, of each tag in a group of two; owned */
    _Atomic uint32_t users;       /* the application, and operations */
    bool freed;                   /* by the application */
    struct bps_tensor_entry *ids; /* [core] in flight, by id */
    bool *announced;              /* [core] to each of so many shards; owned */
    uint32_t shards;
    uint32_t places; /* [core] announced to these workers of this host, a bit for each place among them */
    void (*take_back[BPS_TOLD])(struct bps_process_group *group); /* [core] tells them that it has ended; NULL: none */
    UT_hash_handle hh;
};

struct bps_process_groups {
    pthread_mutex_t lock; /* guards all that follows, and `calls` and `freed` of each */
    struct bps_process_group *by_id;
    uint32_t made; /* by bps_group_new(), in the same order by all workers */
};

void bps_process_groups_init(struct bps_process_groups *groups);
/* The core thread has ended. */
void bps_process_groups_fini(struct bps_process_groups *groups);
/* Whether there is any: it may still use the shards of the first view. */
bool bps_process_groups_any(struct bps_process_groups *groups);

/*
 * The next group of bps_group_new(), with the caller as its user. `rank` has n of them, all of the job and each once:
 * anything else is refused, and has been counted as well.
 */
bps_status bps_process_group_new(struct bps_worker *worker, const uint32_t *rank, uint32_t n,
                                 struct bps_process_group **out, struct bps_report *report);
/* The same with the number of bps_group_open(). */
bps_status bps_process_group_open(struct bps_worker *worker, uint32_t number, const uint32_t *rank, uint32_t n,
                                  struct bps_process_group **out, struct bps_report *report);
/* The caller is a user of the group of this number from now on; NULL for 0. BPS_ERR_INVALID: there is none. */
bps_status bps_process_group_use(struct bps_worker *worker, uint32_t id, struct bps_process_group **out,
                                 struct bps_report *report);
/* The same of the group in which one worker sends to another. BPS_ERR_UNSUPPORTED, _NOMEM. */
bps_status bps_process_group_pair(struct bps_worker *worker, uint32_t from, uint32_t to, struct bps_process_group **out,
                                  struct bps_report *report);
/* Its last user is no longer one: it ends. */
void bps_process_group_end(struct bps_process_group *group);

/* Another user of a group that the caller uses. */
static inline struct bps_process_group *bps_process_group_again(struct bps_process_group *group)
{
    atomic_fetch_add(&group->users, 1);
    return group;
}

/* The caller no longer is one. NULL: of all workers. */
static inline void bps_process_group_leave(struct bps_process_group *group)
{
    if (group != NULL && atomic_fetch_sub(&group->users, 1) == 1) {
        bps_process_group_end(group);
    }
}

/* The application frees it: BPS_ERR_INVALID if there is none such. Operations in flight go on. */
bps_status bps_process_group_free(struct bps_worker *worker, uint32_t id, struct bps_report *report);

/* A tensor for the next operation of the group with this tag, with its id. NULL: no memory. [app] */
struct bps_tensor_entry *bps_process_group_tensor(struct bps_process_group *group, uint32_t tag);
/* [core] The tensor in flight of that id; NULL: there is none. `group`: as in the header of a frame. */
struct bps_tensor_entry *bps_process_group_find(struct bps_worker *worker, uint32_t group, uint32_t id);

/* [core] The payload of a GROUP that announces it. */
void bps_process_group_write(const struct bps_process_group *group, struct bps_writer *out);

/* The rank in the job of a place in the group, or of all workers. */
static inline uint32_t bps_process_group_rank(const struct bps_process_group *group, uint32_t place)
{
    return group == NULL || place == BPS_EVERYBODY ? place : group->rank[place];
}

#endif
