/* SPDX-License-Identifier: Apache-2.0 */
/* local.c - the group of workers on one host: opening, forming, leaving. */
#include "group/local.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "plugin/ask.h"

#define LOG      "local"
#define PATIENCE (5 * BPS_S) /* all of the group have listened since before they joined */

/* ---- opening ---- */

static void local_on_tick(void *arg)
{
    struct bps_local *local = arg;
    uint64_t now = bps_now();
    bps_lobby_sweep(&local->lobby, now);
    if (local->all.sum != NULL && !local->dropped) {
        bps_local_look(local, now);
    }
    if (local->devices != NULL && !local->dropped) {
        local->device_ops->tick(local->devices, now);
    }
}

bps_status bps_local_open(struct bps_worker *worker, struct bps_local **out, struct bps_report *report)
{
    struct bps_local *local = calloc(1, sizeof *local);
    if (local == NULL) {
        return BPS_ERR_NOMEM;
    }
    local->worker = worker;
    local->transport = worker->local_transport;
    STAILQ_INIT(&local->unsent);
    bps_lobby_init(&local->lobby, &bps_local_guests, local->transport, local, (uint32_t)worker->conf->cluster.workers);
    bps_status status = bps_ask_listen(local->transport, "", bps_lobby_accept, &local->lobby, local->address,
                                       sizeof local->address, report);
    if (status == BPS_OK) {
        local->ticker = bps_loop_timer(worker->loop, BPS_S / 2, BPS_S / 2, local_on_tick, local);
        status = local->ticker == NULL ? BPS_ERR_NOMEM : BPS_OK;
    }
    if (status != BPS_OK) {
        bps_local_free(local);
        return status;
    }
    *out = local;
    return BPS_OK;
}

const char *bps_local_address(const struct bps_local *local)
{
    return local != NULL ? local->address : "";
}

/* ---- forming the group ---- */

uint32_t bps_local_types(const struct bps_conf *conf)
{
    uint32_t types = 0;
    for (uint32_t dtype = 0; dtype < BPS_DTYPES; dtype++) {
        bool narrow = dtype == BPS_FLOAT16 || dtype == BPS_BFLOAT16;
        bool narrowest = dtype == BPS_FLOAT8_E4M3FN || dtype == BPS_FLOAT8_E5M2;
        bool may_cross = !bps_is_integer(dtype) && !narrowest && (!narrow || conf->worker.round_on_host);
        types |= may_cross ? BPS_DTYPE_BIT(dtype) : 0;
    }
    return types;
}

static bps_status find_members(struct bps_local *local)
{
    const struct bps_worker *worker = local->worker;
    const struct bps_book *book = &worker->view->book;
    uint32_t group = book->member[worker->job.rank].group;
    local->size = bps_book_group_size(book, worker->job.rank);
    local->types = bps_local_types(worker->conf);
    local->ends = !bps_graph_has_plugins_between(worker->graph);
    local->final = local->size == book->workers && local->ends;
    local->exchanges = local->final && local->size <= BPS_EXCHANGE_WORKERS;
    local->peer = calloc(local->size, sizeof *local->peer);
    if (local->peer == NULL) {
        return BPS_ERR_NOMEM;
    }
    for (uint32_t rank = 0, place = 0; rank < book->workers; rank++) {
        if (book->member[rank].group == group) {
            struct bps_local_peer *peer = &local->peer[place];
            peer->local = local;
            peer->rank = rank;
            STAILQ_INIT(&peer->returns);
            STAILQ_INIT(&peer->words);
            local->place = rank == worker->job.rank ? place : local->place;
            place++;
        }
    }
    return BPS_OK;
}

/* Those of higher rank dial those of lower rank, where the two have business with each other. */
static bps_status dial_lower(struct bps_local *local, struct bps_report *report)
{
    for (uint32_t place = 0; place < local->place; place++) {
        struct bps_local_peer *peer = &local->peer[place];
        if (!bps_local_meets(local, place)) {
            continue;
        }
        peer->link = &peer->dialled;
        bps_status status =
            bps_dialler_start(&peer->dialler, local->worker->loop, PATIENCE, peer->link, &bps_local_hosts, peer,
                              local->transport, local->worker->view->book.member[peer->rank].local, 0, report);
        if (status != BPS_OK) {
            peer->link = NULL;
            return status;
        }
    }
    return BPS_OK;
}

