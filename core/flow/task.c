/* SPDX-License-Identifier: Apache-2.0 */
/*
 * task.c - partitions on their way through the steps of their path.
 *
 * A task runs along its tensor's path until a step is not done at once. Whatever has it then calls bps_task_done(),
 * and the task goes on, or ends.
 */
#include <stdlib.h>
#include <string.h>

#include "flow/step.h"

static struct bps_operation *operation_of(struct bps_task *task)
{
    return &task->tensor->operation;
}

static const struct bps_step_ops *step_of(const struct bps_tensor_entry *tensor, uint32_t i)
{
    return tensor->worker->step[tensor->path.step[i].node->kind];
}

bool bps_step_serves(const struct bps_tensor_entry *tensor, enum bps_node_kind kind)
{
    const struct bps_step_ops *step = tensor->worker->step[kind];
    return step->probe == NULL || step->probe(tensor);
}

bool bps_tensor_speaks_for(const struct bps_tensor_entry *tensor, uint32_t rank)
{
    const struct bps_worker *worker = tensor->worker;
    const struct bps_book_member *member = worker->book->member;
    return rank == worker->rank || (bps_step_serves(tensor, BPS_NODE_LOCAL_REDUCE) && rank < worker->size &&
                                    member[rank].group == member[worker->rank].group);
}

/* ---- the end ---- */

static void end(struct bps_task *task)
{
    struct bps_operation *operation = operation_of(task);
    task->state = BPS_TASK_DONE;
    if (--operation->left > 0) {
        return;
    }
    if (operation->status == BPS_WIRE_CHANGED) {
        bps_change_report(operation);
    } else {
        bps_operation_end(operation);
    }
}

static void end_with(struct bps_task *task, bps_status status, const char *text)
{
    bps_operation_error(operation_of(task), status, text);
    end(task);
}

/* ---- refusals ---- */

void bps_tensor_refuse(struct bps_tensor_entry *tensor, uint32_t partition, uint64_t bytes, bps_status status,
                       const char *text, bool answer)
{
    const struct bps_worker *worker = tensor->worker;
    bool grouped = bps_step_serves(tensor, BPS_NODE_LOCAL_REDUCE);
    const struct bps_step_ops *first = worker->step[grouped ? BPS_NODE_LOCAL_REDUCE : BPS_NODE_PUSH_PULL];
    if (first->refuse != NULL) {
        first->refuse(tensor, partition, bytes, status, text, answer);
    }
}

/*
 * Tells those whom the task would have met from here on. True: they end the round for all, and this worker's task
 * waits for their words, so that of all workers' reasons everybody hears the same.
 */
static bool refuse(struct bps_task *task, bps_status status, const char *text)
{
    struct bps_tensor_entry *tensor = task->tensor;
    for (uint32_t i = task->step; i < tensor->path.length; i++) {
        const struct bps_step_ops *step = step_of(tensor, i);
        if (step->refuse != NULL) {
            task->refused = true;
            task->state = BPS_TASK_AWAITED;
            return step->refuse(tensor, task->partition, tensor->operation.bytes, status, text, true);
        }
    }
    return false;
}

/* A step of this worker alone has failed: before others have its contribution, that is everybody's failure. */
static void fail_step(struct bps_task *task, bps_status status, const char *text)
{
    struct bps_tensor_entry *tensor = task->tensor;
    struct bps_worker *worker = tensor->worker;
    struct bps_node *node = tensor->path.step[task->step].node;
    char line[BPS_TEXT_LIMIT];
    node->failures++;
    snprintf(line, sizeof line, "worker %u: stage %s: %s", worker->rank, node->name, text);
    if (task->grouped) { /* the other devices wait for this one */
        bps_worker_fail(worker, status, line);
    } else if (refuse(task, status, line)) {
        return;
    }
    end_with(task, status, line);
}

/* ---- along the path ---- */

/* What others have sent lies in its place, or is what this worker has sent: the root's value of a broadcast. */
static void take_result(struct bps_task *task)
{
    if (operation_of(task)->op == BPS_WIRE_BROADCAST && task->src != task->dst && task->bytes > 0) {
        memcpy(task->dst, task->src, task->bytes);
    }
    task->src = task->dst;
}

