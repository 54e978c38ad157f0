/* SPDX-License-Identifier: Apache-2.0 */
/*
 * member.h - a process's side of the membership: joins the scheduler's job, stays alive, leaves.
 *
 * A scheduler that is a process of its own may be lost, and another one take its place: the job goes on meanwhile.
 * What the lost one was told or asked is nothing that anybody can count on: `returned` says it again.
 *
 * Driven by one loop's thread; callbacks run there.
 */
#ifndef BPS_NODE_MEMBER_H
#define BPS_NODE_MEMBER_H

#include "base/lateness.h"
#include "base/loop.h"
#include "node/view.h"
#include "plugin/instance.h"
#include "wire/link.h"

/* For workers that come back to a scheduler that does not stay. */
#define BPS_REMEDY_STAY                                                                                                \
    "set cluster.stay = true for the scheduler, or start it and the servers again before the workers return"

struct bps_member_events {
    /*
     * Ranks are known. If `serve`, open shards that can be reached at `host` and write their addresses as an
     * ENDPOINTS message has them.
     */
    bps_status (*assigned)(void *owner, uint32_t rank, bool serve, const char *host, struct bps_writer *endpoints,
                           struct bps_report *report);
    /*
     * The job is complete; or, in the same epoch, another view of it follows. Whoever wants to keep the view holds it.
     */
    void (*joined)(void *owner, struct bps_view *view);
    /* The scheduler's answer to a DECLARE message, in order. */
    bps_status (*declared)(void *owner, struct bps_reader *reply);
    /* CHANGED: what the scheduler says to a CHANGE message. A server gets none, */
    bps_status (*changed)(void *owner, struct bps_reader *answer);
    /* nor these, MOVE and MOVED: see scheduler/declared_move.c. */
    bps_status (*move)(void *owner, struct bps_reader *request);
    bps_status (*moved)(void *owner, struct bps_reader *answer);
    /* Tells another scheduler what this worker knows of tensors: messages KNOWN over the link; a server nothing. */
    void (*known)(void *owner, struct bps_link *link);
    /* It has taken the place of the lost one: whatever was not answered is to be asked again. */
    void (*returned)(void *owner);
    /*
     * Writes what the channels to other members have delivered, as a RATES message has it. Returns to how many. False
     * in *even: it tells nothing of the links, as other operations than push_pull load them unevenly.
     */
    uint32_t (*delivered)(void *owner, struct bps_writer *w, bool *even);
    /* Adds who was late to what is summed here; and what the scheduler says of that to a worker. */
    void (*lateness)(void *owner, struct bps_lateness *into);
    bps_status (*late)(void *owner, struct bps_reader *message);
    /* NEWCOMERS: how many wait for the workers of an elastic job to reform. */
    bps_status (*newcomers)(void *owner, struct bps_reader *message);
    /* The scheduler cannot be reached; cluster.scheduler is dialled again after this, which may have set it anew. */
    void (*unreachable)(void *owner);
    /* The job has failed, or this process was refused; once. */
    void (*lost)(void *owner, bps_status status, const char *text);
    /* A worker may go; or the job is over for a server. */
    void (*ended)(void *owner);
};

struct bps_member;

/*
 * Begins to join. `transport` is an open instance on the loop; `local`: where workers of this host can dial us, or "";
 * `before`: a worker's rank in the last generation of an elastic job, or -1.
 */
bps_status bps_member_new(const struct bps_conf *conf, struct bps_loop *loop, struct bps_instance *transport,
                          const char *local, int32_t before, const struct bps_member_events *events, void *owner,
                          struct bps_member **out, struct bps_report *report);
void bps_member_free(struct bps_member *member);
/*
 * Sends BPS_FRAME_DECLARE, which declared follows; _CHANGE, with changed; _BEGUN, with moved; or _FORGET. While the
 * scheduler is away nothing is sent: returned follows.
 */
bps_status bps_member_send(struct bps_member *member, uint8_t frame, const struct bps_writer *message);
/* The scheduler was lost, and another one has not taken its place yet. */
bool bps_member_is_away(const struct bps_member *member);
/* A server between two generations. If it loses the scheduler there, it is lost itself: it may join anew. */
bool bps_member_is_idle(const struct bps_member *member);
/* A worker of an elastic job is about to leave, and comes back: it has begun its last operation. */
void bps_member_reform(struct bps_member *member);
/* A worker leaves; ended follows. With `why` it gives up: the job fails with that text. */
void bps_member_leave(struct bps_member *member, const char *why);

#endif
