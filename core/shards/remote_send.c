/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote_send.c - what a worker sends to the shards, and when.
 *
 * Each shard has one queue of tasks, ordered by urgency, that all lanes to it draw from. The transport asks
 * for the next slice when it can really send one; so a more urgent tensor overtakes a larger one between two
 * slices. The window (window.h) keeps the shards together: one that is too far ahead gets nothing, and is
 * kicked when the others have followed. The credit (credit.h) keeps the workers together: a shard that has not
 * answered what it got gets no more, and is kicked when it answers.
 *
 * A transport that was told BPS_AGAIN asks again only when it is kicked. So there is one rule: a queue whose most
 * urgent task may be sent, and a transport that does not know: never. All that can change the one or the other
 * (a task that comes or goes, an answer, another shard's place) ends with update(), which keeps it; bps_assert()
 * looks after each event.
 */
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "flow/traced.h"
#include "shards/shards.h"

#define LOG      "worker"
#define PATIENCE (50 * BPS_MS) /* without an answer from a shard, after which it gets more */

/* The transport will ask for a slice, on every lane. */
static void tell(struct bps_remote *remote)
{
    if (!remote->told) {
        remote->told = true;
        for (uint32_t i = 0; i < remote->lanes; i++) {
            bps_link_kick(&remote->lane[i].link);
        }
    }
}

/* The rule that is told at the top, of all shards. */
static void check_told(struct bps_worker *worker)
{
    bool fine = worker->failure == BPS_OK && worker->shards->verdict == BPS_OK;
    for (uint32_t i = 0; i < worker->shards->remotes && fine; i++) {
        const struct bps_remote *remote = worker->shards->remote[i];
        const struct bps_window_shard *shard = &worker->shards->window.shard[i];
        bool has = bps_heap_top(&remote->queue) != NULL && !remote->broken;
        bps_assert(shard->waits == (has && !remote->starved && !remote->making));
        bps_assert(!remote->starved || worker->shards->patience != NULL);
        bps_assert(!shard->waits || remote->told || shard->blocked_by != BPS_WINDOW_NONE);
    }
}

static int32_t priority_of(const struct bps_task *task)
{
    return task->tensor->operation.request.priority;
}

/* Asks for what others bring, and brings nothing. */
static bool is_request(const struct bps_task *task)
{
    const struct bps_roles *roles = &task->roles;
    return !bps_sums(roles) && !bps_tensor_speaks_for(task->tensor, roles->from);
}

/* Of the payload of that slice. */
static uint32_t pushed_bytes(const struct bps_task *task, uint32_t index)
{
    return is_request(task) ? 0 : bps_push_of(task)->payload->bytes(task, index);
}

static void on_patience(void *arg);

/* Looks from time to time at shards that have no credit. False: no memory for that. */
static bool have_patience(struct bps_worker *worker)
{
    if (worker->shards->patience == NULL) {
        worker->shards->patience = bps_loop_timer(worker->loop, PATIENCE, PATIENCE, on_patience, worker);
    }
    return worker->shards->patience != NULL;
}

static bool is_ready(struct bps_task *task, uint32_t index)
{
    const struct bps_payload_ops *payload = bps_push_of(task)->payload;
    return payload->ready == NULL || payload->ready(task, index);
}

/* Whether the next slice of the most urgent task can be sent. The one behind it is made meanwhile, but no more. */
static bool make_ready(struct bps_remote *remote, struct bps_task *task)
{
    uint32_t index = bps_push_of(task)->sent;
    bool ready = is_ready(task, index), last = index + 1 == bps_push_of(task)->slices || is_request(task);
    struct bps_task *other = bps_heap_second(&remote->queue);
    if (!last) {
        is_ready(task, index + 1);
    } else if (other != NULL) {
        is_ready(other, bps_push_of(other)->sent);
    }
    return ready;
}

/*
 * At least two slices, and at most what is configured; but what is unanswered at the end is to be a small part of all
 * that this worker pushes. Blocks are not placed by the weights of shards. What one worker alone contributes waits for
 * no other at the shard: there only what the shard holds for those who get it has a bound.
 */
static bool has_credit(struct bps_remote *remote, const struct bps_task *task)
{
    const struct bps_worker *worker = remote->worker;
    if (!bps_sums(&task->roles) && bps_credit_used(&remote->credit, priority_of(task)) < worker->partition) {
        return true;
    }
    double most = (double)worker->conf->worker.credit, part = 1;
    if (!task->tensor->blocks) {
        double all = (double)worker->declared / BPS_CREDIT_PARTS / worker->shards->remotes;
        most = most < all ? most : all;
        part = remote->part;
    }
    if (worker->conf->worker.credit > 0) {
        bps_credit_set_bounds(&remote->credit, (uint64_t)(part * BPS_CREDIT_SLICES * bps_push_of(task)->wire),
                              (uint64_t)(part * most));
    }
    return bps_credit_admits(&remote->credit, priority_of(task), pushed_bytes(task, bps_push_of(task)->sent));
}

/* The record belongs to the step of the task that waits, when it begins to. */
static void trace_credit(struct bps_remote *remote, const struct bps_task *task, bool starved)
{
    if (starved) {
        remote->starved_step = task->tensor->operation.trace.step;
    }
    if (remote->starved_step != 0) {
        const struct bps_trace_record record = {
            .step = remote->starved_step, .peer = remote->index, .kind = BPS_TRACE_CREDIT, .end = !starved};
        bps_trace_note(&record);
    }
}

/*
 * The queue of the shard, or its credit, has changed: tells the window, and the transports of this shard and of
 * those that were blocked by it. Nobody waits for a shard that has no credit, or whose slice is being made. Where
 * nothing would ever look whether it has credit again, it goes on without.
 */
static void update(struct bps_remote *remote)
{
    struct bps_worker *worker = remote->worker;
    struct bps_task *task = remote->broken ? NULL : bps_heap_top(&remote->queue);
    uint32_t freed;
    bool starved = task != NULL && !has_credit(remote, task) && have_patience(worker);
    if (starved != remote->starved) {
        trace_credit(remote, task, starved);
    }
    remote->starved = starved;
    remote->making = task != NULL && !remote->starved && !make_ready(remote, task);
    if (task == NULL || remote->starved || remote->making) {
        bps_window_rest(&worker->shards->window, remote->index);
    } else {
        bps_window_wait(&worker->shards->window, remote->index, priority_of(task), !bps_sums(&task->roles));
        if (!remote->told && bps_window_admits(&worker->shards->window, remote->index)) {
            tell(remote);
        }
    }
    while ((freed = bps_window_freed(&worker->shards->window, remote->index)) != BPS_WINDOW_NONE) {
        tell(worker->shards->remote[freed]);
    }
    bps_check(check_told(worker));
}

/* Who waits for answers that do not come gets more credit: other workers may have sent something else first. */
static void on_patience(void *arg)
{
    struct bps_worker *worker = arg;
    bool starved = false;
    for (uint32_t i = 0; i < worker->shards->remotes; i++) {
        struct bps_remote *remote = worker->shards->remote[i];
        if (remote->starved && bps_credit_look(&remote->credit)) {
            update(remote);
        }
        starved |= remote->starved;
    }
    if (!starved) { /* or the job has failed meanwhile */
        bps_loop_cancel(worker->loop, worker->shards->patience);
        worker->shards->patience = NULL;
    }
}

uint32_t bps_push_bytes(const struct bps_task *task, uint32_t index)
{
    return bps_partition_bytes(task->bytes, bps_push_of(task)->slice, index);
}

size_t bps_push_more(uint32_t slices)
{
    return slices * (sizeof(struct bps_sent_slice) + sizeof(bool));
}

/* What there is no copy of for an heir of the shard; NULL: of this there is one. */
static const char *why_unkept(const struct bps_task *task)
{
    if (task->direct > 0) {
        return "summed tensors directly in the memory of devices, of which no result is kept";
    }
    if (task->tensor->worker->conf->server.backups > 0 && !task->tensor->named.form.keeps) {
        return "ended rounds whose results have not reached late workers (server.quorum)";
    }
    if (task->tensor->operation.group != NULL) {
        return "summed tensors of process groups, of which no result is kept";
    }
    bool one = bps_sums(&task->roles) && task->roles.to != BPS_EVERYBODY && task->whole > 0;
    return one ? "reduced tensors to one worker, which alone has the result" : NULL;
}

void bps_push_init(struct bps_task *task, const struct bps_payload_ops *payload, uint32_t slice, void *memory)
{
    struct bps_push *push = bps_push_of(task);
    uint32_t slices = bps_partitions(task->bytes, slice);
    bps_assert(push->outstanding == 0 && push->computing == 0);
    *push = (struct bps_push){.payload = payload, .slices = slices, .slice = slice, .wire = slice, .frame = memory};
    push->got = (bool *)(push->frame + slices);
    memset(push->got, false, slices * sizeof *push->got);
    push->remote = bps_remote_of(task->tensor, task->partition);
    push->bare = !push->remote->has_heirs;
    if (push->remote->has_heirs && !task->tensor->named.form.keeps && why_unkept(task) == NULL) {
        push->kept = bps_kept_begin(&push->remote->worker->shards->kept, task, push->remote->index, slice);
        /* without memory its shard is not lost without the job */
    }
}

/* No result of it is kept; where that is only so as its shard had no heirs, see settle.c. */
static void note_unkept(const struct bps_task *task)
{
    const struct bps_push *push = bps_push_of(task);
    const char *why = why_unkept(task);
    if (why != NULL || !push->bare) {
        push->remote->unkept = why != NULL ? why : "had a result that could not be copied, for lack of memory";
    }
}

/* Into the queue of its shard. */
bool bps_push_start(struct bps_task *task)
{
    struct bps_worker *worker = task->tensor->worker;
    struct bps_remote *remote = bps_push_of(task)->remote;
    struct bps_process_group *group = task->tensor->operation.group;
    if (group != NULL && !bps_remote_announce(remote, group)) {
        return false;
    }
    if (bps_push_of(task)->kept == NULL && bps_push_of(task)->copy == NULL) {
        note_unkept(task);
    }
    if (bps_push_of(task)->payload->begin != NULL) {
        bps_push_of(task)->payload->begin(task, remote);
    }
    if (!bps_heap_push(&remote->queue, task->tensor->operation.request.priority, worker->sequence++, task,
                       &task->place)) {
        bps_worker_fail(worker, BPS_ERR_NOMEM, "out of memory");
        return false;
    }
    update(remote);
    return false;
}

void bps_push_header(const struct bps_task *task, uint32_t offset, uint32_t bytes, uint8_t flags,
                     struct bps_header *out)
{
    const struct bps_tensor_entry *tensor = task->tensor;
    const struct bps_operation *operation = &tensor->operation;
    bool moves = !bps_sums(&task->roles); /* that by which all agree about blocks sums nothing of them */
    *out = (struct bps_header){
        .length = bytes,
        .type = BPS_FRAME_PUSH,
        .flags = flags,
        .dtype = (uint8_t)operation->request.dtype,
        .op = bps_op_write(operation->kind, moves ? BPS_WIRE_BROADCAST : operation->op % BPS_OPS),
        .epoch = tensor->worker->job.epoch,
        .tensor = tensor->id,
        .bytes = task->whole,
        .size = task->bytes,
        .slice = tensor->slice,
        .partition = task->partition,
        .round = tensor->named.unnamed ? 0 : tensor->round,
        .offset = offset,
        .root = bps_roles_write(&task->roles),
        .prescale = operation->request.prescale,
        .postscale = operation->request.postscale,
        .priority = operation->request.priority,
        .shape = tensor->named.unnamed ? bps_form_mark(&tensor->named.form) : 0,
        .step = operation->trace.step,
        .view = bps_tensor_view(tensor),
        .group = bps_tensor_group(tensor),
    };
}

static void fail_job(void *arg)
{
    struct bps_worker *worker = arg;
    bps_worker_fail(worker, worker->shards->verdict, worker->shards->why);
}

void bps_push_fail(struct bps_worker *worker, bps_status status, const char *why)
{
    struct bps_shards *shards = worker->shards;
    if (shards->verdict == BPS_OK) {
        shards->verdict = status;
        snprintf(shards->why, sizeof shards->why, "%s", why);
        bps_loop_defer(worker->loop, fail_job, worker);
    }
}

/* The payload of a slice and its header. */
static bps_status make_slice(struct bps_task *task, uint32_t index, struct bps_frame *out, struct bps_report *report)
{
    struct bps_push *push = bps_push_of(task);
    bool request = is_request(task);
    struct bps_header header;
    const void *payload = NULL;
    bps_push_header(task, index * push->slice, pushed_bytes(task, index), request ? BPS_FLAG_EMPTY : 0, &header);
    header.flags |= push->flags | (task->for_group ? BPS_FLAG_GROUP : 0);
    if (task->tensor->named.unnamed && header.group == 0) { /* the first call of its kind that has not ended here */
        header.round = task->tensor->worker->over[bps_unnamed_kind(header.tensor)].next & BPS_ID_NUMBER;
    }
    if (task->tensor->named.form.keeps) {
        header.view = task->tensor->worker->shards->lost_in;
    }
    header.last = task->for_group ? task->last : 0;
    header.late = task->for_group ? task->late : 0;
    bps_status status = request ? BPS_OK : push->payload->make(task, index, &header, &payload, report);
    if (status != BPS_OK) {
        return status;
    }
    struct bps_sent_slice *sent = &push->frame[index];
    sent->task = task;
    bps_header_encode(&header, sent->header);
    *out = (struct bps_frame){.header = sent->header, .payload = payload, .bytes = header.length, .cookie = sent};
    return BPS_OK;
}

/* A shard that was lost has answered some slices. False: nothing is left to be sent. */
static bool skip_answered(const struct bps_task *task)
{
    struct bps_push *push = bps_push_of(task);
    uint32_t n = is_request(task) ? 1 : push->slices;
    while (push->sent < n && push->got[push->sent]) {
        push->sent++;
    }
    return push->sent < n;
}

bps_status bps_remote_next(void *owner, struct bps_link *link, struct bps_frame *out)
{
    struct bps_remote_lane *lane = owner;
    struct bps_remote *remote = lane->remote;
    struct bps_worker *worker = remote->worker;
    struct bps_task *task = bps_heap_top(&remote->queue);
    struct bps_report report;
    (void)link;
    if (task == NULL || remote->starved || remote->making ||
        !bps_window_admits(&worker->shards->window, remote->index) || worker->shards->verdict != BPS_OK) {
        remote->told = false;
        return BPS_AGAIN;
    }
    bps_status status = make_slice(task, bps_push_of(task)->sent, out, &report);
    if (status != BPS_OK) {
        remote->told = false;
        bps_push_of(task)->payload->refuse(task, status, report.text);
        return BPS_AGAIN;
    }
    struct bps_push *push = bps_push_of(task);
    bps_traced_slice(task, BPS_TRACE_PUSH, remote->index, push->sent * push->slice, out->bytes, false);
    push->sent++;
    if (!skip_answered(task)) {
        bps_heap_pop(&remote->queue);
    }
    bps_window_sent(&worker->shards->window, remote->index, BPS_HEADER_BYTES + out->bytes);
    bps_credit_sent(&remote->credit, priority_of(task), out->bytes, bps_now());
    worker->shards->pushed.all += out->bytes;
    worker->shards->pushed.uneven += task->tensor->operation.kind == BPS_KIND_PUSH_PULL ? 0 : out->bytes;
    update(remote);
    push->outstanding++;
    return BPS_OK;
}

static void check_push(const struct bps_task *task)
{
    const struct bps_push *push = bps_push_of(task);
    uint32_t got = 0;
    for (uint32_t i = 0; i < push->slices; i++) {
        got += push->got[i];
    }
    bps_assert(task->state != BPS_TASK_IDLE && push->payload != NULL);
    bps_assert(push->slices == bps_partitions(task->bytes, push->slice) && push->wire > 0);
    bps_assert(push->sent <= push->slices && push->answered <= got && got <= push->slices);
    bps_assert(push->computing <= push->slices && (push->payload->ready != NULL || push->computing == 0));
    bps_assert(push->outstanding <= push->sent + push->slices - got);
}

/* Transport or pool have let go of a slice, or one has come: is the task's exchange with the shard over? */
static void check_over(struct bps_task *task)
{
    const struct bps_push *push = bps_push_of(task);
    bps_check(check_push(task));
    bool has_result = push->answered == push->slices;
    if (push->outstanding == 0 && push->computing == 0 && (task->failed || has_result) && !push->spoilt) {
        if (push->finish != NULL) {
            push->finish(task);
        }
        bps_task_done(task, BPS_OK, NULL);
    }
}

void bps_remote_sent(void *owner, struct bps_link *link, void *cookie)
{
    const struct bps_remote_lane *lane = owner;
    const struct bps_sent_slice *sent = cookie;
    struct bps_task *task = sent->task;
    struct bps_push *push = bps_push_of(task);
    uint32_t index = (uint32_t)(sent - push->frame);
    (void)link;
    bps_traced_slice(task, BPS_TRACE_PUSH, lane->remote->index, index * push->slice, 0, true);
    bps_assert(push->outstanding > 0);
    push->outstanding--;
    check_over(task);
}

void bps_push_settled(struct bps_task *task, uint32_t index, bps_status status, const char *text)
{
    struct bps_worker *worker = task->tensor->worker;
    struct bps_push *push = bps_push_of(task);
    bps_assert(push->got[index]);
    push->answered++;
    if (status != BPS_OK && !task->failed) {
        push->spoilt = true;
        bps_push_fail(worker, status, text);
    }
    check_over(task);
}

/* The credit knows how much the path to the shard holds. */
static void note_path(struct bps_remote *remote)
{
    const struct bps_transport_ops *transport = remote->transport->ops;
    struct bps_channel *channel = remote->lane[0].link.channel;
    if (channel != NULL) {
        BPS_CALLING(remote->transport, "round_trip", NULL);
        bps_credit_set_way(&remote->credit, transport->round_trip(channel));
    }
}

/* A slice of the result is there. Who gets nothing has brought it. */
static void keep_slice(struct bps_task *task, uint32_t index)
{
    const struct bps_push *push = bps_push_of(task);
    struct bps_kept_store *store = &push->remote->worker->shards->kept;
    if (push->kept == NULL) {
        return;
    }
    uint32_t own = bps_push_bytes(task, index);
    const struct bps_roles *roles = &task->roles;
    if (!bps_sums(roles) && bps_tensor_speaks_for(task->tensor, roles->from) && own > 0) {
        void *place = bps_kept_place(store, push->kept, index, own);
        if (place == NULL) {
            bps_push_fail(push->remote->worker, BPS_ERR_NOMEM, "out of memory");
            return;
        }
        memcpy(place, bps_task_payload(task, index * push->slice), own);
        push->kept->now.slice[index].bytes = own;
    }
    bps_kept_whole(store, push->kept, index, push->answer);
}

void bps_remote_answered(struct bps_task *task, uint32_t index)
{
    struct bps_remote *remote = bps_push_of(task)->remote;
    struct bps_push *push = bps_push_of(task);
    struct bps_report report;
    report.text[0] = '\0';
    bps_assert(index < push->sent || is_request(task));
    bps_assert(!push->got[index]);
    push->got[index] = true;
    bps_traced_slice(task, BPS_TRACE_RESULT, remote->index, index * push->slice, 0, true);
    bps_status status = BPS_OK;
    if (!task->failed) {
        if (bps_credit_answered(&remote->credit, priority_of(task), pushed_bytes(task, index), bps_now())) {
            note_path(remote);
        }
        if (remote->starved) {
            update(remote);
        }
        status = push->payload->settle != NULL ? push->payload->settle(task, index, &report) : BPS_OK;
        keep_slice(task, index);
    }
    if (status != BPS_INPROGRESS) {
        bps_push_settled(task, index, status, report.text);
    }
}

void bps_remote_placed(struct bps_task *task, uint32_t index)
{
    struct bps_push *push = bps_push_of(task);
    bps_assert(push->outstanding > 0);
    push->outstanding--;
    bps_remote_answered(task, index);
}

void bps_push_made(struct bps_task *task)
{
    if (!task->failed) {
        update(bps_push_of(task)->remote);
    }
    check_over(task);
}

/* What was sent and is not answered never will be. */
static void give_up(struct bps_task *task)
{
    struct bps_remote *remote = bps_push_of(task)->remote;
    const struct bps_push *push = bps_push_of(task);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < push->sent; i++) {
        bytes += push->got[i] ? 0 : pushed_bytes(task, i);
    }
    if (bytes > 0) {
        bps_credit_given_up(&remote->credit, priority_of(task), bytes);
        if (remote->starved) {
            update(remote);
        }
    }
}

