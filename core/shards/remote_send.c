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
    for (uint32_t i = 0; i < worker->shards->remotes && worker->failure == BPS_OK; i++) {
        const struct bps_remote *remote = &worker->shards->remote[i];
        const struct bps_window_shard *shard = &worker->shards->window.shard[i];
        bps_assert(shard->waits == (bps_heap_top(&remote->queue) != NULL && !remote->starved && !remote->making));
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
    const struct bps_roles *roles = &task->tensor->operation.roles;
    return !bps_sums(roles) && !bps_tensor_speaks_for(task->tensor, roles->from);
}

/* Of the payload of that slice. */
static uint32_t pushed_bytes(const struct bps_task *task, uint32_t index)
{
    return is_request(task) ? 0 : bps_push_of(task)->payload->bytes(task, index);
}

/* Slices that are out, of a task that a shard's queue has. */
static uint32_t sent_of(const struct bps_task *task)
{
    return bps_push_of(task)->sent;
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

static void on_made(struct bps_task *task, uint32_t index, bps_status status, const char *text);

static bool is_ready(struct bps_task *task, uint32_t index)
{
    const struct bps_payload_ops *payload = bps_push_of(task)->payload;
    return payload->ready == NULL || payload->ready(task, index, on_made);
}

/* Whether the next slice of the most urgent task can be sent. The one behind it is made meanwhile, but no more. */
static bool make_ready(struct bps_remote *remote, struct bps_task *task)
{
    uint32_t index = sent_of(task);
    bool ready = is_ready(task, index), last = index + 1 == bps_push_slices(task) || is_request(task);
    struct bps_task *other = bps_heap_second(&remote->queue);
    if (!last) {
        is_ready(task, index + 1);
    } else if (other != NULL) {
        is_ready(other, sent_of(other));
    }
    return ready;
}

/*
 * At least two slices, and at most what is configured; but what is unanswered at the end is to be a small part of all
 * that this worker pushes.
 */
static void bound_credit(struct bps_remote *remote, double slice)
{
    const struct bps_worker *worker = remote->worker;
    double all = (double)worker->declared / BPS_CREDIT_PARTS / worker->shards->remotes;
    double most = (double)worker->conf->worker.credit;
    most = most < all ? most : all;
    if (worker->conf->worker.credit > 0) {
        bps_credit_set_bounds(&remote->credit, (uint64_t)(remote->part * BPS_CREDIT_SLICES * slice),
                              (uint64_t)(remote->part * most));
    }
}

static bool has_credit(struct bps_remote *remote, const struct bps_task *task)
{
    const struct bps_push *push = bps_push_of(task);
    double slice = push->coded != NULL ? (double)remote->worker->slice : push->slice;
    bound_credit(remote, slice);
    return bps_credit_admits(&remote->credit, priority_of(task), pushed_bytes(task, sent_of(task)));
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
    struct bps_task *task = bps_heap_top(&remote->queue);
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
        bps_window_wait(&worker->shards->window, remote->index, priority_of(task));
        if (!remote->told && bps_window_admits(&worker->shards->window, remote->index)) {
            tell(remote);
        }
    }
    while ((freed = bps_window_freed(&worker->shards->window, remote->index)) != BPS_WINDOW_NONE) {
        tell(&worker->shards->remote[freed]);
    }
}

static void resume_starved(struct bps_remote *remote)
{
    if (remote->starved) {
        update(remote);
    }
}

/* Who waits for answers that do not come gets more credit: other workers may have sent something else first. */
static void on_patience(void *arg)
{
    struct bps_worker *worker = arg;
    bool starved = false;
    for (uint32_t i = 0; i < worker->shards->remotes; i++) {
        struct bps_remote *remote = &worker->shards->remote[i];
        if (remote->starved && bps_credit_look(&remote->credit)) {
            update(remote);
        }
        starved |= remote->starved;
    }
    if (!starved) { /* or the job has failed meanwhile */
        bps_loop_cancel(worker->loop, worker->shards->patience);
        worker->shards->patience = NULL;
    }
    check_told(worker);
}

/* Into the queue of its shard. */
static bool enqueue(struct bps_task *task)
{
    struct bps_worker *worker = task->tensor->worker;
    struct bps_remote *remote = bps_remote_of(task->tensor, task->partition);
    if (!bps_heap_push(&remote->queue, task->tensor->operation.request.priority, worker->sequence++, task,
                       &task->place)) {
        bps_worker_fail(worker, BPS_ERR_NOMEM, "out of memory");
        return false;
    }
    update(remote);
    check_told(worker);
    return false;
}

