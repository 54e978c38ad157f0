/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard.c - a thread with its own loop, transports, connections and summation engine. Nothing is shared with
 * other shards; other threads only post to its loop.
 *
 * It has two listeners: on the network, and where that works for the workers of its own host.
 */
#include "server/shard.h"

#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/thread.h"
#include "node/delivered.h"
#include "node/listener.h"
#include "node/transport.h"
#include "plugin/use.h"
#include "server/served.h"
#include "server/sum_frames.h"
#include "sum/value.h"

#define LOG            "shard"
#define LANES_LIMIT    BPS_SERVED_LANES
#define FEEDBACK_CHUNK (1u << 20)
#define UNREAD_LIMIT   (64u << 20) /* bytes of answers */

/* The codings of a lane, by the numbers that its worker gives them, from 1. */
struct lane_codings {
    uint32_t count;
    const struct bps_coding *of[BPS_CODINGS_LIMIT];
};

/* A worker. */
struct peer {
    struct lane *lane[LANES_LIMIT];
    uint32_t lanes; /* highest lane in use + 1 */
    bool left, lost;
    struct bps_heap results;
    struct bps_delivered delivered;
};

/* One channel of a worker; the `user` of its guest. */
struct lane {
    struct bps_sum_cursor cursor;
    struct bps_sum_cursor opened[BPS_PLACES_LIMIT]; /* without a block: free */
    struct bps_guest *guest;
    struct peer *peer; /* NULL: said hello for a generation that has not begun here */
    struct bps_delivered_mark delivered;
    uint32_t rank, number, epoch;
    struct lane_codings *codings; /* NULL: none has been told */
};

struct bps_shard {
    const struct bps_conf *conf;
    uint32_t number; /* in its process */
    pthread_t thread;
    bool running;
    struct bps_loop *loop;
    struct bps_listener net, local;
    struct bps_instance *reducer;
    struct bps_timer *ticker;
    struct bps_view *view;        /* NULL: it serves nobody yet */
    uint32_t workers, epoch;      /* of that; else 0 */
    uint32_t gone_since;          /* the first view in which it sums nothing; 0: it sums */
    struct bps_served all;        /* all workers */
    struct bps_sum_config config; /* of its engine, and of those of: */
    struct bps_served_groups groups;
    struct bps_codings codings;
    struct peer *peers;
    uint64_t sequence;
    const struct bps_pinning *pinning;
    struct bps_pin pin;
    pthread_mutex_t late_lock; /* of this: */
    struct bps_lateness late;  /* what the thread that serves has not fetched yet */
};

/* ---- what always holds ---- */

static void check_lane(const struct bps_shard *shard, uint32_t rank, const struct lane *lane, uint32_t number)
{
    bps_assert(lane->peer == &shard->peers[rank] && lane->rank == rank && lane->number == number);
    bps_assert(lane->guest != NULL && lane->guest->user == lane && lane->epoch == shard->epoch);
    bps_assert(lane->codings == NULL || lane->codings->count <= BPS_CODINGS_LIMIT);
}

static void check_shard(const struct bps_shard *shard)
{
    bps_assert(shard->view == NULL || (shard->all.sum != NULL && shard->peers != NULL));
    bps_assert(shard->workers == (shard->view != NULL ? shard->view->book.workers : 0));
    bps_assert(shard->epoch == (shard->view != NULL ? shard->view->book.epoch : 0));
    bps_assert(shard->gone_since == 0 || shard->gone_since <= shard->view->book.view);
    for (uint32_t r = 0; r < shard->workers; r++) {
        const struct peer *peer = &shard->peers[r];
        bps_assert(peer->lanes <= LANES_LIMIT);
        for (uint32_t i = 0; i < LANES_LIMIT; i++) {
            bps_assert(peer->lane[i] == NULL || i < peer->lanes);
            if (peer->lane[i] != NULL) {
                check_lane(shard, r, peer->lane[i], i);
            }
        }
    }
}

