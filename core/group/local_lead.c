/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local_lead.c - the steps of the leader of a partition in its group: takes contributions, hands the sum on or out.
 *
 * The engine calls back when a sum is there. If all who take part are in the group that is the result, written to
 * everybody's memory already; else it lies in our own tensor, goes through the network as the group's
 * contribution, and comes back there.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "group/local.h"
#include "plugin/returned.h"
#include "plugin/use.h"
#include "shards/shards.h"
#include "wire/sink.h"

/* Tags of cookies; links use the lowest bit, tasks none. */
#define SLICE_COOKIE  2u
#define RETURN_COOKIE 4u
#define TAGS          6u

/* Of a task that this worker leads, and of one whose result it hands out. */
struct lead {
    struct bps_loan loan;      /* of this worker to itself */
    struct bps_sum_slice *sum; /* while the network has it */
    uint32_t outstanding;      /* frames for others whose payload lies in the task's tensor */
};

static const struct bps_step_ops lead_for_network;

static struct lead *lead_of(const struct bps_task *task)
{
    return bps_task_context(task);
}

/* By the `owner` of an engine. */
static struct bps_local *local_of(const void *served)
{
    return ((const struct bps_served *)served)->host;
}

static struct bps_task *task_of(struct bps_local *local, const struct bps_sum_slice *slice)
{
    const struct bps_header header = {.tensor = slice->id.tensor,
                                      .partition = slice->id.partition,
                                      .round = slice->id.round,
                                      .group = ((const struct bps_served *)bps_sum_owner(slice))->group};
    return bps_task_find(local->worker, &header);
}

/* True if a worker of the group gets the slice's bytes in a frame, because it has lent nothing. */
static bool sends_payload(const struct bps_sum_slice *slice, uint32_t rank)
{
    return bps_sum_loan(slice, rank) == NULL && slice->payload != NULL && bps_sum_wants_data(slice, rank);
}

/* The task in whose tensor the bytes of that frame lie; NULL: there is none, or they are the engine's. */
static struct bps_task *payload_owner(struct bps_local *local, const struct bps_sum_slice *slice, uint32_t rank)
{
    struct bps_task *task = sends_payload(slice, rank) ? task_of(local, slice) : NULL;
    return task != NULL && task->dst == slice->payload ? task : NULL;
}

/* ---- contributions ---- */

bps_status bps_local_contribution(struct bps_local_peer *peer, const struct bps_header *header, struct bps_sink **sink)
{
    bps_assert(peer->rank != peer->local->worker->job.rank);
    *sink = &peer->cursor.sink;
    if (peer->local->dropped) {
        bps_sink_discard(*sink);
        return BPS_OK;
    }
    struct bps_sum *sum = bps_local_engine(peer->local, header->group);
    bps_status status = sum != NULL ? bps_frame_push(sum, peer->rank, header, &peer->cursor) : BPS_ERR_PROTOCOL;
    if (status == BPS_OK && header->length == 0 && peer->cursor.round != NULL) {
        bps_sum_take(*sink, 0, NULL, 0);
    }
    return status;
}

static bool contribute(struct bps_task *task)
{
    struct bps_worker *worker = task->tensor->worker;
    struct bps_sum_cursor *cursor = &worker->local->cursor;
    struct lead *lead = lead_of(task);
    struct bps_header header;
    *lead = (struct lead){.outstanding = 0};
    struct bps_process_group *group = task->tensor->operation.group;
    if (worker->local->dropped || !bps_local_announce(&worker->local->peer[worker->local->place], group)) {
        return false; /* it ends with the job */
    }
    bps_local_push_header(task, 0, &header);
    void *answer = bps_local_gets(task) ? task->dst : NULL;
    lead->loan =
        (struct bps_loan){.size = sizeof lead->loan, .data = task->src, .answer = answer, .bytes = header.length};
    bps_status status =
        bps_frame_push(bps_local_engine(worker->local, header.group), worker->job.rank, &header, cursor);
    if (status == BPS_OK && cursor->round != NULL) {
        status = header.length > 0 ? bps_sum_lend(&cursor->sink, &lead->loan) : BPS_AGAIN;
        if (status == BPS_AGAIN) {
            bps_sum_take(&cursor->sink, 0, task->src, header.length);
            status = BPS_OK;
        }
    }
    if (status != BPS_OK) {
        bps_worker_fail(worker, status, "could not contribute to the sum of this host");
    }
    return false;
}

/* ---- sums and results ---- */

static void own_result(struct bps_local *local, struct bps_sum_slice *slice)
{
    struct bps_task *task = task_of(local, slice);
    if (task != NULL && sends_payload(slice, local->worker->job.rank)) {
        memcpy(task->dst, slice->payload, slice->bytes);
    }
    bps_sum_delivered(slice);
    if (task != NULL && lead_of(task)->outstanding == 0) {
        bps_task_done(task, BPS_OK, NULL); /* else when the last frame is out */
    }
}

