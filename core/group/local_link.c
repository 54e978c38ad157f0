/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local_link.c - the links within a group: who may come in, and which way frames take.
 *
 * A worker dials those of lower rank and is dialled by those of higher rank. Who said hello before this
 * worker has heard of the new generation waits until then.
 */
#include <stdlib.h>

#include "base/log.h"
#include "group/local.h"

#define LOG "local"

/* What a guest has said of itself; the `user` of the guest. */
struct visitor {
    uint32_t rank, epoch;
};

static void local_link_reached(void *owner, struct bps_link *link)
{
    struct bps_local_peer *peer = owner;
    struct bps_worker *worker = peer->local->worker;
    (void)link;
    peer->reached = true;
    bps_local_tell_waiting(peer);
    peer->local->device_ops->reached(peer);
    worker->life->link_opened(worker);
}

/* ---- coming in ---- */

/* BPS_OK if the guest belongs to this group and generation, and proves it. */
static bps_status local_link_judge(struct bps_local *local, struct bps_guest *guest, const struct visitor *visitor,
                                   struct bps_report *report)
{
    const struct bps_worker *worker = local->worker;
    struct bps_local_peer *peer = bps_local_peer_of(local, visitor->rank);
    uint8_t key[BPS_KEY_BYTES];
    if (visitor->epoch != worker->job.epoch || peer == NULL) {
        return bps_link_is_foreign(report);
    }
    bps_status status = bps_book_key(&worker->view->book, visitor->rank, worker->conf->secret, key);
    if (status == BPS_OK) {
        status = bps_link_check(&guest->link, key, report);
    }
    if (status != BPS_OK) {
        return status;
    }
    if (local->dropped) {
        BPS_REPORT(report, "worker %u has failed", worker->job.rank); /* perhaps before the group was complete */
        return BPS_ERR_REFUSED;
    }
    if (visitor->rank <= worker->job.rank || peer->link != NULL ||
        !bps_local_meets(local, (uint32_t)(peer - local->peer))) {
        BPS_REPORT(report, "worker %u must not connect to worker %u", visitor->rank, worker->job.rank);
        return BPS_ERR_REFUSED;
    }
    return BPS_OK;
}

/* From here on the link is the peer's, as one that this worker has dialled. */
static void local_link_admit(struct bps_local *local, struct bps_guest *guest)
{
    struct bps_local_peer *peer = bps_local_peer_of(local, ((struct visitor *)guest->user)->rank);
    peer->guest = guest;
    peer->link = &guest->link;
    bps_lobby_admit(guest);
    guest->link.handler = &bps_local_hosts;
    guest->link.owner = peer;
    bps_link_welcome(&guest->link);
    local_link_reached(peer, peer->link);
}

static bps_status local_link_on_hello(void *owner, struct bps_link *link, const struct bps_claim *claim,
                                      struct bps_report *report)
{
    struct bps_guest *guest = owner;
    struct bps_local *local = guest->host;
    (void)link;
    if (guest->user != NULL || claim->purpose != BPS_LINK_LOCAL) {
        return BPS_ERR_PROTOCOL; /* or it said hello before and has to wait */
    }
    struct visitor *visitor = calloc(1, sizeof *visitor);
    if (visitor == NULL) {
        return BPS_ERR_NOMEM;
    }
    visitor->rank = claim->rank;
    visitor->epoch = claim->epoch;
    guest->user = visitor;
    if (!bps_local_has_peers(local)) {
        return BPS_OK; /* judged when the book is there */
    }
    bps_status status = local_link_judge(local, guest, visitor, report);
    if (status == BPS_OK) {
        local_link_admit(local, guest);
    }
    return status;
}

void bps_local_admit_waiting(struct bps_local *local)
{
    struct bps_guest *guest, *next;
    for (guest = TAILQ_FIRST(&local->lobby.guests); guest != NULL; guest = next) {
        struct visitor *visitor = guest->user;
        struct bps_report report;
        next = TAILQ_NEXT(guest, entry);
        if (visitor != NULL && local_link_judge(local, guest, visitor, &report) == BPS_OK) {
            local_link_admit(local, guest);
        }
    }
}

static bps_status local_link_introduce(void *owner, struct bps_link *link, struct bps_claim *claim, uint8_t *key)
{
    const struct bps_local_peer *peer = owner;
    const struct bps_worker *worker = peer->local->worker;
    (void)link;
    *claim = (struct bps_claim){.purpose = BPS_LINK_LOCAL, .epoch = worker->job.epoch, .rank = worker->job.rank};
    return bps_book_key(&worker->view->book, peer->rank, worker->conf->secret, key);
}

/* ---- the end ---- */

/* Its link has ended, or is dropped. */
void bps_local_release_guest(struct bps_local_peer *peer)
{
    if (peer->guest != NULL) {
        free(peer->guest->user);
        bps_guest_free(peer->guest);
        peer->guest = NULL;
    }
}

static void host_closed(void *owner, struct bps_link *link, bps_status status, const char *text)
{
    struct bps_local_peer *peer = owner;
    struct bps_worker *worker = peer->local->worker;
    char why[400], who[128];
    if (link == &peer->dialled && bps_dialler_again(&peer->dialler, status)) {
        return;
    }
    bps_flow_settle(worker);
    peer->link = NULL;
    bps_local_release_guest(peer);
    bool over = peer->left || worker->phase == BPS_WORKER_LEAVING;
    if (over) {
        bps_sum_abandon(&peer->cursor);
        bps_served_lane_ended(&peer->local->groups, peer->rank, 0);
        bps_local_each_engine(peer->local, bps_sum_gone, peer->rank);
        bps_heap_fini(&peer->pushes);
        bps_tasks_left(worker, peer->rank);
    } else {
        peer->local->dropped = true; /* the job is going to fail, and the loans of this peer are gone */
        bps_member_text(&worker->view->book.member[peer->rank], who, sizeof who);
        snprintf(why, sizeof why,
                 peer->reached ? "%s was lost: %s"
                               : "%s is on this host, but cannot share memory with this worker: %s; set "
                                 "worker.hierarchy = \"off\" to run without shared memory",
                 who, text);
    }
    worker->life->link_closed(worker, status, over ? NULL : why);
}

/* Who was not let in. */
static void guest_closed(void *owner, struct bps_link *link, bps_status status, const char *text)
{
    struct bps_guest *guest = owner;
    (void)status;
    bps_debug(LOG, "%s: %s", link->peer, text);
    free(guest->user);
    bps_guest_free(guest);
}

const struct bps_link_handler bps_local_hosts = {
    .introduce = local_link_introduce,
    .welcome = local_link_reached,
    .message = bps_local_message,
    .slice = bps_local_slice,
    .next = bps_local_next,
    .sent = bps_local_sent,
    .closed = host_closed,
};

const struct bps_link_handler bps_local_guests = {.hello = local_link_on_hello, .closed = guest_closed};