/* ---- results ---- */

static void kick_peer(struct peer *peer)
{
    for (uint32_t i = 0; i < peer->lanes; i++) {
        if (peer->lane[i] != NULL) {
            bps_link_kick(&peer->lane[i]->guest->link);
        }
    }
}

/* No memory for what the worker waits for: its job is to end. */
static void shard_give_up(struct peer *peer, uint32_t rank)
{
    bps_error(LOG, "out of memory for the results of worker %u", rank);
    for (uint32_t i = 0; i < peer->lanes; i++) {
        if (peer->lane[i] != NULL) {
            bps_link_finish(&peer->lane[i]->guest->link);
        }
    }
}

static void shard_on_finished(void *owner, struct bps_sum_slice *slice)
{
    const struct bps_served *served = owner;
    bps_frame_result(slice, ((const struct bps_shard *)served->host)->epoch, served->group);
}

static void shard_on_result(void *owner, uint32_t rank, struct bps_sum_slice *slice)
{
    struct bps_shard *shard = ((const struct bps_served *)owner)->host;
    bps_assert(rank < shard->workers);
    struct peer *peer = &shard->peers[rank];
    if (!bps_heap_push(&peer->results, slice->priority, shard->sequence++, slice, NULL)) {
        shard_give_up(peer, rank);
        return;
    }
    bps_sum_trace(slice, BPS_TRACE_ANSWER, rank, false, BPS_TRACE_ALSO);
    kick_peer(peer);
}

/* By its first lane that is there; else the worker is lost, and with it the round. */
static void shard_tell(const struct peer *peer, const struct bps_header *header, const char *text)
{
    for (uint32_t i = 0; i < peer->lanes; i++) {
        if (peer->lane[i] != NULL) {
            bps_link_send(&peer->lane[i]->guest->link, header, text, text != NULL ? strnlen(text, BPS_TEXT_LIMIT) : 0);
            return;
        }
    }
}

static void shard_on_notice(void *owner, uint32_t rank, const struct bps_notice *notice)
{
    const struct bps_served *served = owner;
    const struct bps_shard *shard = served->host;
    bps_assert(rank < shard->workers);
    struct bps_header header = bps_notice_header(notice, shard->epoch, 0);
    header.group = served->group;
    shard_tell(&shard->peers[rank], &header, notice->text);
}

static void shard_on_want(void *owner, uint32_t rank, struct bps_sum_slice *slice)
{
    const struct bps_shard *shard = ((const struct bps_served *)owner)->host;
    const struct bps_header header = {.type = BPS_FRAME_WANT,
                                      .flags = slice->id.kind == BPS_KEY_VALUE ? BPS_FLAG_KEEPS : 0,
                                      .epoch = shard->epoch,
                                      .tensor = slice->id.tensor,
                                      .partition = slice->id.partition,
                                      .round = slice->id.round,
                                      .offset = slice->offset};
    shard_tell(&shard->peers[rank], &header, NULL);
}

static const struct bps_sum_events sum_events = {
    .finished = shard_on_finished, .result = shard_on_result, .want = shard_on_want, .notice = shard_on_notice};

static bps_status shard_on_next(void *owner, struct bps_link *link, struct bps_frame *out)
{
    struct lane *lane = ((struct bps_guest *)owner)->user;
    struct bps_sum_slice *slice = bps_heap_pop(&lane->peer->results);
    (void)link;
    if (slice == NULL) {
        return BPS_AGAIN;
    }
    if (bps_sum_wants_data(slice, lane->rank)) {
        *out = (struct bps_frame){
            .header = bps_sum_is_late(slice, lane->rank) ? slice->other_header : slice->header,
            .payload = slice->payload,
            .bytes = slice->payload_bytes,
            .cookie = slice,
        };
    } else {
        *out = (struct bps_frame){.header = slice->other_header, .cookie = slice};
    }
    return BPS_OK;
}