static void lead_on_finished(void *owner, struct bps_sum_slice *slice)
{
    bps_frame_result(slice, local_of(owner)->worker->job.epoch, ((const struct bps_served *)owner)->group);
}

static void lead_on_result(void *owner, uint32_t rank, struct bps_sum_slice *slice)
{
    struct bps_local *local = local_of(owner);
    struct bps_local_peer *peer = bps_local_peer_of(local, rank);
    if (rank == local->worker->job.rank) {
        own_result(local, slice);
        return;
    }
    if (peer->link == NULL) {
        bps_sum_delivered(slice);
        return;
    }
    struct bps_task *task = payload_owner(local, slice, rank);
    if (task != NULL) {
        lead_of(task)->outstanding++;
    }
    if (!bps_heap_push(&peer->results, slice->priority, local->worker->sequence++, slice, NULL)) {
        bps_worker_fail(local->worker, BPS_ERR_NOMEM, "out of memory");
        return;
    }
    bps_local_kick(peer);
}

static void on_summed(void *owner, struct bps_sum_slice *slice)
{
    struct bps_local *local = local_of(owner);
    struct bps_task *task = task_of(local, slice);
    if (task == NULL) {
        return; /* the job has failed meanwhile */
    }
    bps_assert(slice->payload == NULL || slice->bytes > 0);
    bps_assert(bps_task_step(task)->start == lead_for_network.start && task->state == BPS_TASK_WAITING);
    lead_of(task)->sum = slice;
    if (slice->payload != NULL) {
        task->src = task->dst;
    }
    task->for_group = true;
    bps_sum_last(slice, &task->last, &task->late);
    task->divisor = bps_local_divisor(&task->tensor->operation);
    bps_task_done(task, BPS_OK, NULL);
}

/* One pass in each turn of the loop: in between frames are sent, and the peers get to work. */
static void on_work(void *arg)
{
    struct bps_local *local = arg;
    local->working = !local->dropped && bps_local_work(local);
    if (local->working) {
        bps_loop_defer_for(local->worker->loop, local, on_work, local);
    }
}

static void on_due(void *owner)
{
    struct bps_local *local = local_of(owner);
    if (!local->working) {
        local->working = true;
        bps_loop_defer_for(local->worker->loop, local, on_work, local);
    }
}

/* ---- failures ---- */

static void lead_on_notice(void *owner, uint32_t rank, const struct bps_notice *notice)
{
    struct bps_local *local = local_of(owner);
    struct bps_header header = bps_notice_header(notice, local->worker->job.epoch, 0);
    header.group = ((const struct bps_served *)owner)->group;
    if (local->dropped) {
        return; /* the operations end with the job */
    }
    if (rank != local->worker->job.rank) {
        bps_local_tell(bps_local_peer_of(local, rank), &header, notice->text);
    } else if (notice->kind == BPS_NOTICE_POISON) {
        bps_local_exchange_poison(local, notice);
    } else {
        bps_round_notice(local->worker, &header, notice->text);
    }
}

static bool lead_on_failed(void *owner, const struct bps_notice *notice)
{
    struct bps_local *local = local_of(owner);
    const uint8_t flags = BPS_FLAG_GROUP | BPS_FLAG_ANSWER;
    struct bps_header poison = bps_notice_header(notice, local->worker->job.epoch, flags);
    poison.type = BPS_FRAME_POISON;
    if (local->dropped || bps_remote_forward_poison(local->worker, &poison, notice->text)) {
        return true;
    }
    poison.flags = BPS_FLAG_GROUP; /* our group is not made to wait for this worker to declare the tensor */
    return !bps_local_keep(local, &local->unsent, &poison, notice->text);
}

static void on_released(void *owner, uint32_t rank, struct bps_loan *loan)
{
    struct bps_local *local = local_of(owner);
    struct bps_local_peer *peer = bps_local_peer_of(local, rank);
    const struct bps_header header = {.type = BPS_FRAME_RETURNED, .epoch = local->worker->job.epoch};
    if (rank == local->worker->job.rank || peer->link == NULL || local->dropped) {
        return;
    }
    struct bps_return *back = calloc(1, sizeof *back);
    if (back == NULL) {
        bps_worker_fail(local->worker, BPS_ERR_NOMEM, "out of memory");
        return;
    }
    back->loan = loan;
    bps_header_encode(&header, back->header);
    STAILQ_INSERT_TAIL(&peer->returns, back, entry);
    bps_local_kick(peer);
}

bps_status bps_local_fail(struct bps_local *local, const struct bps_header *header, const char *text)
{
    return bps_frame_fail(local->all.sum, header, text);
}

