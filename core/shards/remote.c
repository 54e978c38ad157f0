/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote.c - the shards as a worker sees them: connecting, saying that it cannot contribute, leaving.
 */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "shards/shards.h"

#define LOG          "worker"
#define TELL_ATTEMPT 6 /* after a second */
#define EVEN_PART    8 /* of what is pushed that other operations may have */

/* ---- poison ---- */

void bps_remote_poison(struct bps_remote *remote, const struct bps_header *poison, const char *text)
{
    struct bps_worker *worker = remote->worker;
    if (remote->has_heirs && poison->group == 0 &&
        bps_kept_fail(&worker->shards->kept, worker->view, remote->index, poison, text) != BPS_OK) {
        bps_worker_fail(worker, BPS_ERR_NOMEM, "out of memory");
        return;
    }
    bps_link_send(&remote->lane[0].link, poison, text, strnlen(text, BPS_TEXT_LIMIT));
}

struct bps_header bps_poison_header(const struct bps_tensor_entry *tensor, uint32_t partition, uint64_t bytes,
                                    bps_status status, uint8_t flags)
{
    const struct bps_task *block = tensor->blocks ? bps_tensor_task(tensor, partition) : NULL;
    const struct bps_roles all = {BPS_EVERYBODY, BPS_EVERYBODY}, *roles = block != NULL ? &block->roles : &all;
    return (struct bps_header){
        .type = BPS_FRAME_POISON,
        .op = bps_sums(roles) ? BPS_SUM : BPS_WIRE_BROADCAST,
        .offset = bps_roles_write(roles),
        .flags = (uint8_t)(flags | (tensor->named.form.keeps ? BPS_FLAG_KEEPS : 0)),
        .epoch = tensor->worker->job.epoch,
        .tensor = tensor->id,
        .bytes = bytes,
        .size = block != NULL ? block->bytes : bps_tensor_size(tensor, bytes, partition),
        .partition = partition,
        .round = tensor->named.unnamed ? 0 : tensor->round,
        .root = (uint32_t)-status,
        .view = bps_tensor_view(tensor),
        .group = bps_tensor_group(tensor),
    };
}

bool bps_remote_refuse(struct bps_tensor_entry *tensor, uint32_t partition, uint64_t bytes, bps_status status,
                       const char *text, bool answer)
{
    bool for_group = bps_is_summed_here(tensor, partition);
    uint8_t flags = (uint8_t)((answer ? BPS_FLAG_ANSWER : 0) | (for_group ? BPS_FLAG_GROUP : 0));
    const struct bps_header header = bps_poison_header(tensor, partition, bytes, status, flags);
    struct bps_remote *remote = bps_remote_of(tensor, partition);
    if (header.group == 0 || bps_remote_announce(remote, tensor->operation.group)) {
        bps_remote_poison(remote, &header, text);
    }
    return true;
}

bool bps_remote_forward_poison(struct bps_worker *worker, const struct bps_header *header, const char *text)
{
    struct bps_header poison = *header;
    uint32_t shard;
    if (header->tensor >= BPS_ID_UNNAMED) {
        const struct bps_view *view = bps_view_at(worker->view, header->tensor);
        shard = bps_unnamed_shard(&view->book, &worker->view->book, header->tensor, header->partition);
        poison.view = view->book.view;
    } else {
        const struct bps_tensor_entry *tensor = bps_tensor_of(worker, header->tensor);
        if (tensor == NULL || tensor->operation.phase == BPS_PHASE_REPORTED) {
            return false; /* it is going to have a place, or another one */
        }
        const struct bps_placed *placed = bps_tensor_placed(tensor, header->round);
        shard = header->partition < placed->n ? placed->partition[header->partition].shard : 0;
        poison.view = placed->view;
    }
    bps_remote_poison(worker->shards->remote[shard], &poison, text);
    return true;
}

/* ---- connecting ---- */

/* "server 0", or "the server of worker 1" */
static void server_text(const struct bps_remote *remote, char *text, size_t n)
{
    const struct bps_worker *worker = remote->worker;
    uint32_t member = worker->view->book.shard[remote->index].member;
    bool hosted = member < worker->job.size;
    snprintf(text, n, "%s %u", hosted ? "the server of worker" : "server", hosted ? member : member - worker->job.size);
}

static bps_status introduce(void *owner, struct bps_link *link, struct bps_claim *claim, uint8_t *key)
{
    const struct bps_remote_lane *lane = owner;
    const struct bps_worker *worker = lane->remote->worker;
    const struct bps_book *book = &worker->view->book;
    (void)link;
    *claim = (struct bps_claim){
        .purpose = BPS_LINK_DATA, .epoch = book->epoch, .rank = worker->job.rank, .lane = lane->number};
    return bps_book_key(book, book->shard[lane->remote->index].member, worker->conf->secret, key);
}