bps_status bps_local_connect(struct bps_local *local, struct bps_report *report)
{
    if (local == NULL || bps_book_group_size(&local->worker->view->book, local->worker->job.rank) == 1) {
        return BPS_OK;
    }
    bps_status status = find_members(local);
    if (status == BPS_OK) {
        status = bps_local_lead(local, report);
    }
    if (status == BPS_OK) {
        local->device_ops = local->worker->device_group;
        status = local->device_ops->open(local, report);
    }
    if (status == BPS_OK) {
        status = dial_lower(local, report);
    }
    if (status == BPS_OK) {
        bps_local_admit_waiting(local);
        bps_info(LOG, "%u workers of this host sum among themselves through '%s'%s", local->size,
                 local->transport->name, local->final ? "; nothing crosses the network" : "");
    }
    return status;
}

uint32_t bps_local_links(const struct bps_local *local)
{
    bool alone = !bps_local_has_peers(local);
    return alone ? 0 : bps_leads(local->size, local->place) ? local->size - 1 : bps_leaders(local->size);
}

void bps_local_lateness(const struct bps_local *local, struct bps_lateness *into)
{
    if (local != NULL && local->all.sum != NULL) {
        bps_sum_lateness(local->all.sum, into);
    }
}

/* ---- the end ---- */

void bps_local_leave(struct bps_local *local)
{
    bps_assert(local == NULL || local->worker->phase >= BPS_WORKER_DRAINING);
    const struct bps_header header = {.type = BPS_FRAME_LEAVE};
    if (bps_local_has_peers(local) && !local->dropped) {
        bps_local_each_engine(local, bps_sum_leave,
                              local->worker->job.rank); /* rounds that others have begun with us */
        local->device_ops->leave(local->devices);
    }
    for (uint32_t place = 0; bps_local_has_peers(local) && place < local->size; place++) {
        struct bps_local_peer *peer = &local->peer[place];
        if (peer->link != NULL) {
            bps_link_send(peer->link, &header, NULL, 0);
            bps_link_finish(peer->link);
        }
    }
}

static void drop_peer(struct bps_local_peer *peer)
{
    bps_dialler_stop(&peer->dialler);
    if (peer->link != NULL) {
        bps_link_drop(peer->link);
        peer->link = NULL;
    }
    bps_local_release_guest(peer);
    while (!STAILQ_EMPTY(&peer->returns)) {
        struct bps_return *back = STAILQ_FIRST(&peer->returns);
        STAILQ_REMOVE_HEAD(&peer->returns, entry);
        free(back);
    }
    bps_local_forget(&peer->words);
    bps_writer_fini(&peer->handed);
    bps_heap_fini(&peer->pushes);
    bps_heap_fini(&peer->results);
}

void bps_local_drop(struct bps_local *local)
{
    if (!bps_local_has_peers(local)) {
        return;
    }
    for (uint32_t place = 0; place < local->size; place++) {
        drop_peer(&local->peer[place]);
    }
    local->dropped = true; /* the engine goes later: this may be one of its events */
    if (local->devices != NULL) {
        local->device_ops->drop(local->devices);
    }
}

void bps_local_free(struct bps_local *local)
{
    if (local == NULL) {
        return;
    }
    bps_local_drop(local);
    bps_loop_forget(local->worker->loop, local);
    bps_local_forget(&local->unsent);
    if (local->devices != NULL) {
        local->device_ops->free(local->devices);
    }
    bps_served_fini(&local->groups);
    bps_sum_free(local->all.sum);
    free(local->group_of);
    free(local->peer);
    bps_lobby_fini(&local->lobby);
    bps_loop_cancel(local->worker->loop, local->ticker);
    free(local);
}