/* ---- loans that are not mapped ---- */

/*
 * Out of reach: the peer has ended, which its link will tell soon, too.
 * The job is going to fail with these words.
 */
static bps_status lead_lose(struct bps_local_peer *peer, const char *callback, bps_status returned)
{
    bps_status status = bps_returned(peer->local->transport, callback, BPS_OK, returned, NULL);
    const struct bps_worker *worker = peer->local->worker;
    char who[128], why[200];
    if (status != BPS_OK && !peer->local->dropped) {
        bps_member_text(&worker->view->book.member[peer->rank], who, sizeof who);
        snprintf(why, sizeof why, "%s was lost: its memory is no longer accessible", who);
        peer->local->dropped = true;
        bps_worker_suspect(peer->local->worker, BPS_ERR_LOST, why);
    }
    return status;
}

static bps_status on_loan_read(void *owner, uint32_t rank, struct bps_loan *loan, uint32_t offset, void *to,
                               uint32_t bytes)
{
    struct bps_local *local = local_of(owner);
    struct bps_local_peer *peer = bps_local_peer_of(local, rank);
    const struct bps_transport_ops *transport = local->transport->ops;
    BPS_CALLING(local->transport, "loan_read", NULL);
    return lead_lose(peer, "loan_read",
                     peer->link != NULL ? transport->loan_read(peer->link->channel, loan, offset, to, bytes)
                                        : BPS_ERR_LOST);
}

static bps_status on_loan_write(void *owner, uint32_t rank, struct bps_loan *loan, uint32_t offset, const void *from,
                                uint32_t bytes)
{
    struct bps_local *local = local_of(owner);
    struct bps_local_peer *peer = bps_local_peer_of(local, rank);
    const struct bps_transport_ops *transport = local->transport->ops;
    BPS_CALLING(local->transport, "loan_write", NULL);
    return lead_lose(peer, "loan_write",
                     peer->link != NULL ? transport->loan_write(peer->link->channel, loan, offset, from, bytes)
                                        : BPS_ERR_LOST);
}

/* ---- sending ---- */

bps_status bps_local_next_result(struct bps_local_peer *peer, struct bps_frame *out)
{
    struct bps_return *back = STAILQ_FIRST(&peer->returns);
    if (back != NULL) {
        STAILQ_REMOVE_HEAD(&peer->returns, entry);
        *out = (struct bps_frame){
            .header = back->header,
            .returns = back->loan,
            .cookie = (void *)((uintptr_t)back | RETURN_COOKIE),
        };
        return BPS_OK;
    }
    struct bps_sum_slice *slice = bps_heap_pop(&peer->results);
    if (slice == NULL) {
        return BPS_AGAIN;
    }
    bool payload = sends_payload(slice, peer->rank);
    *out = (struct bps_frame){
        .header = payload ? slice->header : slice->other_header,
        .payload = payload ? slice->payload : NULL,
        .bytes = payload ? slice->bytes : 0,
        .cookie = (void *)((uintptr_t)slice | SLICE_COOKIE),
        .returns = bps_sum_loan(slice, peer->rank),
    };
    return BPS_OK;
}

static void slice_sent(struct bps_local_peer *peer, struct bps_sum_slice *slice)
{
    struct bps_local *local = peer->local;
    struct bps_task *task = payload_owner(local, slice, peer->rank);
    bps_sum_delivered(slice);
    bps_assert(task == NULL || lead_of(task)->outstanding > 0);
    if (task != NULL && --lead_of(task)->outstanding == 0) {
        bps_task_done(task, BPS_OK, NULL);
    }
}

bool bps_local_result_sent(struct bps_local_peer *peer, void *cookie)
{
    uintptr_t tag = (uintptr_t)cookie & TAGS;
    void *item = (void *)((uintptr_t)cookie & ~(uintptr_t)TAGS);
    if (tag == SLICE_COOKIE) {
        slice_sent(peer, item);
    } else if (tag == RETURN_COOKIE) {
        free(item);
    }
    return tag != 0;
}

/* ---- the steps ---- */

static bool leads(const struct bps_tensor_entry *tensor, uint32_t partition)
{
    return bps_local_sums(tensor, partition) && bps_local_leads(tensor, partition);
}

static bool leads_all(const struct bps_tensor_entry *tensor, uint32_t partition)
{
    return leads(tensor, partition) && bps_local_ends(tensor);
}

static void lead_cancel(struct bps_task *task)
{
    const struct lead *lead = lead_of(task);
    if (lead->outstanding == 0) {
        bps_task_done(task, BPS_OK, NULL);
    }
}