static void shard_on_sent(void *owner, struct bps_link *link, void *cookie)
{
    const struct lane *lane = ((struct bps_guest *)owner)->user;
    (void)link;
    bps_sum_trace(cookie, BPS_TRACE_ANSWER, lane->rank, true, BPS_TRACE_NOW);
    bps_sum_delivered(cookie);
}

/* ---- contributions ---- */

static void *lane_open(struct bps_sink *sink, void **ticket)
{
    struct lane *lane = bps_container(sink, struct lane, cursor.sink);
    for (uint32_t i = 0; i < BPS_PLACES_LIMIT; i++) {
        if (lane->opened[i].block == NULL) {
            *ticket = &lane->opened[i];
            return bps_sum_open(&lane->cursor, &lane->opened[i]);
        }
    }
    return NULL;
}

static void shard_on_placed(void *owner, struct bps_link *link, void *ticket)
{
    (void)owner;
    (void)link;
    bps_sum_placed(ticket);
}

/* The engine of a frame; NULL: it is of a group that nobody has announced. */
static struct bps_sum *sum_of(const struct bps_shard *shard, const struct bps_header *header)
{
    return header->group == 0 ? shard->all.sum : bps_served_find(&shard->groups, header->group);
}

static bps_status shard_push(struct bps_sum *sum, struct lane *lane, const struct bps_header *header)
{
    if (sum == NULL) {
        return BPS_ERR_PROTOCOL;
    }
    if (header->coding == 0) {
        return bps_frame_push(sum, lane->rank, header, &lane->cursor);
    }
    if (lane->codings == NULL || header->coding > lane->codings->count) {
        return BPS_ERR_PROTOCOL;
    }
    return bps_frame_push_coded(sum, lane->rank, header, lane->codings->of[header->coding - 1], &lane->cursor);
}

/* A round that is placed by a view in which this shard is gone. What is placed by an earlier one still ends here. */
static bool comes_late(const struct bps_shard *shard, const struct lane *lane, const struct bps_header *header)
{
    bool keeps = (header->flags & BPS_FLAG_KEEPS) != 0; /* its view is another one */
    bool late = shard->gone_since != 0 && header->view >= shard->gone_since && !keeps;
    if (late) {
        bps_error(LOG, "worker %u sent a round of view %u, but this shard has no tensors since view %u", lane->rank,
                  header->view, shard->gone_since);
    }
    return late;
}

static bps_status on_slice(void *owner, struct bps_link *link, const struct bps_header *header, struct bps_sink **sink)
{
    struct bps_guest *guest = owner;
    struct bps_shard *shard = guest->host;
    struct lane *lane = guest->user;
    (void)link;
    if (header->type != BPS_FRAME_PUSH || header->epoch != shard->epoch || comes_late(shard, lane, header)) {
        return BPS_ERR_PROTOCOL;
    }
    bps_status status = shard_push(sum_of(shard, header), lane, header);
    lane->cursor.sink.open = lane_open;
    *sink = &lane->cursor.sink;
    return status;
}

/* The next number of a coding on this lane. */
static bps_status on_coding(struct bps_shard *shard, struct lane *lane, struct bps_reader *payload)
{
    char text[BPS_CODING_TEXT];
    bps_get_text(payload, text, sizeof text);
    if (lane->codings == NULL) {
        lane->codings = calloc(1, sizeof *lane->codings);
    }
    const struct bps_coding *coding = lane->codings != NULL ? bps_codings_of_peer(&shard->codings, text) : NULL;
    if (coding == NULL) {
        return BPS_ERR_NOMEM;
    }
    if (lane->codings->count == BPS_CODINGS_LIMIT) {
        return BPS_ERR_PROTOCOL;
    }
    lane->codings->of[lane->codings->count++] = coding;
    return BPS_OK;
}