static void welcome(void *owner, struct bps_link *link)
{
    const struct bps_remote_lane *lane = owner;
    struct bps_remote *remote = lane->remote;
    (void)link;
    if (lane->number == 0) {
        bps_value_copies_told(remote);
    }
    remote->reached = true;
    remote->opened++;
    remote->worker->life->link_opened(remote->worker);
}

/* Once, when it takes longer than it should. */
static void tell_attempt(const struct bps_remote_lane *lane, const char *why)
{
    char who[100];
    server_text(lane->remote, who, sizeof who);
    BPS_LOG(lane->dialler.attempts == TELL_ATTEMPT ? BPS_LOG_WARN : BPS_LOG_DEBUG, LOG,
            "%s at %s refuses this worker: %s; retrying for %.0f s (cluster.%s)", who, lane->link.peer, why,
            (double)lane->remote->patience / 1e9, lane->remote->came ? "peer_timeout" : "rendezvous_timeout");
}

static bps_status fall_back(struct bps_remote *remote, const char *why, struct bps_report *report);

static void on_closed(void *owner, struct bps_link *link, bps_status status, const char *text)
{
    struct bps_remote_lane *lane = owner;
    struct bps_remote *remote = lane->remote;
    struct bps_worker *worker = remote->worker;
    struct bps_report report = {""};
    char who[100], why[400];
    if (!remote->reached && remote->transport == worker->local_transport) {
        status = fall_back(remote, text, &report);
        if (status != BPS_OK) {
            bps_worker_fail(worker, status, report.text);
        }
        return;
    }
    if (bps_dialler_again(&lane->dialler, status)) {
        tell_attempt(lane, text);
        return;
    }
    server_text(remote, who, sizeof who);
    snprintf(why, sizeof why, "%s at %s was lost: %s", who, link->peer, text);
    bool goes_on = remote->retired || remote->has_heirs;
    if (!goes_on || link->welcomed) { /* else it was never one of those that are open */
        worker->life->link_closed(worker, status, goes_on ? NULL : why);
    }
    if (goes_on && !remote->retired) {
        bps_remote_break(remote, why);
    }
}

static const struct bps_link_handler handler = {
    .introduce = introduce,
    .welcome = welcome,
    .message = bps_receive_message,
    .slice = bps_receive_slice,
    .next = bps_remote_next,
    .sent = bps_remote_sent,
    .placed = bps_receive_placed,
    .closed = on_closed,
};

static bps_status dial(struct bps_remote *remote, struct bps_instance *transport, const char *address, uint32_t lanes,
                       uint64_t patience, struct bps_report *report)
{
    bps_status status = BPS_OK;
    remote->transport = transport;
    remote->lanes = lanes;
    for (uint32_t i = 0; i < lanes && status == BPS_OK; i++) {
        struct bps_remote_lane *lane = &remote->lane[i];
        lane->remote = remote;
        lane->number = i;
        status = bps_dialler_start(&lane->dialler, remote->worker->loop, patience, &lane->link, &handler, lane,
                                   transport, address, i, report);
    }
    return status;
}

/*
 * Networks divide a link among connections, not among hosts. So a shard that sums more than the least of them
 * has up to twice as many: otherwise its part of the bytes would get too small a part of this worker's link,
 * beside what the server on this host sends to others. More of them lose more packets.
 */
static uint32_t lanes_to(const struct bps_remote *remote)
{
    const struct bps_book *book = &remote->worker->view->book;
    uint32_t weight = book->shard[remote->index].weight, least = weight;
    for (uint32_t i = 0; i < book->shards; i++) {
        uint32_t other = book->shard[i].weight;
        least = other > 0 && other < least ? other : least;
    }
    uint32_t times = weight > 0 ? (weight + least / 2) / least : 1;
    return bps_transport_lanes(remote->worker->net, times < BPS_LANES_TIMES ? times : BPS_LANES_TIMES);
}

static bps_status dial_net(struct bps_remote *remote, struct bps_report *report)
{
    struct bps_worker *worker = remote->worker;
    return dial(remote, worker->net, worker->view->book.shard[remote->index].address, lanes_to(remote),
                remote->patience, report);
}

/* The server is on this host, and both have opened the transport between processes of a host. */
static bool is_local(const struct bps_remote *remote)
{
    const struct bps_worker *worker = remote->worker;
    const struct bps_book *book = &worker->view->book;
    const struct bps_book_shard *shard = &book->shard[remote->index];
    return worker->local_transport != NULL && worker->conf->server.local && shard->local[0] != '\0' &&
           book->member[shard->member].host_id == book->member[worker->job.rank].host_id;
}