static void set_plain(struct bps_task *task)
{
    uint32_t slice = bps_tensor_slice(task->tensor), slices = bps_partitions(task->bytes, slice);
    struct bps_push *push = bps_push_of(task);
    bps_assert(push->outstanding == 0);
    *push = (struct bps_push){.payload = &bps_payload_plain, .slice = slice, .got = (bool *)(push->slices + slices)};
    memset(push->got, false, slices * sizeof *push->got);
}

/* Too small to be coded; it may have momentum, though. */
static bool is_small(const struct bps_tensor_entry *tensor)
{
    return tensor->path_bytes < tensor->coding->min_bytes;
}

static void set_coded(struct bps_task *task)
{
    const struct bps_tensor_entry *tensor = task->tensor;
    uint32_t slice = bps_coding_slice(tensor->coding, tensor->path_dtype), slices = bps_partitions(task->bytes, slice);
    struct bps_push *push = bps_push_of(task);
    bps_assert(push->outstanding == 0 && push->computing == 0);
    *push = (struct bps_push){.payload = &bps_payload_coded,
                              .slice = slice,
                              .exact = tensor->round < tensor->coding->start || is_small(tensor),
                              .coded = (struct bps_coded_slice *)(push->slices + slices)};
    push->got = (bool *)(push->coded + slices);
    memset(push->coded, 0, slices * (sizeof *push->coded + sizeof *push->got));
}

static bool start_plain(struct bps_task *task)
{
    set_plain(task);
    return enqueue(task);
}

/* A shard must know a coding before anything of it comes, on whichever lane. */
static void tell_codings(struct bps_remote *remote, const struct bps_coding *coding)
{
    struct bps_worker *worker = remote->worker;
    const struct bps_header header = {.type = BPS_FRAME_CODING, .epoch = worker->job.epoch};
    while (remote->codings < coding->number) {
        const char *text = bps_codings_at(&worker->graph->codings, ++remote->codings)->text;
        for (uint32_t i = 0; i < remote->lanes; i++) {
            bps_link_send(&remote->lane[i].link, &header, text, strlen(text));
        }
    }
}

/* The rounds of which this worker measures whether coding pays, and tells all. */
static bool chooses(const struct bps_tensor_entry *tensor)
{
    return tensor->coding->automatic && bps_tensor_speaks_for(tensor, 0);
}

static bool enqueue_coded(struct bps_task *task)
{
    const struct bps_tensor_entry *tensor = task->tensor;
    struct bps_report report = {""};
    bps_status status = bps_coded_prepare(task, &report);
    if (status != BPS_OK) {
        bps_worker_fail(tensor->worker, status, report.text);
        return false;
    }
    tell_codings(bps_remote_of(task->tensor, task->partition), tensor->coding);
    return enqueue(task);
}

static bool start_coded(struct bps_task *task)
{
    struct bps_coding *coding = task->tensor->coding;
    struct bps_push *push = bps_push_of(task);
    bool coded = task->codes || !coding->automatic;
    if (coded) {
        set_coded(task);
    } else {
        set_plain(task);
    }
    push->automatic = coding->automatic;
    if (chooses(task->tensor)) {
        bps_trial_begin(&coding->trial, coded, bps_now());
        push->asks = bps_trial_codes(&coding->trial);
    }
    return coded ? enqueue_coded(task) : enqueue(task);
}

void bps_push_header(const struct bps_task *task, uint32_t offset, uint32_t bytes, uint8_t flags,
                     struct bps_header *out)
{
    const struct bps_tensor_entry *tensor = task->tensor;
    const struct bps_operation *operation = &tensor->operation;
    *out = (struct bps_header){
        .length = bytes,
        .type = BPS_FRAME_PUSH,
        .flags = flags,
        .dtype = (uint8_t)operation->request.dtype,
        .op = (uint8_t)operation->op,
        .epoch = tensor->worker->job.epoch,
        .tensor = tensor->id,
        .bytes = operation->bytes,
        .size = task->bytes,
        .slice = tensor->slice,
        .partition = task->partition,
        .round = tensor->unnamed ? 0 : tensor->round,
        .offset = offset,
        .root = operation->root,
        .prescale = operation->request.prescale,
        .postscale = operation->request.postscale,
        .priority = operation->request.priority,
        .shape = tensor->unnamed ? bps_form_mark(&tensor->form) : 0,
        .step = operation->trace.step,
        .view = bps_tensor_view(tensor),
    };
}

static void fail_job(void *arg)
{
    struct bps_worker *worker = arg;
    bps_worker_fail(worker, worker->shards->verdict, worker->shards->why);
}

/* The job fails, but not within a call of the transport's. */
static void fail_soon(struct bps_worker *worker, bps_status status, const char *why)
{
    struct bps_shards *shards = worker->shards;
    if (shards->verdict == BPS_OK) {
        shards->verdict = status;
        snprintf(shards->why, sizeof shards->why, "%s", why);
        bps_loop_defer(worker->loop, fail_job, worker);
    }
}