/* A worker asks what coding has lost here, from header->bytes on: as much as one message is to have. */
static bps_status on_feedback(struct bps_shard *shard, struct lane *lane, const struct bps_header *header)
{
    uint64_t bytes, from = header->bytes;
    bool dropped = (header->flags & BPS_FLAG_DROPPED) != 0;
    const char *error = bps_sum_error(shard->all.sum, header->tensor, header->partition, dropped, &bytes);
    uint64_t rest = from < bytes ? bytes - from : 0, queued = lane->guest->link.queued;
    rest = rest < FEEDBACK_CHUNK ? rest : FEEDBACK_CHUNK;
    if (queued > UNREAD_LIMIT) { /* it asks for one at a time */
        bps_error(LOG, "worker %u requests error feedback, but has not read %" PRIu64 " MiB of the answers", lane->rank,
                  queued >> 20);
        return BPS_ERR_PROTOCOL;
    }
    return bps_link_send(&lane->guest->link, header, rest > 0 ? error + from : NULL, rest);
}

/* Something has happened to a worker. */
static void each_engine(const struct bps_shard *shard, void (*tell)(struct bps_sum *sum, uint32_t rank), uint32_t rank)
{
    tell(shard->all.sum, rank);
    for (const struct bps_served *group = shard->groups.by_id; group != NULL; group = group->hh.next) {
        tell(group->sum, rank);
    }
}

static bps_status shard_on_message(void *owner, struct bps_link *link, const struct bps_header *header,
                                   struct bps_reader *payload)
{
    struct bps_guest *guest = owner;
    struct bps_shard *shard = guest->host;
    struct lane *lane = guest->user;
    char text[BPS_TEXT_LIMIT + 1];
    (void)link;
    bps_check(check_shard(shard));
    if (header->epoch != shard->epoch) {
        return BPS_ERR_PROTOCOL;
    }
    if (header->type == BPS_FRAME_LEAVE) {
        lane->peer->left = true;
        each_engine(shard, bps_sum_leave, lane->rank);
        return BPS_OK;
    }
    if (header->type == BPS_FRAME_FEEDBACK) {
        return on_feedback(shard, lane, header);
    }
    if (header->type == BPS_FRAME_CODING) {
        return on_coding(shard, lane, payload);
    }
    if (header->type == BPS_FRAME_HELD) {
        return bps_frame_held(shard->all.sum, lane->rank, header, payload);
    }
    if (header->type == BPS_FRAME_FINAL) {
        return bps_frame_final(shard->all.sum, lane->rank, header, payload);
    }
    if (header->type == BPS_FRAME_GROUP) {
        return bps_served_announce(&shard->groups, shard->all.sum, shard, lane->rank, lane->number, header, payload);
    }
    struct bps_sum *sum = sum_of(shard, header);
    if (header->type != BPS_FRAME_POISON || comes_late(shard, lane, header) || sum == NULL) {
        return BPS_ERR_PROTOCOL;
    }
    bps_get_text(payload, text, sizeof text);
    return bps_frame_poison(sum, lane->rank, header, text);
}

/* ---- who may come in ---- */

/* BPS_OK if the lane belongs to this generation and proves it. */
static bps_status shard_judge(struct bps_shard *shard, struct lane *lane, struct bps_report *report)
{
    uint8_t key[BPS_KEY_BYTES];
    if (lane->rank >= shard->workers || lane->epoch != shard->epoch) {
        return bps_link_is_foreign(report);
    }
    bps_status status = bps_book_key(&shard->view->book, lane->rank, shard->conf->secret, key);
    if (status == BPS_OK) {
        status = bps_link_check(&lane->guest->link, key, report);
    }
    if (status == BPS_OK && shard->peers[lane->rank].lane[lane->number] != NULL) {
        BPS_REPORT(report, "worker %u is already connected", lane->rank);
        status = BPS_ERR_REFUSED;
    }
    return status;
}

