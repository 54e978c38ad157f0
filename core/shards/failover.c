/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failover.c - a shard is lost, and its heirs sum what it was about to.
 *
 * Of a slice each worker has either its contribution still, or the result. It pushes the one to the heir, and tells it
 * of the other (HELD). If somebody has the result, that is the result for all, which the heir fetches from there
 * (WANT, FINAL); else it sums. So all have the same bits, and nobody does a round twice. That a round has failed is
 * told again, too, by all who know it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "shards/shards.h"

#define LOG  "worker"
#define BARE "summed alone just before, so that some results that workers may need are kept nowhere else"

void bps_remotes_find_heirs(struct bps_worker *worker)
{
    const struct bps_book *book = &worker->view->book;
    bool any = false;
    for (uint32_t i = 0; i < worker->shards->remotes; i++) {
        uint32_t member = book->shard[i].member, j = 0;
        while (j < book->shards && (book->shard[j].gone || book->shard[j].member == member)) {
            j++;
        }
        bool may_be_lost = member >= worker->job.size || worker->conf->cluster.min_workers > 0;
        bool has = worker->conf->cluster.failover && may_be_lost && j < book->shards;
        struct bps_remote *remote = worker->shards->remote[i];
        bool bare = has && !remote->has_heirs && remote->reached && !book->shard[i].gone;
        remote->bare |= bare;
        remote->has_heirs = has;
        any |= bare;
    }
    if (any) {
        bps_remotes_disarm(worker);
    }
}

/* ---- links ---- */

static void drop_lanes(struct bps_remote *remote)
{
    struct bps_worker *worker = remote->worker;
    for (uint32_t i = 0; i < remote->lanes; i++) {
        struct bps_remote_lane *lane = &remote->lane[i];
        bool open = lane->link.state == BPS_LINK_OPEN;
        bps_dialler_stop(&lane->dialler);
        bps_link_drop(&lane->link);
        memset(lane->open, 0, sizeof lane->open);
        if (open) {
            worker->life->link_closed(worker, BPS_ERR_LOST, NULL);
        }
    }
}

static void suspect(const struct bps_remote *remote, const char *why)
{
    const struct bps_worker *worker = remote->worker;
    struct bps_writer w;
    bps_writer_init(&w);
    bps_put_u32(&w, worker->view->book.shard[remote->index].member);
    bps_put_bytes(&w, why, strlen(why));
    bps_member_send(worker->member, BPS_FRAME_SUSPECT, &w);
    bps_writer_fini(&w);
}

/* Another scheduler may not have heard it. */
static void suspect_again(struct bps_worker *worker)
{
    for (uint32_t i = 0; i < worker->shards->remotes; i++) {
        const struct bps_remote *remote = worker->shards->remote[i];
        if (remote->broken && !remote->retired) {
            suspect(remote, "its connection was lost before");
        }
    }
}

void bps_remote_break(struct bps_remote *remote, const char *why)
{
    struct bps_worker *worker = remote->worker;
    if (remote->broken || worker->phase >= BPS_WORKER_LEAVING || worker->failure != BPS_OK) {
        return;
    }
    bps_warn(LOG, "%s; waiting for the scheduler to assign its tensors to others", why);
    bps_push_rest(remote);
    drop_lanes(remote);
    suspect(remote, why);
}

/* ---- what is kept ---- */

static void send_held(struct bps_remote *heir, const struct bps_kept *kept, const struct bps_kept_round *round)
{
    const struct bps_header header = {.type = BPS_FRAME_HELD,
                                      .flags = round->for_group ? BPS_FLAG_GROUP : 0,
                                      .epoch = heir->worker->job.epoch,
                                      .tensor = (uint32_t)(kept->id >> 32),
                                      .partition = (uint32_t)kept->id,
                                      .bytes = round->bytes,
                                      .size = round->size,
                                      .slice = round->grid,
                                      .round = round->round};
    size_t bytes = (round->slices + 7) / 8;
    uint8_t *bits = round->whole < round->slices ? calloc(1, bytes) : NULL;
    if (round->whole < round->slices && bits == NULL) {
        bps_worker_fail(heir->worker, BPS_ERR_NOMEM, "out of memory");
        return;
    }
    for (uint32_t i = 0; i < round->slices && bits != NULL; i++) {
        bits[i / 8] |= (uint8_t)(round->slice[i].whole << i % 8);
    }
    bps_link_send(&heir->lane[0].link, &header, bits, bits != NULL ? bytes : 0);
    free(bits);
}

static void announce_round(struct bps_remote *heir, const struct bps_kept *kept, struct bps_kept_round *round)
{
    bool lost = heir->worker->view->book.shard[round->shard].lost;
    round->shard = lost ? heir->index : round->shard;
    if (lost && round->whole > 0) {
        send_held(heir, kept, round);
    }
}

/* Of a partition that has moved, rounds are at one shard and earlier ones at another. */
static void announce(struct bps_worker *worker, struct bps_kept *kept)
{
    const struct bps_book *book = &worker->view->book, *of = kept->view != NULL ? &kept->view->book : book;
    struct bps_kept_failure *failure;
    uint16_t shard = bps_unnamed_shard(of, book, (uint32_t)(kept->id >> 32), (uint32_t)kept->id);
    struct bps_remote *heir = worker->shards->remote[shard];
    announce_round(heir, kept, &kept->last);
    if (kept->begun) {
        announce_round(heir, kept, &kept->now);
    }
    STAILQ_FOREACH(failure, &kept->failures, entry) {
        if (book->shard[failure->shard].lost) {
            failure->shard = heir->index;
            bps_link_send(&heir->lane[0].link, &failure->poison, failure->text, strlen(failure->text));
        }
    }
}