static bool lead_refuse(struct bps_tensor_entry *tensor, uint32_t partition, uint64_t bytes, bps_status status,
                        const char *text, bool answer)
{
    const struct bps_worker *worker = tensor->worker;
    const struct bps_header header = bps_poison_header(tensor, partition, bytes, status, answer ? BPS_FLAG_ANSWER : 0);
    if (bps_local_announce(&worker->local->peer[worker->local->place], tensor->operation.group)) {
        bps_frame_poison(bps_local_engine(worker->local, header.group), worker->job.rank, &header, text);
    }
    return true;
}

static bool hand_out(struct bps_task *task)
{
    const struct lead *led = bps_way_context(task->way, &lead_for_network);
    const struct bps_local *local = task->tensor->worker->local;
    struct lead *lead = lead_of(task);
    bps_assert(lead->outstanding == 0);
    if (local->dropped) {
        return false; /* it ends with the job: a lost peer's loan is gone */
    }
    lead->outstanding = 1;
    bps_sum_distribute(led->sum, task->bytes > 0 ? task->dst : NULL);
    lead->outstanding--;
    /* Else it goes on when the last frame is out; or ends with the job, or has ended, if that has failed meanwhile. */
    return lead->outstanding == 0 && !local->dropped;
}

/* The others of the group wait for a result that does not come. Of this worker it is the end as well. */
static bool refuse_result(struct bps_tensor_entry *tensor, uint32_t partition, uint64_t bytes, bps_status status,
                          const char *text, bool answer)
{
    struct bps_task *task = &tensor->task[partition];
    struct bps_header header;
    (void)bytes;
    (void)answer;
    bps_push_header(task, 0, 0, 0, &header);
    header.type = BPS_FRAME_FAILED;
    header.root = (uint32_t)-status;
    header.flags = BPS_FLAG_SUMMED;
    task->failed = true; /* it need not hear it */
    bps_local_fail(tensor->worker->local, &header, text);
    return false;
}

/* The sum of the group is that of the job, or of a process group. */
static const struct bps_step_ops lead_for_all = {
    .name = "lead",
    .takes = "the share of the partitions that this worker leads, where all who take part are on this host",
    .crosses = true,
    .until = BPS_NODE_LOCAL_BROADCAST,
    .context = sizeof(struct lead),
    .probe = leads_all,
    .start = contribute,
    .cancel = lead_cancel,
    .refuse = lead_refuse,
};

static const struct bps_step_ops lead_for_network = {
    .name = "lead for the network",
    .takes = "the same, where there are some on other hosts",
    .crosses = true,
    .context = sizeof(struct lead),
    .probe = leads,
    .start = contribute,
    .cancel = lead_cancel,
    .refuse = lead_refuse,
};

static const struct bps_step_ops local_broadcast = {
    .name = "hand out",
    .takes = "what came back from the network",
    .crosses = true,
    .context = sizeof(struct lead),
    .probe = bps_local_sums,
    .start = hand_out,
    .cancel = lead_cancel,
    .refuse = refuse_result,
};

const struct bps_step_ops *const bps_local_reduce_steps[] = {
    &bps_local_exchange.ops, &lead_for_all, &lead_for_network, &bps_local_lend.ops, NULL,
};
const struct bps_step_ops *const bps_local_broadcast_steps[] = {&local_broadcast, NULL};

/* ---- the engine ---- */

static const struct bps_sum_events events = {
    .finished = lead_on_finished,
    .result = lead_on_result,
    .notice = lead_on_notice,
    .loan_read = on_loan_read,
    .loan_write = on_loan_write,
    .due = on_due,
    .released = on_released,
    .summed = on_summed,
    .failed = lead_on_failed,
    .exchanged = bps_local_exchanged,
};

bps_status bps_local_lead(struct bps_local *local, struct bps_report *report)
{
    struct bps_worker *worker = local->worker;
    const struct bps_book *book = &worker->view->book;
    bps_status status = bps_reducer_open(worker->conf, worker->loop, &worker->reducer, report);
    if (status != BPS_OK) {
        return status;
    }
    local->group_of = bps_book_groups(book);
    if (local->group_of == NULL) {
        return BPS_ERR_NOMEM;
    }
    local->all.host = local;
    local->groups.config = &local->config;
    local->config = (struct bps_sum_config){
        .workers = book->workers,
        .partition = worker->partition,
        .slice = worker->partition,
        .group = local->group_of,
        .only = book->member[worker->job.rank].group,
        .leader = worker->job.rank,
        .partial = !local->final,
        .rank_order = true,
        .ops = {[BPS_KEY_EXCHANGE] = local->exchanges ? &bps_exchange_ops : NULL},
        .reducer = worker->reducer,
        .events = &events,
        .owner = &local->all,
    };
    status = bps_sum_new(&local->config, &local->all.sum);
    local->config.ops[BPS_KEY_EXCHANGE] = NULL; /* what is exchanged has a name */
    local->config.partial = false;              /* all members of a process group that comes here are on this host */
    return status;
}