static void shard_admit(struct bps_shard *shard, struct lane *lane)
{
    bps_assert(lane->peer == NULL && lane->rank < shard->workers && lane->number < LANES_LIMIT);
    bps_assert(shard->peers[lane->rank].lane[lane->number] == NULL);
    struct peer *peer = &shard->peers[lane->rank];
    lane->peer = peer;
    peer->lane[lane->number] = lane;
    if (peer->lanes <= lane->number) {
        peer->lanes = lane->number + 1;
    }
    bps_lobby_admit(lane->guest);
    bps_link_welcome(&lane->guest->link);
    bps_link_kick(&lane->guest->link);
}

static bps_status shard_on_hello(void *owner, struct bps_link *link, const struct bps_claim *claim,
                                 struct bps_report *report)
{
    struct bps_guest *guest = owner;
    struct bps_shard *shard = guest->host;
    (void)link;
    bps_check(check_shard(shard));
    if (guest->user != NULL || claim->purpose != BPS_LINK_DATA || claim->lane >= LANES_LIMIT) {
        return BPS_ERR_PROTOCOL; /* or it said hello before and has to wait */
    }
    struct lane *lane = calloc(1, sizeof *lane);
    if (lane == NULL) {
        return BPS_ERR_NOMEM;
    }
    lane->guest = guest;
    lane->rank = claim->rank;
    lane->number = claim->lane;
    lane->epoch = claim->epoch;
    guest->user = lane;
    if (lane->epoch > shard->epoch) {
        return BPS_OK; /* it heard of the new generation before us; judged when that begins */
    }
    bps_status status = shard_judge(shard, lane, report);
    if (status == BPS_OK) {
        shard_admit(shard, lane);
    }
    return status;
}

/* What was on its way over this lane does not come. */
static void end_lane(struct lane *lane, const char *text)
{
    bps_sum_abandon(&lane->cursor);
    for (uint32_t i = 0; i < BPS_PLACES_LIMIT; i++) {
        bps_sum_abandon(&lane->opened[i]);
    }
    if (lane->peer != NULL) {
        bps_debug(LOG, "worker %u: %s", lane->rank, text);
        lane->peer->lane[lane->number] = NULL;
        bps_served_lane_ended(&((struct bps_shard *)lane->guest->host)->groups, lane->rank, lane->number);
    }
    free(lane->codings);
    free(lane);
}

static bool shard_is_elastic(const struct bps_shard *shard)
{
    return shard->conf->cluster.min_workers > 0;
}

/* Its last link, if it was one: who has left tells no results any more. */
static void look_for_last(struct bps_shard *shard, uint32_t rank)
{
    const struct peer *peer = &shard->peers[rank];
    uint32_t i = 0;
    while (i < peer->lanes && peer->lane[i] == NULL) {
        i++;
    }
    if (i == peer->lanes && peer->left && shard_is_elastic(shard)) {
        each_engine(shard, bps_sum_gone, rank);
    }
}

static void shard_on_closed(void *owner, struct bps_link *link, bps_status status, const char *text)
{
    struct bps_guest *guest = owner;
    struct bps_shard *shard = guest->host;
    struct lane *lane = guest->user;
    (void)status;
    if (lane != NULL && lane->peer != NULL) {
        uint32_t rank = lane->rank;
        end_lane(lane, text);
        look_for_last(shard, rank);
    } else if (lane != NULL) {
        end_lane(lane, text);
    } else {
        bps_debug(LOG, "%s: %s", link->peer, text);
    }
    bps_guest_free(guest);
}

/* The others of an elastic job go on without this worker. */
static void shard_lose(struct bps_shard *shard, uint32_t rank)
{
    struct peer *peer = &shard->peers[rank];
    struct bps_sum_slice *slice;
    peer->lost = true;
    for (uint32_t i = 0; i < peer->lanes; i++) {
        if (peer->lane[i] != NULL) {
            struct bps_guest *guest = peer->lane[i]->guest;
            bps_link_drop(&guest->link);
            end_lane(peer->lane[i], "it was lost");
            bps_guest_free(guest);
        }
    }
    while ((slice = bps_heap_pop(&peer->results)) != NULL) {
        bps_sum_delivered(slice);
    }
    each_engine(shard, bps_sum_gone, rank);
}