/*
 * Whether two processes of a host can really share memory, only the attempt tells: containers of one host may
 * look alike and yet be apart. Said once for each server.
 */
static bps_status fall_back(struct bps_remote *remote, const char *why, struct bps_report *report)
{
    const struct bps_worker *worker = remote->worker;
    const struct bps_book_shard *shard = &worker->view->book.shard[remote->index];
    char who[100];
    bool first = remote->index == 0 || shard[-1].member != shard->member;
    server_text(remote, who, sizeof who);
    BPS_LOG(first ? BPS_LOG_WARN : BPS_LOG_DEBUG, LOG, "%s is on this host, but is reached through '%s', not '%s': %s",
            who, worker->net->name, worker->local_transport->name, why);
    return dial_net(remote, report);
}

static bps_status reach(struct bps_remote *remote, struct bps_report *report)
{
    struct bps_worker *worker = remote->worker;
    struct bps_report reason = {""};
    if (!is_local(remote)) {
        return dial_net(remote, report);
    }
    const char *address = worker->view->book.shard[remote->index].local;
    bps_status status = dial(remote, worker->local_transport, address, 1, 0, &reason);
    return status == BPS_OK ? status : fall_back(remote, reason.text, report);
}

/* Shards that sum more get more at once, so that all of them come to the end together. */
static double part_of(const struct bps_remote *remote)
{
    const struct bps_shards *shards = remote->worker->shards;
    return shards->window.shard[remote->index].share * shards->remotes;
}

static void init_credit(struct bps_remote *remote)
{
    const struct bps_worker *worker = remote->worker;
    uint64_t credit = worker->conf->worker.credit;
    remote->part = worker->view->book.shard[remote->index].weight > 0 ? part_of(remote) : 1;
    double least = remote->part * BPS_CREDIT_SLICES * (double)worker->slice, most = remote->part * (double)credit;
    bps_credit_init(&remote->credit, (uint64_t)least, credit == 0 ? 0 : (uint64_t)most + 1);
}

bps_status bps_remotes_connect(struct bps_worker *worker, struct bps_report *report)
{
    worker->shards = calloc(1, sizeof *worker->shards);
    if (worker->shards == NULL) {
        return BPS_ERR_NOMEM;
    }
    bps_kept_init(&worker->shards->kept, worker->net);
    worker->shards->copies.pool = &worker->shards->kept.pool;
    return bps_remotes_grow(worker, report);
}

static bps_status add_remote(struct bps_worker *worker, bool came)
{
    struct bps_shards *shards = worker->shards;
    const struct bps_conf_cluster *cluster = &worker->conf->cluster;
    struct bps_remote *remote = calloc(1, sizeof *remote);
    if (remote == NULL || !bps_array_reserve(shards->remote, shards->room, (size_t)shards->remotes + 1)) {
        free(remote);
        return BPS_ERR_NOMEM;
    }
    remote->worker = worker;
    remote->index = shards->remotes;
    remote->came = came;
    remote->patience = came ? cluster->peer_timeout : cluster->rendezvous_timeout;
    shards->remote[shards->remotes++] = remote;
    return BPS_OK;
}

bps_status bps_remotes_grow(struct bps_worker *worker, struct bps_report *report)
{
    const struct bps_book *book = &worker->view->book;
    struct bps_shards *shards = worker->shards;
    uint32_t before = shards->remotes;
    bps_status status = bps_window_grow(&shards->window, book);
    while (shards->remotes < book->shards && status == BPS_OK) {
        status = add_remote(worker, before > 0);
    }
    if (status == BPS_OK) {
        bps_remotes_find_heirs(worker);
    }
    for (uint32_t i = before; i < shards->remotes && status == BPS_OK; i++) {
        init_credit(shards->remote[i]);
        status = worker->phase < BPS_WORKER_LEAVING ? reach(shards->remote[i], report) : BPS_OK;
    }
    return status;
}

bool bps_remotes_reached(const struct bps_worker *worker)
{
    bool all = true;
    for (uint32_t i = 0; worker->shards != NULL && i < worker->shards->remotes; i++) {
        const struct bps_remote *remote = worker->shards->remote[i];
        bool open = remote->lanes > 0 && remote->opened >= remote->lanes; /* who is leaving dials nobody any more */
        all &= worker->view->book.shard[i].gone || remote->broken || open;
    }
    return all;
}

uint32_t bps_remotes_links(const struct bps_worker *worker)
{
    uint32_t links = 0;
    for (uint32_t r = 0; worker->shards != NULL && r < worker->shards->remotes; r++) {
        links += worker->shards->remote[r]->lanes;
    }
    return links;
}

