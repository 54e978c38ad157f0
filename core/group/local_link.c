/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local_link.c - the links within a group: who may come in, and which way frames take.
 *
 * A worker dials those of lower rank and is dialled by those of higher rank. Who said hello before this
 * worker has heard of the new generation waits until then.
 */
#include <openssl/crypto.h>
#include <stdlib.h>

#include "base/log.h"
#include "group/local.h"

#define LOG "local"

/* What a guest has said of itself; the `user` of the guest. */
struct visitor {
    uint32_t rank, epoch;
    uint8_t proof[BPS_PROOF_BYTES];
};

static void reached(struct bps_local_peer *peer)
{
    struct bps_worker *worker = peer->local->worker;
    peer->reached = true;
    bps_local_exchange_reached(peer);
    peer->local->device_ops->reached(peer);
    worker->life->link_opened(worker);
}

/* ---- coming in ---- */

/* BPS_OK if the guest belongs to this group and generation, and proves it. */
static bps_status judge(struct bps_local *local, const struct bps_guest *guest, const struct visitor *visitor,
                        struct bps_report *report)
{
    const struct bps_worker *worker = local->worker;
    struct bps_local_peer *peer = bps_local_peer_of(local, visitor->rank);
    uint8_t proof[BPS_PROOF_BYTES];
    if (local->dropped) {
        BPS_REPORT(report, "worker %u has failed", worker->rank); /* perhaps before the group was complete */
        return BPS_ERR_REFUSED;
    }
    if (visitor->epoch != worker->book->epoch || peer == NULL || visitor->rank <= worker->rank || peer->link != NULL) {
        BPS_REPORT(report, "worker %u of epoch %u has no business with worker %u of epoch %u", visitor->rank,
                   visitor->epoch, worker->rank, worker->book->epoch);
        return BPS_ERR_REFUSED;
    }
    bps_status status = bps_book_proof(worker->book, guest->link.nonce, visitor->rank, 0, proof);
    if (status == BPS_OK && CRYPTO_memcmp(proof, visitor->proof, sizeof proof) != 0) {
        BPS_REPORT(report, "worker %u could not prove that it belongs to this job", visitor->rank);
        status = BPS_ERR_REFUSED;
    }
    return status;
}

/* From here on the link is the peer's, as one that this worker has dialled. */
static void admit(struct bps_local *local, struct bps_guest *guest)
{
    struct bps_local_peer *peer = bps_local_peer_of(local, ((struct visitor *)guest->user)->rank);
    peer->guest = guest;
    peer->link = &guest->link;
    bps_lobby_admit(guest);
    guest->link.handler = &bps_local_hosts;
    guest->link.owner = peer;
    bps_link_welcome(&guest->link);
    reached(peer);
}

static bps_status on_hello(void *owner, struct bps_link *link, struct bps_reader *hello, struct bps_report *report)
{
    struct bps_guest *guest = owner;
    struct bps_local *local = guest->host;
    (void)link;
    if (guest->user != NULL) {
        return BPS_ERR_PROTOCOL; /* it said hello before and has to wait */
    }
    struct visitor *visitor = calloc(1, sizeof *visitor);
    if (visitor == NULL) {
        return BPS_ERR_NOMEM;
    }
    uint8_t purpose = bps_get_u8(hello);
    visitor->rank = bps_get_u32(hello);
    visitor->epoch = bps_get_u32(hello);
    bps_get_bytes(hello, visitor->proof, sizeof visitor->proof);
    if (purpose != BPS_HELLO_LOCAL || !bps_reader_done(hello)) {
        free(visitor);
        return BPS_ERR_PROTOCOL;
    }
    guest->user = visitor;
    if (!bps_local_has_peers(local)) {
        return BPS_OK; /* judged when the book is there */
    }
    bps_status status = judge(local, guest, visitor, report);
    if (status == BPS_OK) {
        admit(local, guest);
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
        if (visitor != NULL && judge(local, guest, visitor, &report) == BPS_OK) {
            admit(local, guest);
        }
    }
}

static void introduce(void *owner, struct bps_link *link, const uint8_t *nonce, struct bps_writer *hello)
{
    const struct bps_worker *worker = ((struct bps_local_peer *)owner)->local->worker;
    uint8_t proof[BPS_PROOF_BYTES];
    (void)link;
    if (bps_book_proof(worker->book, nonce, worker->rank, 0, proof) != BPS_OK) {
        hello->failed = true;
        return;
    }
    bps_put_u8(hello, BPS_HELLO_LOCAL);
    bps_put_u32(hello, worker->rank);
    bps_put_u32(hello, worker->book->epoch);
    bps_put_bytes(hello, proof, sizeof proof);
}

static void welcome(void *owner, struct bps_link *link)
{
    (void)link;
    reached(owner);
}

/* ---- frames ---- */

static bps_status host_message(void *owner, struct bps_link *link, const struct bps_header *header,
                               struct bps_reader *payload)
{
    (void)link;
    return bps_local_message(owner, header, payload);
}

static bps_status host_slice(void *owner, struct bps_link *link, const struct bps_header *header,
                             struct bps_sink **sink)
{
    (void)link;
    return bps_local_slice(owner, header, sink);
}

static bps_status host_next(void *owner, struct bps_link *link, struct bps_frame *out)
{
    (void)link;
    return bps_local_next(owner, out);
}

static void host_sent(void *owner, struct bps_link *link, void *cookie)
{
    (void)link;
    bps_local_sent(owner, cookie);
}

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
    (void)link;
    peer->link = NULL;
    bps_local_release_guest(peer);
    if (peer->left || worker->phase == BPS_WORKER_LEAVING) {
        bps_sum_abandon(&peer->cursor);
        bps_exchange_abandon(&peer->exchange);
        bps_sum_gone(peer->local->sum, peer->rank);
        bps_heap_fini(&peer->pushes);
        bps_tasks_left(worker, peer->rank);
    } else {
        peer->local->dropped = true; /* the job is going to fail, and the loans of this peer are gone */
        bps_member_text(&worker->book->member[peer->rank], who, sizeof who);
        snprintf(why, sizeof why,
                 peer->reached ? "%s was lost: %s"
                               : "%s is on this host, but shares no memory with this worker: %s; a job with "
                                 "worker.hierarchy = \"off\" does without",
                 who, text);
        bps_worker_suspect(worker, status, why);
    }
    worker->life->link_closed(worker);
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
    .introduce = introduce,
    .welcome = welcome,
    .message = host_message,
    .slice = host_slice,
    .next = host_next,
    .sent = host_sent,
    .closed = host_closed,
};

const struct bps_link_handler bps_local_guests = {.hello = on_hello, .closed = guest_closed};