static const struct bps_link_handler handler = {
    .hello = shard_on_hello,
    .message = shard_on_message,
    .slice = on_slice,
    .next = shard_on_next,
    .sent = shard_on_sent,
    .placed = shard_on_placed,
    .closed = shard_on_closed,
};

/* ---- generations ---- */

static void drop_lane(struct lane *lane)
{
    struct bps_guest *guest = lane->guest;
    bps_link_drop(&guest->link);
    lane->cursor.round = NULL; /* its engine goes, too */
    free(lane->codings);
    free(lane);
    bps_guest_free(guest);
}

static void end_generation(struct bps_shard *shard)
{
    bps_assert(shard->peers != NULL || shard->workers == 0);
    for (uint32_t r = 0; r < shard->workers && shard->peers != NULL; r++) {
        struct peer *peer = &shard->peers[r];
        for (uint32_t i = 0; i < peer->lanes; i++) {
            if (peer->lane[i] != NULL) {
                drop_lane(peer->lane[i]);
            }
        }
        bps_heap_fini(&peer->results);
    }
    free(shard->peers);
    shard->peers = NULL;
    bps_served_fini(&shard->groups);
    bps_sum_free(shard->all.sum);
    shard->all.sum = NULL;
    bps_view_put(shard->view);
    shard->view = NULL;
    shard->workers = shard->epoch = shard->gone_since = 0;
}

static bps_status begin_generation(struct bps_shard *shard, struct bps_view *view)
{
    const struct bps_book *book = &view->book;
    uint32_t *group = bps_book_groups(book);
    const struct bps_sum_config config = {
        .workers = book->workers,
        .group = group,
        .partition = shard->conf->worker.partition,
        .slice = shard->conf->worker.slice,
        .only = BPS_SUM_ALL,
        .elastic = shard_is_elastic(shard),
        .ops = {[BPS_KEY_VALUE] = &bps_value_ops},
        .backups = (uint32_t)shard->conf->server.backups,
        .staleness = shard->conf->worker.staleness,
        .rank_order = shard->conf->server.order == BPS_ORDER_RANK,
        .reducer = shard->reducer,
        .events = &sum_events,
        .number = shard->number,
        .owner = &shard->all,
        .transport = shard->net.transport,
        .attach = bps_transport_attach,
        .detach = bps_transport_detach,
    };
    end_generation(shard);
    shard->peers = calloc(book->workers, sizeof *shard->peers);
    bool memory = shard->peers != NULL && group != NULL;
    bps_status status = memory ? bps_sum_new(&config, &shard->all.sum) : BPS_ERR_NOMEM;
    shard->config = config;
    free(group);
    if (status == BPS_OK) {
        shard->view = bps_view_get(view);
        shard->workers = book->workers;
        shard->epoch = book->epoch;
    }
    return status;
}

/* Judges those who said hello to a listener before the generation began here. */
static void judge_waiting(struct bps_shard *shard, struct bps_listener *listener)
{
    struct bps_guest *guest, *next;
    for (guest = TAILQ_FIRST(&listener->lobby.guests); guest != NULL; guest = next) {
        struct lane *lane = guest->user;
        next = TAILQ_NEXT(guest, entry);
        if (lane == NULL) {
            continue;
        }
        if (shard_judge(shard, lane, NULL) == BPS_OK) {
            shard_admit(shard, lane);
        } else {
            drop_lane(lane);
        }
    }
}

static void forget_late(struct bps_shard *shard, uint32_t workers)
{
    pthread_mutex_lock(&shard->late_lock);
    bps_lateness_fini(&shard->late);
    bps_lateness_init(&shard->late, workers);
    pthread_mutex_unlock(&shard->late_lock);
}