void bps_push_withdraw(struct bps_task *task)
{
    struct bps_remote *remote = bps_push_of(task)->remote;
    if (bps_heap_remove(&remote->queue, &task->place)) {
        update(remote);
    }
}

void bps_push_cancel(struct bps_task *task)
{
    bps_push_withdraw(task);
    give_up(task);
    check_over(task);
}

void bps_push_rest(struct bps_remote *remote)
{
    remote->broken = true;
    bps_credit_init(&remote->credit, 0, 0);
    update(remote);
}

void bps_push_restart(struct bps_task *task)
{
    struct bps_push *push = bps_push_of(task);
    bool queued = bps_heap_remove(&push->remote->queue, &task->place), withdrawn = !queued && push->sent < push->slices;
    push->outstanding = 0; /* no link has any of it */
    push->remote = bps_remote_of(task->tensor, task->partition);
    if (task->failed) {
        check_over(task);
        return;
    }
    withdrawn &= !is_request(task);
    push->sent = 0;
    if (is_request(task)) { /* one for all of it */
        memset(push->got, false, push->slices * sizeof *push->got);
        push->answered = 0;
        if (push->kept != NULL) {
            bps_kept_again(push->kept);
        }
    }
    if (!withdrawn && skip_answered(task)) {
        bps_push_start(task);
    }
}

/* No link is left; only the pool may still have slices. */
void bps_push_abandon(struct bps_task *task)
{
    struct bps_push *push = bps_push_of(task);
    task->failed = true;
    push->outstanding = 0;
    push->spoilt = false;
    check_over(task);
}