bps_status bps_remote_wanted(struct bps_remote *remote, const struct bps_header *want)
{
    const struct bps_kept *kept = bps_kept_find(&remote->worker->shards->kept, want->tensor, want->partition);
    const struct bps_kept_slice *slice =
        kept != NULL ? bps_kept_slice(kept, remote->index, want->round, want->offset) : NULL;
    if (slice == NULL) {
        return BPS_ERR_PROTOCOL;
    }
    struct bps_header header = *want;
    header.type = BPS_FRAME_FINAL;
    header.flags = slice->flags & BPS_FLAG_CODES;
    return bps_link_send(&remote->lane[0].link, &header, slice->data, slice->bytes);
}

void bps_remote_failed(struct bps_remote *remote, const struct bps_header *failed, const char *text)
{
    struct bps_worker *worker = remote->worker;
    struct bps_header poison = *failed;
    const struct bps_tensor_entry *tensor = bps_tensor_of(worker, failed->tensor);
    bool for_group = tensor != NULL && bps_is_summed_here(tensor, failed->partition);
    if ((failed->flags & BPS_FLAG_KEEPS) != 0) {
        return; /* nobody else takes part in it */
    }
    poison.type = BPS_FRAME_POISON;
    poison.flags = for_group ? BPS_FLAG_GROUP : 0;
    bps_status status =
        !remote->has_heirs ? BPS_OK : bps_kept_fail(&worker->shards->kept, worker->view, remote->index, &poison, text);
    if (status != BPS_OK) {
        bps_worker_fail(worker, BPS_ERR_NOMEM, "out of memory");
    }
}

/* ---- another view ---- */

static void inherit_placed(const struct bps_book *book, uint32_t id, struct bps_placed *placed)
{
    for (uint32_t i = 0; i < placed->n && placed->partition != NULL; i++) {
        uint16_t *shard = &placed->partition[i].shard;
        *shard = book->shard[*shard].lost ? bps_unnamed_shard(book, book, id, i) : *shard;
    }
}

static void inherit_tensors(struct bps_worker *worker)
{
    struct bps_tensor_entry *tensor;
    for (tensor = worker->ids; tensor != NULL; tensor = tensor->by_id.next) {
        if (!tensor->named.unnamed) {
            inherit_placed(&worker->view->book, tensor->id, &tensor->placed);
            inherit_placed(&worker->view->book, tensor->id, &tensor->next);
        }
    }
}

static bool is_at_lost(const struct bps_task *task)
{
    return task->state == BPS_TASK_WAITING && !task->refused && bps_task_on(task)->node->kind == BPS_NODE_PUSH_PULL &&
           bps_push_of(task)->remote->worker->view->book.shard[bps_push_of(task)->remote->index].lost;
}

static void restart_tasks(struct bps_worker *worker)
{
    struct bps_operation *operation;
    TAILQ_FOREACH(operation, &worker->operations, entry) {
        struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
        for (uint32_t i = 0; bps_has_begun(operation) && i < tensor->tasks; i++) {
            if (is_at_lost(&tensor->task[i])) {
                bps_push_restart(&tensor->task[i]);
            }
        }
    }
}

static void let_go(struct bps_remote *remote)
{
    struct bps_worker *worker = remote->worker;
    char why[200];
    remote->retired = true; /* before its links are dropped */
    bps_push_rest(remote);
    drop_lanes(remote);
    worker->opened_links -= worker->phase == BPS_WORKER_JOINING ? remote->opened : 0;
    remote->lanes = 0;
    const char *unkept = remote->unkept != NULL || !remote->bare ? remote->unkept : BARE;
    if (unkept != NULL) {
        snprintf(why, sizeof why, "a server was lost that has %s", unkept);
        bps_worker_fail(worker, BPS_ERR_LOST, why);
    }
}

/* It has said so when the first of its connections to that server ended. */
static bool has_told(const struct bps_worker *worker, uint32_t member)
{
    uint32_t i = 0;
    while (i < worker->shards->remotes &&
           (worker->view->book.shard[i].member != member || !worker->shards->remote[i]->broken)) {
        i++;
    }
    return i < worker->shards->remotes;
}

/* True: there is one that has been there. */
static bool let_all_go(struct bps_worker *worker)
{
    bool any = false;
    char who[128];
    for (uint32_t i = 0; i < worker->shards->remotes && worker->failure == BPS_OK; i++) {
        struct bps_remote *remote = worker->shards->remote[i];
        if (worker->view->book.shard[i].lost && !remote->retired) {
            any = true;
            if (!has_told(worker, worker->view->book.shard[i].member)) {
                bps_member_text(&worker->view->book.member[worker->view->book.shard[i].member], who, sizeof who);
                bps_warn(LOG, "%s was lost, as the scheduler reports; the others take over its tensors", who);
            }
            let_go(remote);
        }
    }
    return any;
}

void bps_remotes_inherit(struct bps_worker *worker)
{
    struct bps_kept *kept, *next;
    bool any = worker->shards != NULL && let_all_go(worker);
    if (worker->shards != NULL && worker->failure == BPS_OK) {
        suspect_again(worker);
    }
    if (!any || worker->failure != BPS_OK) {
        return;
    }
    worker->shards->lost_in = worker->view->book.view;
    inherit_tensors(worker);
    bps_remotes_find_heirs(worker);
    restart_tasks(worker);
    bps_value_copies_inherit(worker);
    HASH_ITER(hh, worker->shards->kept.of, kept, next) {
        announce(worker, kept);
    }
    for (uint32_t i = 0; i < worker->shards->remotes; i++) {
        struct bps_remote *remote = worker->shards->remote[i];
        if (worker->view->book.shard[i].lost) {
            bps_assert(bps_heap_top(&remote->queue) == NULL);
            worker->shards->lost(worker, remote);
        }
    }
}