/* Another view of the same workers, whose rounds go on. */
static void follow_view(struct bps_shard *shard, struct bps_view *view)
{
    bps_assert(view->book.epoch == shard->epoch && view->book.view > shard->view->book.view);
    const struct bps_book *book = &view->book;
    bps_view_put(shard->view);
    shard->view = bps_view_get(view);
    for (uint32_t i = 0; i < book->shards && shard->gone_since == 0; i++) {
        bool gone = book->shard[i].gone && strcmp(book->shard[i].address, shard->net.address) == 0;
        shard->gone_since = gone ? book->view : 0;
    }
    for (uint32_t rank = 0; rank < shard->workers; rank++) {
        if (book->member[rank].lost && !shard->peers[rank].lost) {
            shard_lose(shard, rank);
        }
    }
}

struct serve_call {
    struct bps_post post;
    struct bps_shard *shard;
    struct bps_view *view;
    bps_status status;
    sem_t done;
};

static void serve(struct bps_post *post)
{
    struct serve_call *call = (struct serve_call *)post;
    if (call->shard->view != NULL && call->shard->epoch == call->view->book.epoch) {
        follow_view(call->shard, call->view);
        sem_post(&call->done);
        return;
    }
    forget_late(call->shard, call->view->book.workers);
    call->status = begin_generation(call->shard, call->view);
    if (call->status == BPS_OK) {
        judge_waiting(call->shard, &call->shard->net);
        judge_waiting(call->shard, &call->shard->local);
    }
    sem_post(&call->done);
}

bps_status bps_shard_serve(struct bps_shard *shard, struct bps_view *view)
{
    struct serve_call call = {.post = {.fn = serve}, .shard = shard, .view = view};
    sem_init(&call.done, 0, 0);
    bps_loop_post(shard->loop, &call.post);
    while (sem_wait(&call.done) != 0) {
    }
    sem_destroy(&call.done);
    return call.status;
}

/* ---- what is delivered ---- */

static void look_at_channels(struct bps_shard *shard)
{
    for (uint32_t r = 0; r < shard->workers && shard->peers != NULL; r++) {
        struct peer *peer = &shard->peers[r];
        for (uint32_t i = 0; i < peer->lanes; i++) {
            if (peer->lane[i] != NULL) {
                bps_delivered_look(&peer->delivered, &peer->lane[i]->delivered, &peer->lane[i]->guest->link);
            }
        }
    }
}

uint32_t bps_shard_delivered(struct bps_shard *shard, struct bps_writer *w)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < shard->workers && shard->peers != NULL; r++) {
        n += bps_delivered_report(&shard->peers[r].delivered, r, w);
    }
    return n;
}

/* ---- who is late ---- */

static void gather_late(struct bps_shard *shard)
{
    pthread_mutex_lock(&shard->late_lock);
    bps_sum_lateness(shard->all.sum, &shard->late);
    pthread_mutex_unlock(&shard->late_lock);
}

void bps_shard_lateness(struct bps_shard *shard, struct bps_lateness *into)
{
    pthread_mutex_lock(&shard->late_lock);
    bps_lateness_add(into, &shard->late);
    bps_lateness_clear(&shard->late);
    pthread_mutex_unlock(&shard->late_lock);
}

/* ---- life ---- */

static void look_at_rounds(const struct bps_shard *shard, const struct bps_served *of, uint64_t now)
{
    const struct bps_conf_cluster *cluster = &shard->conf->cluster;
    bps_sum_excuse(of->sum, bps_loop_late(shard->loop));
    bps_sum_check_stalls(of->sum, now, cluster->stall_warning, cluster->stall_timeout);
}