/*
 * A slice cannot be made. Without memory the job fails. Else it is the compressor's fault: then the round does, as
 * everybody hears from the shard, and this worker like all others. What is out of the task comes back meanwhile.
 */
static void refuse(struct bps_task *task, bps_status status, const char *why)
{
    struct bps_tensor_entry *tensor = task->tensor;
    struct bps_push *push = bps_push_of(task);
    char text[BPS_TEXT_LIMIT];
    if (status == BPS_ERR_NOMEM) {
        fail_soon(tensor->worker, status, why);
    } else if (!push->refused) {
        struct bps_remote *remote = bps_remote_of(tensor, task->partition);
        push->refused = true;
        bps_heap_remove(&remote->queue, &task->place);
        snprintf(text, sizeof text, "worker %u: %s", tensor->worker->job.rank, why);
        bps_remote_refuse(tensor, task->partition, tensor->operation.bytes, status, text, true);
        update(remote);
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
    header.flags |= task->for_group ? BPS_FLAG_GROUP : 0;
    header.flags |= push->asks ? BPS_FLAG_CODES : 0;
    header.last = task->for_group ? task->last : 0;
    header.late = task->for_group ? task->late : 0;
    bps_status status = request ? BPS_OK : push->payload->make(task, index, &header, &payload, report);
    if (status != BPS_OK) {
        return status;
    }
    struct bps_sent_slice *sent = &push->slices[index];
    sent->task = task;
    bps_header_encode(&header, sent->header);
    *out = (struct bps_frame){.header = sent->header, .payload = payload, .bytes = header.length, .cookie = sent};
    return BPS_OK;
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
    bps_status status = make_slice(task, sent_of(task), out, &report);
    if (status != BPS_OK) {
        remote->told = false;
        refuse(task, status, report.text);
        return BPS_AGAIN;
    }
    struct bps_push *push = bps_push_of(task);
    bps_traced_slice(task, BPS_TRACE_PUSH, remote->index, push->sent * push->slice, out->bytes, false);
    if (++push->sent == (is_request(task) ? 1 : bps_push_slices(task))) {
        bps_heap_pop(&remote->queue);
    }
    bps_window_sent(&worker->shards->window, remote->index, BPS_HEADER_BYTES + out->bytes);
    bps_credit_sent(&remote->credit, priority_of(task), out->bytes, bps_now());
    update(remote);
    push->outstanding++;
    check_told(worker);
    return BPS_OK;
}

/* A round that has gone well has told all alike how the next one goes; after one that has failed nothing changes. */
static void conclude(struct bps_task *task)
{
    const struct bps_push *push = bps_push_of(task);
    struct bps_coding *coding = task->tensor->coding;
    char text[160];
    if (!task->failed) {
        task->codes = push->codes;
    }
    if (chooses(task->tensor)) {
        bps_trial_end(&coding->trial, push->coded != NULL, task->bytes, !task->failed, bps_now());
        if (bps_trial_tell(&coding->trial, text, sizeof text)) {
            bps_info(LOG, "coding by %s %s", coding->text, text);
        }
    }
}

static void finish(struct bps_task *task)
{
    const struct bps_push *push = bps_push_of(task);
    if (push->automatic) {
        conclude(task);
    }
    if (push->payload->release != NULL) {
        push->payload->release(task);
    }
    task->feedback.summed = !task->failed;
    bps_task_done(task, BPS_OK, NULL);
}

static void check_push(const struct bps_task *task)
{
    const struct bps_push *push = bps_push_of(task);
    uint32_t slices = bps_push_slices(task), got = 0;
    for (uint32_t i = 0; i < slices; i++) {
        got += push->got[i];
    }
    bps_assert(task->state != BPS_TASK_IDLE && push->payload != NULL);
    bps_assert(push->sent <= slices && push->answered <= got && got <= slices);
    bps_assert(push->computing <= 2 * slices && (push->coded != NULL || push->computing == 0));
    bps_assert(!push->exact || push->coded != NULL);
}

/* Transport or pool have let go of a slice, or one has come: is the task's exchange with the shard over? */
static void check(struct bps_task *task)
{
    const struct bps_push *push = bps_push_of(task);
    bps_check(check_push(task));
    bool has_result = push->answered == bps_push_slices(task);
    if (push->outstanding == 0 && push->computing == 0 && (task->failed || has_result) && !push->spoilt) {
        finish(task);
    }
}

void bps_remote_sent(void *owner, struct bps_link *link, void *cookie)
{
    const struct bps_remote_lane *lane = owner;
    const struct bps_sent_slice *sent = cookie;
    struct bps_task *task = sent->task;
    struct bps_push *push = bps_push_of(task);
    uint32_t index = (uint32_t)(sent - push->slices);
    (void)link;
    bps_traced_slice(task, BPS_TRACE_PUSH, lane->remote->index, index * push->slice, 0, true);
    bps_assert(push->outstanding > 0);
    push->outstanding--;
    check(task);
}

/* The result of a slice is where it belongs, or cannot be brought there. */
static void settled(struct bps_task *task, uint32_t index, bps_status status, const char *text)
{
    struct bps_worker *worker = task->tensor->worker;
    struct bps_push *push = bps_push_of(task);
    bps_assert(push->got[index]);
    push->answered++;
    if (status != BPS_OK && !task->failed) {
        push->spoilt = true;
        fail_soon(worker, status, text);
    }
    check(task);
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

void bps_remote_answered(struct bps_task *task, uint32_t index)
{
    struct bps_remote *remote = bps_remote_of(task->tensor, task->partition);
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
        resume_starved(remote);
        check_told(remote->worker);
        status = push->payload->settle != NULL ? push->payload->settle(task, index, settled, &report) : BPS_OK;
    }
    if (status != BPS_INPROGRESS) {
        settled(task, index, status, report.text);
    }
}

void bps_remote_placed(struct bps_task *task, uint32_t index)
{
    struct bps_push *push = bps_push_of(task);
    bps_assert(push->outstanding > 0);
    push->outstanding--;
    bps_remote_answered(task, index);
}

/* A slice has been made that was not ready. */
static void on_made(struct bps_task *task, uint32_t index, bps_status status, const char *text)
{
    (void)index;
    if (status != BPS_OK && !task->failed) {
        refuse(task, status, text);
    }
    if (!task->failed) {
        update(bps_remote_of(task->tensor, task->partition));
        check_told(task->tensor->worker);
    }
    check(task);
}

/* What was sent and is not answered never will be. */
static void give_up(struct bps_task *task)
{
    struct bps_remote *remote = bps_remote_of(task->tensor, task->partition);
    const struct bps_push *push = bps_push_of(task);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < push->sent; i++) {
        bytes += push->got[i] ? 0 : pushed_bytes(task, i);
    }
    if (bytes > 0) {
        bps_credit_given_up(&remote->credit, priority_of(task), bytes);
        resume_starved(remote);
        check_told(remote->worker);
    }
}