/* The step of the task is behind it; with a result of all, everything up to the one that hands that out. */
static void pass(struct bps_task *task)
{
    const struct bps_path *path = &task->tensor->path;
    if (step_of(task->tensor, task->step)->crosses) {
        take_result(task);
    }
    task->step = task->whole ? bps_path_find(path, BPS_NODE_LOCAL_BROADCAST) + 1 : task->step + 1;
    task->whole = false;
}

static void advance(struct bps_task *task)
{
    const struct bps_tensor_entry *tensor = task->tensor;
    const struct bps_worker *worker = tensor->worker;
    while (task->step < tensor->path.length) {
        if (worker->failure != BPS_OK) { /* perhaps while the tasks before this one began */
            end_with(task, worker->failure, worker->failure_text);
            return;
        }
        struct bps_node *node = tensor->path.step[task->step].node;
        node->tasks++;
        node->bytes += task->bytes;
        if (!step_of(tensor, task->step)->start(task)) {
            return;
        }
        pass(task);
    }
    end(task);
}

void bps_task_start(struct bps_task *task)
{
    task->step = 0;
    task->state = BPS_TASK_DONE;
    advance(task);
}

void bps_task_done(struct bps_task *task, bps_status status, const char *text)
{
    const struct bps_worker *worker = task->tensor->worker;
    task->state = BPS_TASK_DONE;
    if (worker->failure != BPS_OK) {
        end_with(task, worker->failure, worker->failure_text);
    } else if (task->failed) {
        end(task); /* its operation has the words */
    } else if (status == BPS_OK) {
        pass(task);
        advance(task);
    } else if (task->refused || step_of(task->tensor, task->step)->crosses) {
        end_with(task, status, text);
    } else {
        fail_step(task, status, text);
    }
}

void bps_task_cancel(struct bps_task *task)
{
    bool waits = task->refused || step_of(task->tensor, task->step)->cancel == NULL;
    task->failed = true;
    if (waits) {
        bps_task_done(task, BPS_OK, NULL);
    } else {
        step_of(task->tensor, task->step)->cancel(task);
    }
}

void bps_tasks_abort(struct bps_operation *operation)
{
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    for (uint32_t i = 0, n = tensor->tasks; i < n; i++) {
        enum bps_task_state state = tensor->task[i].state;
        if (state == BPS_TASK_QUEUED || state == BPS_TASK_AWAITED) {
            tensor->task[i].held = 0;
            bps_task_done(&tensor->task[i], BPS_OK, NULL);
        } else if (state != BPS_TASK_DONE && step_of(tensor, tensor->task[i].step)->abandon != NULL) {
            step_of(tensor, tensor->task[i].step)->abandon(&tensor->task[i]);
        }
    }
}

/* ---- beginning ---- */

/* Leaves out the built-in steps that do nothing for this tensor. */
static void leave_out(struct bps_tensor_entry *tensor)
{
    struct bps_path *path = &tensor->path;
    uint32_t n = 0;
    for (uint32_t i = 0; i < path->length; i++) {
        if (bps_step_serves(tensor, path->step[i].node->kind)) {
            path->step[n++] = path->step[i];
        }
    }
    path->length = n;
}