static void shard_on_tick(void *arg)
{
    struct bps_shard *shard = arg;
    uint64_t now = bps_now();
    bps_check(check_shard(shard));
    bps_lobby_sweep(&shard->net.lobby, now);
    bps_lobby_sweep(&shard->local.lobby, now);
    look_at_channels(shard);
    if (shard->all.sum != NULL) {
        gather_late(shard);
        bps_served_sweep(&shard->groups);
        look_at_rounds(shard, &shard->all, now);
        for (const struct bps_served *group = shard->groups.by_id; group != NULL; group = group->hh.next) {
            look_at_rounds(shard, group, now);
        }
    }
}

static void *shard_run(void *arg)
{
    struct bps_shard *shard = arg;
    bps_pinning_apply(shard->pinning, &shard->pin, "shard");
    bps_loop_run(shard->loop);
    return NULL;
}

static bps_status shard_start_thread(struct bps_shard *shard, struct bps_report *report)
{
    bps_status status = bps_thread_start(&shard->thread, "bps-shard", shard_run, shard, report);
    shard->running = status == BPS_OK;
    return status;
}

static bps_status shard_open_parts(struct bps_shard *shard, const char *host, bool local, struct bps_report *report)
{
    shard->loop = bps_loop_new();
    if (shard->loop == NULL) {
        return BPS_ERR_NOMEM;
    }
    bps_loop_spin(shard->loop, BPS_LOOP_SPIN);
    bps_status status = bps_reducer_open(shard->conf, shard->loop, &shard->reducer, report);
    if (status == BPS_OK) {
        status = bps_listener_open_net(&shard->net, shard->conf, shard->loop, host, report);
    }
    if (status == BPS_OK && local) {
        status = bps_listener_open_local(&shard->local, shard->conf, shard->loop, report);
    }
    if (status == BPS_OK) {
        shard->ticker = bps_loop_timer(shard->loop, BPS_S / 2, BPS_S / 2, shard_on_tick, shard);
        status = shard->ticker == NULL ? BPS_ERR_NOMEM : BPS_OK;
    }
    return status;
}

bps_status bps_shard_new(const struct bps_conf *conf, uint32_t number, const char *host, bool local,
                         const struct bps_pinning *pinning, struct bps_pin *pin, struct bps_shard **out,
                         struct bps_report *report)
{
    struct bps_shard *shard = calloc(1, sizeof *shard);
    if (shard == NULL) {
        return BPS_ERR_NOMEM;
    }
    shard->conf = conf;
    shard->number = number;
    shard->all.host = shard;
    shard->groups.config = &shard->config;
    pthread_mutex_init(&shard->late_lock, NULL);
    shard->pinning = pinning;
    shard->pin = *pin;
    *pin = (struct bps_pin){.bound = false};
    bps_codings_init(&shard->codings, conf->worker.slice);
    bps_listener_init(&shard->net, &handler, shard);
    bps_listener_init(&shard->local, &handler, shard);
    bps_status status = shard_open_parts(shard, host, local, report);
    if (status == BPS_OK) {
        status = shard_start_thread(shard, report);
    }
    if (status != BPS_OK) {
        bps_shard_free(shard);
        return status;
    }
    *out = shard;
    return BPS_OK;
}

void bps_shard_free(struct bps_shard *shard)
{
    if (shard == NULL) {
        return;
    }
    if (shard->running) {
        bps_loop_stop(shard->loop);
        pthread_join(shard->thread, NULL);
    }
    end_generation(shard);
    bps_codings_fini(&shard->codings);
    bps_listener_close(&shard->local);
    bps_listener_close(&shard->net);
    if (shard->ticker != NULL) {
        bps_loop_cancel(shard->loop, shard->ticker);
    }
    bps_instance_close(shard->reducer);
    bps_loop_free(shard->loop);
    bps_pin_fini(&shard->pin);
    bps_lateness_fini(&shard->late);
    pthread_mutex_destroy(&shard->late_lock);
    free(shard);
}

const char *bps_shard_address(const struct bps_shard *shard)
{
    return shard->net.address;
}

const char *bps_shard_local(const struct bps_shard *shard)
{
    return shard->local.address;
}