void bps_remotes_weigh(struct bps_worker *worker, const uint32_t *weight)
{
    bps_window_weigh(&worker->shards->window, weight);
    for (uint32_t r = 0; r < worker->shards->remotes; r++) {
        worker->shards->remote[r]->part = part_of(worker->shards->remote[r]);
    }
}

bool bps_remotes_even(const struct bps_worker *worker)
{
    if (worker->shards == NULL) {
        return true;
    }
    struct bps_pushed pushed = worker->shards->pushed;
    worker->shards->pushed = (struct bps_pushed){0};
    return pushed.uneven <= pushed.all / EVEN_PART;
}

uint32_t bps_remotes_delivered(const struct bps_worker *worker, struct bps_writer *w)
{
    uint32_t n = 0;
    for (uint32_t r = 0; worker->shards != NULL && r < worker->shards->remotes; r++) {
        struct bps_remote *remote = worker->shards->remote[r];
        for (uint32_t i = 0; i < remote->lanes; i++) {
            bps_delivered_look(&remote->delivered, &remote->lane[i].delivered, &remote->lane[i].link);
        }
        n += bps_delivered_report(&remote->delivered, worker->view->book.shard[r].member, w);
    }
    return n;
}

void bps_remotes_log(const struct bps_worker *worker)
{
    char who[100];
    for (uint32_t r = 0; worker->shards != NULL && r < worker->shards->remotes; r++) {
        const struct bps_remote *remote = worker->shards->remote[r];
        if (r == 0 || worker->view->book.shard[r].member != worker->view->book.shard[r - 1].member) {
            server_text(remote, who, sizeof who);
            bps_info(LOG, "%s is reached through '%s'", who, remote->transport->name);
        }
    }
}

static void remote_send_leave(struct bps_remote *remote)
{
    const struct bps_header header = {.type = BPS_FRAME_LEAVE, .epoch = remote->worker->job.epoch};
    bps_link_send(&remote->lane[0].link, &header, NULL, 0);
}

void bps_remotes_announce_leave(struct bps_worker *worker)
{
    for (uint32_t r = 0; worker->shards != NULL && r < worker->shards->remotes; r++) {
        if (!worker->shards->remote[r]->retired && !worker->shards->remote[r]->broken) {
            remote_send_leave(worker->shards->remote[r]);
        }
    }
}

void bps_remote_leave(struct bps_remote *remote)
{
    remote_send_leave(remote);
    for (uint32_t i = 0; i < remote->lanes; i++) {
        bps_link_finish(&remote->lane[i].link);
    }
}

/* Of a server that is just coming: it does not know this worker yet. */
static void remote_give_up(struct bps_remote *remote)
{
    remote->retired = true;
    for (uint32_t i = 0; i < remote->lanes; i++) {
        struct bps_remote_lane *lane = &remote->lane[i];
        bool open = lane->link.welcomed;
        bps_dialler_stop(&lane->dialler);
        bps_link_drop(&lane->link);
        if (open) {
            remote->worker->life->link_closed(remote->worker, BPS_ERR_LOST, NULL);
        }
    }
}

void bps_remotes_leave(struct bps_worker *worker)
{
    for (uint32_t r = 0; worker->shards != NULL && r < worker->shards->remotes; r++) {
        struct bps_remote *remote = worker->shards->remote[r];
        if (!remote->retired && remote->opened < remote->lanes) {
            remote_give_up(remote);
        } else if (!remote->retired) {
            bps_remote_leave(remote);
        }
    }
}

void bps_remotes_drop(struct bps_worker *worker)
{
    if (worker->shards == NULL) {
        return;
    }
    for (uint32_t r = 0; r < worker->shards->remotes; r++) {
        struct bps_remote *remote = worker->shards->remote[r];
        for (uint32_t i = 0; i < remote->lanes; i++) {
            bps_dialler_stop(&remote->lane[i].dialler);
            bps_link_drop(&remote->lane[i].link);
        }
        bps_heap_fini(&remote->queue);
        remote->starved = false;
    }
    bps_loop_cancel(worker->loop, worker->shards->patience);
    worker->shards->patience = NULL;
    bps_window_fini(&worker->shards->window);
}

void bps_remotes_free(struct bps_worker *worker)
{
    if (worker->shards != NULL) {
        bps_value_copies_fini(&worker->shards->copies);
        bps_kept_fini(&worker->shards->kept);
        for (uint32_t r = 0; r < worker->shards->remotes; r++) {
            free(worker->shards->remote[r]);
        }
        free(worker->shards->remote);
        free(worker->shards);
    }
}