static void cancel(struct bps_task *task)
{
    struct bps_remote *remote = bps_remote_of(task->tensor, task->partition);
    if (bps_heap_remove(&remote->queue, &task->place)) {
        update(remote);
        check_told(remote->worker);
    }
    give_up(task);
    check(task);
}

/* No link is left; only the pool may still have slices. */
static void abandon(struct bps_task *task)
{
    struct bps_push *push = bps_push_of(task);
    task->failed = true;
    push->outstanding = 0;
    push->spoilt = false;
    check(task);
}

static size_t more_plain(const struct bps_task *task)
{
    return bps_partitions(task->bytes, bps_tensor_slice(task->tensor)) * (sizeof(struct bps_sent_slice) + sizeof(bool));
}

static size_t more_coded(const struct bps_task *task)
{
    const struct bps_tensor_entry *tensor = task->tensor;
    size_t slices = bps_partitions(task->bytes, bps_coding_slice(tensor->coding, tensor->path_dtype));
    size_t coded = slices * (sizeof(struct bps_sent_slice) + sizeof(struct bps_coded_slice) + sizeof(bool));
    size_t plain = tensor->coding->automatic ? more_plain(task) : 0;
    return coded > plain ? coded : plain;
}

static bool takes_coded(const struct bps_tensor_entry *tensor, uint32_t partition)
{
    (void)partition;
    bool sums = tensor->path_op == BPS_SUM || tensor->path_op == BPS_AVERAGE;
    return tensor->coding != NULL && sums && tensor->path_bytes > 0 && (!is_small(tensor) || tensor->coding->momentum);
}

static const struct bps_step_ops push_coded = {
    .name = "push coded",
    .takes = "sums and averages of a tensor that has a coding",
    .crosses = true,
    .context = sizeof(struct bps_push),
    .more = more_coded,
    .probe = takes_coded,
    .start = start_coded,
    .cancel = cancel,
    .abandon = abandon,
    .refuse = bps_remote_refuse,
};

static const struct bps_step_ops push_plain = {
    .name = "push",
    .takes = "all that is not summed on this host alone",
    .crosses = true,
    .context = sizeof(struct bps_push),
    .more = more_plain,
    .start = start_plain,
    .cancel = cancel,
    .refuse = bps_remote_refuse,
};

const struct bps_step_ops *const bps_push_pull_steps[] = {&push_coded, &push_plain, NULL};

struct bps_task *bps_push_find(struct bps_worker *worker, const struct bps_header *header)
{
    struct bps_task *task = bps_task_in(worker, header, &push_coded);
    return task != NULL ? task : bps_task_in(worker, header, &push_plain);
}
