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
#include "shards/shards.h"

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
        bps_assert(shard->waits == (bps_heap_top(&remote->queue) != NULL && !remote->starved));
        bps_assert(!remote->starved || worker->shards->patience != NULL);
        bps_assert(!shard->waits || remote->told || shard->blocked_by != BPS_WINDOW_NONE);
    }
}

static int32_t priority_of(const struct bps_task *task)
{
    return task->tensor->operation.request.priority;
}

/* Asks for the root's value of a broadcast, and brings nothing. */
static bool is_request(const struct bps_task *task)
{
    const struct bps_operation *operation = &task->tensor->operation;
    return operation->op == BPS_WIRE_BROADCAST && !bps_tensor_speaks_for(task->tensor, operation->root);
}

/* Of the payload of that slice. */
static uint32_t pushed_bytes(const struct bps_task *task, uint32_t index)
{
    return is_request(task) ? 0 : bps_partition_bytes(task->bytes, task->tensor->worker->slice, index);
}

/* Slices that are out, of a task that a shard's queue has. */
static uint32_t sent_of(const struct bps_task *task)
{
    return ((const struct bps_push *)bps_task_context(task))->sent;
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

/*
 * The queue of the shard, or its credit, has changed: tells the window, and the transports of this shard and of
 * those that were blocked by it. Nobody waits for a shard that has no credit. Where nothing would ever look whether
 * it has some again, it goes on without.
 */
static void update(struct bps_remote *remote)
{
    struct bps_worker *worker = remote->worker;
    const struct bps_task *task = bps_heap_top(&remote->queue);
    uint32_t freed;
    remote->starved = task != NULL &&
                      !bps_credit_admits(&remote->credit, priority_of(task), pushed_bytes(task, sent_of(task))) &&
                      have_patience(worker);
    if (task == NULL || remote->starved) {
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

struct bps_remote *bps_remote_of(struct bps_tensor_entry *tensor, uint32_t partition)
{
    struct bps_worker *worker = tensor->worker;
    uint16_t shard =
        tensor->unnamed ? bps_unnamed_shard(worker->book, tensor->id, partition) : tensor->shard[partition];
    return &worker->shards->remote[shard];
}

static bool start(struct bps_task *task)
{
    struct bps_worker *worker = task->tensor->worker;
    struct bps_remote *remote = bps_remote_of(task->tensor, task->partition);
    struct bps_push *push = bps_task_context(task);
    uint32_t slices = bps_partitions(task->bytes, worker->slice);
    bps_assert(push->outstanding == 0);
    *push = (struct bps_push){.got = (bool *)(push->header + slices)};
    memset(push->got, false, slices * sizeof *push->got);
    if (!bps_heap_push(&remote->queue, task->tensor->operation.request.priority, worker->sequence++, task)) {
        bps_worker_fail(worker, BPS_ERR_NOMEM, "out of memory");
        return false;
    }
    update(remote);
    check_told(worker);
    return false;
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
        .epoch = tensor->worker->book->epoch,
        .tensor = tensor->id,
        .bytes = operation->bytes,
        .partition = task->partition,
        .round = tensor->unnamed ? 0 : tensor->round,
        .offset = offset,
        .root = operation->root,
        .prescale = operation->request.prescale,
        .postscale = operation->request.postscale,
        .priority = operation->request.priority,
    };
}

/* For a group its sum is pushed, in which the scales of its members are already. */
static void slice_header(const struct bps_task *task, uint32_t index, uint32_t bytes, uint8_t flags, uint8_t *out)
{
    const struct bps_worker *worker = task->tensor->worker;
    struct bps_header header;
    bps_push_header(task, index * (uint32_t)worker->slice, bytes, flags, &header);
    if (task->for_group) {
        header.flags |= BPS_FLAG_GROUP;
        header.prescale = task->divisor;
    }
    bps_header_encode(&header, out);
}

bps_status bps_remote_next(void *owner, struct bps_link *link, struct bps_frame *out)
{
    struct bps_remote_lane *lane = owner;
    struct bps_task *task = bps_heap_top(&lane->remote->queue);
    (void)link;
    struct bps_worker *worker = lane->remote->worker;
    if (task == NULL || lane->remote->starved || !bps_window_admits(&worker->shards->window, lane->remote->index)) {
        lane->remote->told = false;
        return BPS_AGAIN;
    }
    bool request = is_request(task);
    uint32_t slices = request ? 1 : bps_partitions(task->bytes, worker->slice);
    struct bps_push *push = bps_task_context(task);
    uint32_t index = push->sent++;
    uint32_t bytes = pushed_bytes(task, index);
    slice_header(task, index, bytes, request ? BPS_FLAG_EMPTY : 0, push->header[index]);
    if (push->sent == slices) {
        bps_heap_pop(&lane->remote->queue);
    }
    bps_window_sent(&worker->shards->window, lane->remote->index, BPS_HEADER_BYTES + bytes);
    bps_credit_sent(&lane->remote->credit, priority_of(task), bytes, bps_now());
    update(lane->remote);
    push->outstanding++;
    *out = (struct bps_frame){
        .header = push->header[index],
        .payload = bps_task_payload(task, index * (uint32_t)worker->slice),
        .bytes = bytes,
        .cookie = task,
    };
    check_told(worker);
    return BPS_OK;
}

/* The transport has let go of a frame, or a slice has come: is the task's exchange with the shard over? */
static void check(struct bps_task *task)
{
    const struct bps_push *push = bps_task_context(task);
    bool has_result = push->answered == bps_partitions(task->bytes, task->tensor->worker->slice);
    if (push->outstanding == 0 && (task->failed || has_result)) {
        bps_task_done(task, BPS_OK, NULL);
    }
}

void bps_remote_sent(void *owner, struct bps_link *link, void *cookie)
{
    struct bps_task *task = cookie;
    struct bps_push *push = bps_task_context(task);
    (void)owner;
    (void)link;
    bps_assert(push->outstanding > 0);
    push->outstanding--;
    check(task);
}

void bps_remote_answered(struct bps_task *task, uint32_t index)
{
    struct bps_remote *remote = bps_remote_of(task->tensor, task->partition);
    struct bps_push *push = bps_task_context(task);
    bps_assert(index < push->sent || is_request(task));
    bps_assert(!push->got[index]);
    push->got[index] = true;
    push->answered++;
    if (!task->failed) {
        bps_credit_answered(&remote->credit, priority_of(task), pushed_bytes(task, index), bps_now());
        resume_starved(remote);
        check_told(remote->worker);
    }
    check(task);
}

void bps_remote_placed(struct bps_task *task, uint32_t index)
{
    struct bps_push *push = bps_task_context(task);
    bps_assert(push->outstanding > 0);
    push->outstanding--;
    bps_remote_answered(task, index);
}

/* What was sent and is not answered never will be. */
static void give_up(struct bps_task *task)
{
    struct bps_remote *remote = bps_remote_of(task->tensor, task->partition);
    const struct bps_push *push = bps_task_context(task);
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
    if (bps_heap_remove(&remote->queue, task)) {
        update(remote);
        check_told(remote->worker);
    }
    give_up(task);
    check(task);
}

const struct bps_step_ops bps_step_push_pull = {
    .name = "push",
    .takes = "all that is not summed on this host alone",
    .crosses = true,
    .context = sizeof(struct bps_push),
    .slice_context = BPS_HEADER_BYTES + sizeof(bool),
    .start = start,
    .cancel = cancel,
    .refuse = bps_remote_refuse,
};

const struct bps_step_ops *const bps_push_pull_steps[] = {&bps_step_push_pull, NULL};