static bps_status find_path(struct bps_tensor_entry *tensor, struct bps_report *report)
{
    const struct bps_operation *operation = &tensor->operation;
    bool on_device = bps_is_on_device(operation);
    if (tensor->path_op == operation->op && tensor->path_dtype == operation->request.dtype &&
        tensor->path_on_device == on_device && tensor->path_stays == operation->stays && !tensor->renamed &&
        tensor->path_bytes == operation->bytes) {
        return BPS_OK;
    }
    if (tensor->path_op != BPS_WIRE_OPS) {
        bps_path_fini(&tensor->path);
        tensor->path_op = BPS_WIRE_OPS;
    }
    bool bare = operation->op == BPS_WIRE_BROADCAST || tensor->id >= BPS_ID_BARRIER;
    const struct bps_tensor_info info = {
        .name = tensor->name,
        .dtype = operation->request.dtype,
        .op = operation->op,
        .count = operation->request.count,
        .partitions = bps_partitions(operation->bytes, tensor->worker->partition),
        .memory = on_device ? BPS_MEMORY_DEVICE : BPS_MEMORY_HOST,
    };
    bps_status status = operation->stays
                            ? bps_path_new_on_device(tensor->worker->graph, tensor->name, &tensor->path)
                            : bps_path_new(tensor->worker->graph, &info, bare, &tensor->path, report);
    if (status == BPS_OK) {
        leave_out(tensor);
        tensor->renamed = false;
        tensor->path_op = operation->op;
        tensor->path_dtype = operation->request.dtype;
        tensor->path_on_device = on_device;
        tensor->path_stays = operation->stays;
    }
    return status;
}

/* Ends an operation that cannot begin here, for everybody. */
static void refuse_operation(struct bps_operation *operation, bps_status status, const char *text)
{
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    const struct bps_worker *worker = tensor->worker;
    uint32_t n = bps_partitions(operation->bytes, worker->partition);
    operation->stays = false; /* the shards hear of this round */
    if (worker->hooks != NULL) {
        worker->hooks->decline(operation);
    }
    for (uint32_t i = 0; i < n; i++) {
        bps_tensor_refuse(tensor, i, operation->bytes, status, text, false);
    }
    bps_operation_error(operation, status, text);
    bps_operation_end(operation);
}

void bps_task_reset(struct bps_task *task)
{
    uint32_t slices = bps_partitions(task->bytes, task->tensor->worker->slice);
    task->step = task->sent = task->received = task->held = task->given = task->direct = 0;
    task->failed = task->grouped = task->refused = task->whole = task->for_group = false;
    memset(task->got, 0, (slices + 63) / 64 * sizeof *task->got);
}

void bps_tasks_start(struct bps_operation *operation)
{
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    const struct bps_worker *worker = tensor->worker;
    const struct bps_push_pull *r = &operation->request;
    bool receiver = operation->op == BPS_WIRE_BROADCAST && operation->root != worker->rank;
    bool on_host = !bps_is_on_device(operation); /* else the first stage gives it a place there */
    uint32_t n = tensor->tasks;
    operation->left = n;
    for (uint32_t i = 0; i < n; i++) {
        struct bps_task *task = &tensor->task[i];
        size_t at = (size_t)i * worker->partition;
        task->dst = r->out != NULL && on_host ? (char *)r->out + at : NULL;
        task->src = receiver || r->in == NULL || !on_host ? task->dst : (const char *)r->in + at;
        bps_task_reset(task);
    }
    /*
     * The last task that ends may end the operation, and its tensor may
     * be used again: nothing after the loop.
     */
    for (uint32_t i = 0; i < n; i++) {
        bps_task_start(&tensor->task[i]);
    }
}

void bps_tasks_begin(struct bps_operation *operation)
{
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    struct bps_worker *worker = tensor->worker;
    struct bps_report report;
    char text[320];
    report.text[0] = '\0'; /* not all of it: this is the way of every operation */
    if (bps_must_wait(operation)) {
        worker->memory_ops->await(operation);
        return;
    }
    operation->begun = true;
    if (!tensor->unnamed && !bps_worker_alone(worker) && !bps_form_agrees(&tensor->form, &tensor->job)) {
        bps_change_begin(operation);
        return;
    }
    bps_status status = find_path(tensor, &report);
    if (status == BPS_OK) {
        status = bps_tensor_tasks(tensor, operation->bytes);
    }
    if (status == BPS_OK && bps_is_on_device(operation)) {
        status = worker->memory_ops->begin(operation, &report);
    }
    if (status != BPS_OK) {
        snprintf(text, sizeof text, "worker %u: %.280s", worker->rank,
                 report.text[0] != '\0' ? report.text : bps_strerror(status));
        refuse_operation(operation, status, text);
        return;
    }
    if (worker->hooks == NULL || !worker->hooks->ask(operation)) {
        bps_tasks_start(operation);
    }
}
